//! The log line of a successful reload.

use std::fs;

use rustix::process::Signal;

use crate::config::free_port;
use crate::server::{Server, directory, softclock, until};
use crate::tls;

#[test]
fn a_reload_says_what_has_changed_at_the_default_level() {
    let directory = directory(&[("site/f", b"x")]);
    let file = directory.path().join("softclock.toml");
    let (first, second) = (free_port(), free_port());
    let site = directory.path().join("site").display().to_string();
    let write = |more: &str| {
        let text = format!("directory = \"{site}\"\nlisten = [\"{first}\"{more}");
        fs::write(&file, text).unwrap();
    };
    write("]\n");
    let server = Server::spawn(softclock().args(["serve", "--config"]).arg(&file));
    for (more, expected) in [
        ("]\n", "1 address; no setting has changed\n"),
        (
            &*format!(", \"{second}\"]\npace = \"50mbit\"\n"),
            "2 addresses; changed: listen, pacing\n",
        ),
        (
            "]\nerror-page = \"404=/f\"\n",
            "1 address; changed: content, listen, pacing\n",
        ),
    ] {
        write(more);
        let before = server.log().len();
        server.signal(Signal::HUP);
        let expected = format!(" INFO reloaded {}: {expected}", file.display());
        server.until_logged(&expected);
        assert_eq!(server.log()[before..].lines().count(), 1);
    }
}

#[test]
fn a_new_certificate_is_named() {
    let directory = tls::with_site(&[("site/f", b"x")]);
    let server = tls::start(&directory, &["--tls-check", "0"]);
    for name in ["two.test", "three.test"] {
        tls::certify(directory.path(), name);
        let before = server.log().matches("changed: certificate\n").count();
        server.signal(Signal::HUP);
        until("the reload", || {
            server.log().matches("changed: certificate\n").count() == before + 1
        });
    }
}

#[test]
fn a_quiet_server_says_nothing_of_a_reload() {
    let directory = directory(&[("a/f", b"old"), ("b/f", b"new")]);
    let file = directory.path().join("softclock.toml");
    let address = free_port();
    let write = |site: &str, level: &str| {
        let site = directory.path().join(site).display().to_string();
        let text =
            format!("directory = \"{site}\"\nlisten = \"{address}\"\nlog-level = \"{level}\"\n");
        fs::write(&file, text).unwrap();
    };
    write("a", "error");
    let server = Server::spawn(softclock().args(["serve", "--config"]).arg(&file));
    write("b", "error");
    server.signal(Signal::HUP);
    until("the reload", || server.connect().get("/f").text() == "new");
    write("b", "warn");
    server.signal(Signal::HUP);
    server.until_logged("changed: log level\n");
    let log = server.log();
    assert_eq!(log.lines().count(), 1, "{log}");
}
