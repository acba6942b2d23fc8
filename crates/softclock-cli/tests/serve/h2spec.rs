//! Runs h2spec, a conformance test of HTTP/2 servers.

use std::path::PathBuf;
use std::process::Command;

use crate::server::noise;
use crate::tls;

/// h2spec, where `go install` puts it or along `PATH`.
fn h2spec() -> Option<PathBuf> {
    softclock_testing::find("h2spec").or_else(|| {
        let output = Command::new("go").args(["env", "GOPATH"]).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        let program = PathBuf::from(path.trim()).join("bin/h2spec");
        program.is_file().then_some(program)
    })
}

/// A small file, which is sent with its head, and a large one, of which much is to come when the client misbehaves.
#[test]
fn all_of_h2spec_passes() {
    let Some(h2spec) = h2spec() else {
        softclock_testing::skip!("h2spec is not installed");
    };
    let directory = tls::with_site(&[("site/small", b"hello"), ("site/large", &noise(4_000_000))]);
    let server = tls::start(&directory, &[]);
    let host = server.address().ip().to_string();
    let port = server.address().port().to_string();
    for path in ["/small", "/large"] {
        let mut command = Command::new(&h2spec);
        command.args([
            "-t", "-k", "-S", "-h", &host, "-o", "10", "-p", &port, "-P", path,
        ]);
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && told.contains(" 0 failed"),
            "{path}: {told}"
        );
    }
}
