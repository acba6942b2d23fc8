//! TLS in front of upstreams: both versions of HTTP, from other implementations' clients.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::own_stack;
use crate::server::{directory, noise};
use crate::upstream::{Upstream, proxy};

fn path_in(directory: &TempDir, name: &str) -> String {
    let path = directory.path().join(name);
    path.to_str().expect("UTF-8").to_owned()
}

/// A certificate for the addresses of programs and its key, as files of this directory.
pub(crate) fn make_certificate(directory: &TempDir) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(own_stack::names().collect::<Vec<_>>()).unwrap();
    let paths = ["cert.pem", "key.pem"].map(|name| path_in(directory, name));
    let [certificate, key] = paths;
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

/// nghttp2 refuses a 204 that has a length.
#[test]
fn a_204_with_a_length_is_one_without_for_curl() {
    softclock_testing::require!("curl");
    let directory = directory(&[]);
    let (certificate, key) = make_certificate(&directory);
    let upstream = Upstream::answering("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n");
    let tls = [
        "--listen",
        "tls:127.0.0.1:0",
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
    ];
    let proxy = proxy(&[&upstream.url()], &tls);
    for option in ["--http1.1", "--http2"] {
        let output = Command::new("curl")
            .args([
                "-sS",
                "--max-time",
                "30",
                "-i",
                option,
                "--cacert",
                &certificate,
            ])
            .arg(format!("https://{}/", proxy.addresses()[1]))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout).to_lowercase();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && told.contains(" 204"),
            "{option}: {told}{errors}"
        );
        assert!(!told.contains("content-length"), "{option}: {told}");
    }
}

#[test]
fn both_versions_of_http_reach_upstreams() {
    softclock_testing::require!("curl");
    let content = noise(2_000_000);
    let directory = directory(&[("up", &content)]);
    let path = |name: &str| path_in(&directory, name);
    let (certificate, key) = make_certificate(&directory);
    let upstream = Upstream::start(|connection| {
        while let Some(request) = connection.request() {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                request.body.len()
            );
            connection.send(&[head.as_bytes(), &request.body].concat());
        }
    });
    let proxy = proxy(
        &[&upstream.url()],
        &[
            "--via",
            "edge",
            "--listen",
            "tls:127.0.0.1:0",
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
        ],
    );
    for (option, via) in [("--http1.1", "1.1 edge"), ("--http2", "2.0 edge")] {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "30", option, "--cacert", &certificate])
            .args(["--data-binary", &format!("@{}", path("up"))])
            .args(["-H", "Cookie: a=1", "-H", "Cookie: b=2"])
            .arg(format!("https://{}/echo?x", proxy.addresses()[1]))
            .output()
            .unwrap();
        assert!(
            output.stdout == content,
            "{option}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(seen.line, "POST /echo?x HTTP/1.1");
        assert_eq!(
            (seen.header("via"), seen.header("x-forwarded-proto")),
            (Some(via), Some("https"))
        );
        let host = proxy.addresses()[1].to_string();
        assert_eq!(seen.header("host"), Some(host.as_str()));
    }
    let cookies = upstream.seen().pop().unwrap();
    assert_eq!(cookies.header("cookie"), Some("a=1; b=2"));
}
