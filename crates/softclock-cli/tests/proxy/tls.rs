//! TLS in front of upstreams: both versions of HTTP, from a client that is not ours.

use std::fs;
use std::process::Command;

use crate::server::{directory, noise};
use crate::upstream::{Upstream, proxy};

#[test]
fn both_versions_of_http_reach_upstreams() {
    softclock_testing::require!("curl");
    let content = noise(2_000_000);
    let directory = directory(&[("up", &content)]);
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).unwrap();
    fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(path("cert.pem"), made.cert.pem()).unwrap();
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
            "--listen",
            "tls:127.0.0.1:0",
            "--tls-cert",
            &path("cert.pem"),
            "--tls-key",
            &path("key.pem"),
        ],
    );
    for (option, via) in [("--http1.1", "1.1 softclock"), ("--http2", "2.0 softclock")] {
        let output = Command::new("curl")
            .args([
                "-sS",
                "--max-time",
                "30",
                option,
                "--cacert",
                &path("cert.pem"),
            ])
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
