//! Programs that load a server, over HTTP/1.1, HTTP/2 and TLS, with connections that are kept and such that are not.

use std::fs;

use softclock_testing::require;

use crate::lab::{Carrier, Lab, Server, lab};

#[test]
fn ab_gets_all_responses() {
    require!("ab");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let _server = lab.serve(&[]);
        // A connection for each request, and such that are kept.
        for options in ["-n 500 -c 16", "-n 2000 -c 32 -k"] {
            let words = format!("ab -q {options} http://10.78.0.7/small");
            let report = lab.run_at_client(&words);
            let value = |name: &str| {
                let line = report.lines().find_map(|line| line.strip_prefix(name));
                line.map(|rest| rest.split_whitespace().next().unwrap_or_default())
            };
            let requests = options.split(' ').nth(1);
            assert_eq!(value("Complete requests:"), requests, "{report}");
            assert_eq!(value("Failed requests:"), Some("0"), "{report}");
            assert_eq!(value("Document Length:"), Some("1024"), "{report}");
            assert!(!report.contains("Non-2xx"), "{report}");
        }
        lab.assert_serves();
    }
}

#[test]
fn h2load_gets_all_responses() {
    require!("h2load");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let _server = serve_tls(&lab, &[]);
        for words in [
            "-n 1000 -c 8 -m 10 https://10.78.0.7/small",
            "-n 10 -c 2 -m 5 https://10.78.0.7/large",
            "-n 500 -c 8 --h1 https://10.78.0.7/small",
        ] {
            assert_h2load(&lab, words);
        }
        lab.assert_serves();
    }
}

/// Starts a server that serves by TLS, too.
pub(crate) fn serve_tls(lab: &Lab, arguments: &[&str]) -> Server {
    let made = rcgen::generate_simple_self_signed(vec!["10.78.0.7".into()]).expect("a certificate");
    let write = |name: &str, text: String| {
        let path = lab.path(name);
        fs::write(&path, text).expect("a directory");
        path.display().to_string()
    };
    let certificate = write("cert.pem", made.cert.pem());
    let key = write("key.pem", made.signing_key.serialize_pem());
    let tls = ["--listen", "tls:10.78.0.7:443"];
    let files = ["--tls-cert", &certificate, "--tls-key", &key];
    lab.serve(&[&tls[..], &files, arguments].concat())
}

/// Runs h2load at the client. All of its requests must succeed; their number is the second of the words.
pub(crate) fn assert_h2load(lab: &Lab, words: &str) {
    let report = lab.run_at_client(&format!("timeout 120 h2load {words}"));
    let count = words.split(' ').nth(1).unwrap_or_default();
    let expected = format!("{count} succeeded, 0 failed, 0 errored, 0 timeout");
    assert!(report.contains(&expected), "{words}: {report}");
    assert!(
        report.contains(&format!("{count} 2xx,")),
        "{words}: {report}"
    );
}

/// Runs wrk at the client for two seconds. Requests must have succeeded, and none have failed.
pub(crate) fn assert_wrk(lab: &Lab, connections: u32) {
    let words = format!("-t1 -c{connections} -d2s --timeout 60s http://10.78.0.7/small");
    let report = lab.run_at_client(&format!("timeout 120 wrk {words}"));
    let mut lines = report.lines().map(str::trim);
    let requests = lines.find_map(|line| line.split_once(" requests in"));
    let requests = requests.and_then(|(count, _)| count.parse::<u64>().ok());
    assert!(requests > Some(0), "{words}: {report}");
    let has_errors = report.contains("Socket errors") || report.contains("Non-2xx");
    assert!(!has_errors, "{words}: {report}");
}

#[test]
fn wrk_has_no_errors() {
    require!("wrk");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let _server = lab.serve(&[]);
        lab.assert_serves();
        assert_wrk(&lab, 64);
    }
}
