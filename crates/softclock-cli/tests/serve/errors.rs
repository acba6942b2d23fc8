//! Mistakes: one line on standard error, and an exit code.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::server::{Server, directory, softclock};

fn serve(arguments: &[&str]) -> Output {
    softclock().arg("serve").args(arguments).output().unwrap()
}

/// The only line of `output`.
fn line(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(output.stdout.is_empty());
    assert!(
        text.starts_with("softclock: ") && text.ends_with('\n'),
        "{text:?}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// Copies the program to a place where other users may run it.
fn copy_of_program(directory: &Path) -> PathBuf {
    let program = directory.join("softclock");
    // Copy with another process: programs that other tests start meanwhile would inherit a descriptor for writing from
    // this one, and the kernel refuses to execute a file open for writing.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_softclock"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    program
}

#[test]
fn directories_that_cannot_be_served() {
    let directory = directory(&[("file", b"")]);
    let file = directory.path().join("file");
    let missing = directory.path().join("missing");
    let text = line(&serve(&[missing.to_str().unwrap()]), 1);
    assert!(text.contains("no such directory"), "{text}");
    let text = line(&serve(&[file.to_str().unwrap()]), 1);
    assert!(text.contains("not a directory"), "{text}");
}

#[test]
fn priorities_that_are_none_or_not_allowed() {
    for wrong in ["1", "fifo:0", "nice:20", "fast:1"] {
        let text = line(&serve(&["--priority", wrong]), 2);
        assert!(text.contains("fifo:1 to fifo:99"), "{text}");
    }
    if !rustix::process::geteuid().is_root() {
        softclock_testing::skip!("needs root, to become somebody else");
    }
    let directory = directory(&[]);
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = copy_of_program(directory.path());
    for (priority, limit) in [("nice:-20", "LimitNICE"), ("fifo:1", "LimitRTPRIO")] {
        let mut command = Command::new(&program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--priority", priority]);
        let text = line(&command.uid(65_534).gid(65_534).output().unwrap(), 1);
        let part = format!("no permission for --priority {priority}: it needs root");
        assert!(text.contains(&part) && text.contains(limit), "{text}");
    }
}

#[test]
fn a_directory_that_may_not_be_read() {
    if !rustix::process::geteuid().is_root() {
        softclock_testing::skip!("needs root, to become somebody else");
    }
    let directory = directory(&[("shut/file", b"")]);
    let shut = directory.path().join("shut");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o700)).unwrap();
    let program = copy_of_program(directory.path());
    let mut command = Command::new(&program);
    let output = command
        .arg("serve")
        .arg(&shut)
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let text = line(&output, 1);
    assert!(text.contains("permission denied"), "{text}");
}

#[test]
fn taken_ports() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for more in [&[][..], &["--threads", "2"]] {
        let text = line(&serve(&[&["--listen", &address][..], more].concat()), 1);
        assert!(
            text.contains("the port is taken") && text.contains(&address),
            "{text}"
        );
    }
}

#[test]
fn a_port_taken_by_another_softclock() {
    for threads in ["1", "2"] {
        let server = Server::start(None, &["--threads", threads]);
        let address = server.address().to_string();
        for more in ["1", "2"] {
            let text = line(&serve(&["--listen", &address, "--threads", more]), 1);
            assert!(text.contains("the port is taken"), "{text}");
        }
    }
}

#[test]
fn addresses_of_others() {
    let text = line(&serve(&["--listen", "192.0.2.1:8080"]), 1);
    assert!(text.contains("no such address"), "{text}");
}

#[test]
fn bad_options() {
    for (arguments, part) in [
        (&["--no-such-option"][..], "--no-such-option"),
        (&["--listen", "nonsense"], "IP:PORT"),
        (&["--threads", "0"], "from 1 to 1024"),
        (&["--drain", "soon"], "seconds"),
        (&["--spin-cap", "1000"], "percentage"),
        (&["--events", "kqueue"], "kqueue"),
        (&["--index", "../x"], "not a file name"),
        (&["one", "two"], "two"),
    ] {
        let text = line(&serve(arguments), 2);
        assert!(text.contains(part), "{text}");
    }
    let output = softclock().arg("sevre").output().unwrap();
    assert!(line(&output, 2).contains("serve"));
}

#[test]
fn help_is_no_mistake() {
    let help = serve(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let text = String::from_utf8(help.stdout).unwrap();
    for part in [
        "--listen",
        "127.0.0.1:8080",
        "--drain",
        "--spin-cap",
        "--events",
        "--index",
        "Examples:",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(help.stderr.is_empty());
    let output = softclock().arg("--version").output().unwrap();
    assert!(output.stdout.starts_with(b"softclock "));
}

#[test]
fn quiet_is_quiet() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    line(&serve(&["--quiet", "--listen", &address]), 1);
}
