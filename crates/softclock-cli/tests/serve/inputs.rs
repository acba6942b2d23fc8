//! Endless or invalid configuration files and certificates: the start reports them, and a reload does not block.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::client::Client;
use crate::server::{Server, directory, softclock, until};
use crate::tls;

/// Ways to replace a file by one that cannot be read to an end.
fn endless() -> [fn(&Path); 3] {
    [
        |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        |path| symlink("/dev/zero", path).unwrap(),
        |path| fs::write(path, [b'#'; (1 << 20) + 1]).unwrap(),
    ]
}

/// Replaces `path` in each way, reloads the server, and checks that it keeps serving and shuts down.
fn reloads_with_replaced(path: &Path, mut server: Server, is_served: impl Fn(&Server)) {
    let content = fs::read(path).unwrap();
    for (number, replace) in endless().into_iter().enumerate() {
        fs::remove_file(path).unwrap();
        replace(path);
        server.signal(Signal::HUP);
        let name = path.display().to_string();
        until("a refused reload", || {
            let log = server.log();
            let mut refused = log.lines().filter(|line| line.contains("not reloaded"));
            refused.clone().count() == number + 1 && refused.all(|line| line.contains(&name))
        });
        is_served(&server);
    }
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
    server.signal(Signal::HUP);
    server.until_logged("INFO reloaded");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_reload_waits_for_no_configuration() {
    let directory = directory(&[("site/a", b"a")]);
    let file = directory.path().join("softclock.toml");
    let site = directory.path().join("site");
    let text = format!(
        "directory = \"{}\"\nlisten = \"127.0.0.1:0\"\nverbose = 1\n",
        site.display()
    );
    fs::write(&file, text).unwrap();
    let server = Server::spawn(softclock().args(["serve", "--config"]).arg(&file));
    reloads_with_replaced(&file, server, |server| {
        assert_eq!(Client::connect(server.address()).get("/a").text(), "a");
    });
}

#[test]
fn a_reload_waits_for_no_certificate() {
    for name in ["cert.pem", "key.pem"] {
        let directory = tls::with_site(&[("site/a", b"a")]);
        let server = tls::start(&directory, &[]);
        reloads_with_replaced(&directory.path().join(name), server, |_| {});
    }
}

#[test]
fn the_start_reads_pipes_and_names_what_has_no_end() {
    let directory = directory(&[("site/a", b"a")]);
    let site = directory.path().join("site");
    let check = |config: &str| {
        let script = format!(
            "{} serve --check --config {config}",
            env!("CARGO_BIN_EXE_softclock")
        );
        Command::new("bash").args(["-c", &script]).output().unwrap()
    };
    let text = format!(
        "listen = \\\":1\\\"\\ndirectory = \\\"{}\\\"",
        site.display()
    );
    let good = check(&format!("<(printf \"{text}\")"));
    assert!(good.status.success(), "{good:?}");
    for endless in ["/dev/zero", "<(yes '#')"] {
        let refused = check(endless);
        let line = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success());
        assert!(
            line.contains("larger than 1 MiB") && line.lines().count() == 1,
            "{line}"
        );
        assert!(line.contains("/dev/"), "{line}");
    }
}
