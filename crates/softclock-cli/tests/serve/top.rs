//! `softclock top`.

use std::process::Command;
use std::time::Duration;

use crate::server::{Server, directory, softclock};

#[test]
fn one_sample_of_a_server_in_use() {
    let server = Server::start(None, &["--metrics", "127.0.0.1:0"]);
    let metrics = server.metrics().to_string();
    let url = format!("http://{metrics}/metrics");
    for target in [metrics.as_str(), &url] {
        let top = softclock()
            .args(["top", "--once", target])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut client = server.connect();
        for _ in 0..60 {
            client.get("/");
            std::thread::sleep(Duration::from_millis(15));
        }
        let output = top.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        for part in [
            "requests",
            " /s   2xx",
            "connections",
            "receive",
            "between triggers",
            "us",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(!text.contains('\x1b'));
    }
}

#[test]
fn mistakes_say_what_to_do() {
    let server = Server::start(None, &[]);
    let site = server.address().to_string();
    for (target, told) in [
        ("127.0.0.1:1", "--metrics ADDR"),
        (site.as_str(), "404"),
        ("unix:/does/not/exist", "--metrics ADDR"),
    ] {
        let output = softclock()
            .args(["top", "--once", target])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text.contains(told) && text.lines().count() == 1, "{text}");
    }
    let output = softclock().args(["top", "https://x:1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn rates_that_cannot_be_written_are_an_error() {
    let server = Server::start(None, &["--metrics", "127.0.0.1:0"]);
    let metrics = server.metrics().to_string();
    let full = std::fs::File::create("/dev/full").unwrap();
    let mut top = softclock();
    top.args(["top", "--once", "--interval", "0.1", &metrics]);
    let output = top.stdout(full).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot write to standard output"), "{text}");
}

/// More lines than the terminal has would scroll the first ones away.
#[test]
fn a_small_terminal_shows_the_first_lines() {
    softclock_testing::require!("script", "stty", "sh");
    let server = Server::start(None, &["--metrics", "127.0.0.1:0"]);
    let top = format!(
        "stty rows 10 cols 80; exec {} top --interval 0.1 {}",
        env!("CARGO_BIN_EXE_softclock"),
        server.metrics()
    );
    let run = format!("(sleep 1; printf q; sleep 1) | script -qec '{top}' /dev/null");
    let output = Command::new("sh").args(["-c", &run]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let shown = text.split("\x1b[H").skip(1);
    let shown: Vec<_> = shown
        .filter_map(|shown| shown.split_once("\x1b[J"))
        .collect();
    assert!(!shown.is_empty(), "{text}");
    for (screen, _) in shown {
        assert!(screen.starts_with("softclock at "), "{screen}");
        assert!(screen.matches("\r\n").count() < 10, "{screen}");
    }
}

/// `script` gives it a terminal; keys and signals end it, and the screen is restored.
#[test]
fn however_it_ends_the_terminal_is_as_before() {
    softclock_testing::require!("script", "stty", "sh");
    let server = Server::start(None, &["--metrics", "127.0.0.1:0"]);
    let shown = format!(
        "stty -a > before\n\
         sh -c 'echo $$ > pid; exec {} top --interval 0.1 {}'\n\
         echo ended $?\n\
         stty -a | cmp - before && echo same\n",
        env!("CARGO_BIN_EXE_softclock"),
        server.metrics()
    );
    let directory = directory(&[("shown", shown.as_bytes())]);
    for ending in [
        "printf q",
        "printf '\\003'",
        "kill -TERM $(cat pid)",
        "kill -INT $(cat pid)",
        "kill -HUP $(cat pid)",
    ] {
        let run = format!("(sleep 1; {ending}; sleep 1) | script -qec 'sh shown' /dev/null");
        let output = Command::new("sh")
            .args(["-c", &run])
            .current_dir(directory.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains("\x1b[?1049h") && text.contains("between triggers"),
            "{ending}: {text}"
        );
        assert!(text.contains("\x1b[?1049l"), "{ending}: {text}");
        assert!(
            text.contains("ended 0") && text.contains("same"),
            "{ending}: {text}"
        );
    }
}
