//! Programs that load a server, over HTTP/1.1, HTTP/2 and TLS, with connections that are kept and such that are not.

use std::fs;

use softclock_testing::require;

use crate::lab::{Carrier, Lab, lab};

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
        certify(&lab);
        let path = |name: &str| lab.path(name).display().to_string();
        let (certificate, key) = (path("cert.pem"), path("key.pem"));
        let _server = lab.serve(&[
            "--listen",
            "tls:10.78.0.7:443",
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
        ]);
        for words in [
            "-n 1000 -c 8 -m 10 https://10.78.0.7/small",
            "-n 10 -c 2 -m 5 https://10.78.0.7/large",
            "-n 500 -c 8 --h1 https://10.78.0.7/small",
        ] {
            let report = lab.run_at_client(&format!("h2load {words}"));
            let count = words.split(' ').nth(1).unwrap_or_default();
            let expected = format!("{count} succeeded, 0 failed, 0 errored, 0 timeout");
            assert!(report.contains(&expected), "{words}: {report}");
            assert!(
                report.contains(&format!("{count} 2xx,")),
                "{words}: {report}"
            );
        }
        lab.assert_serves();
    }
}

/// Writes a certificate and its key to the directory of the lab.
fn certify(lab: &Lab) {
    let made = rcgen::generate_simple_self_signed(vec!["10.78.0.7".into()]).expect("a certificate");
    let write = |name: &str, text: String| fs::write(lab.path(name), text).expect("a directory");
    write("cert.pem", made.cert.pem());
    write("key.pem", made.signing_key.serialize_pem());
}

#[test]
fn wrk_has_no_errors() {
    require!("wrk");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let _server = lab.serve(&[]);
        lab.assert_serves();
        let text = lab.run_at_client("wrk -t1 -c64 -d2s http://10.78.0.7/small");
        assert!(text.contains("requests in"), "{carrier:?}: {text}");
        let has_errors = text.contains("Socket errors") || text.contains("Non-2xx");
        assert!(!has_errors, "{carrier:?}: {text}");
    }
}
