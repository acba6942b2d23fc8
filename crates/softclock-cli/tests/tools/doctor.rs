//! `softclock doctor`.

use std::process::Command;

use serde_json::Value;
use softclock_testing::{require, skip};

use crate::{on_terminal, run, softclock};

/// Runs the program under another one that changes its limits or capabilities.
fn under(wrapper: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new(wrapper[0]);
    command
        .args(&wrapper[1..])
        .arg(env!("CARGO_BIN_EXE_softclock"))
        .args(arguments);
    command
}

/// The line about `name`, without its advice.
fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let mut lines = text.lines().filter(|line| line.starts_with("  "));
    let found = lines.find(|line| line.get(12..).is_some_and(|line| line.starts_with(name)));
    found.unwrap_or_else(|| panic!("no line about {name} in {text}"))
}

#[test]
fn findings_that_cannot_be_written_are_an_error() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let output = softclock().arg("doctor").stdout(full).output().unwrap();
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains("cannot write to standard output"), "{line}");
}

#[test]
fn every_feature_has_a_line() {
    let (output, text) = run(softclock().arg("doctor"));
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(!text.contains('\x1b'), "colours belong on a terminal");
    for name in [
        "processor's counter",
        "clock source",
        "kernel's tick",
        "timer slack",
        "backup timer",
        "processors",
        "CPU quota",
        "clock reading",
        "timer, idle thread",
        "openat2",
        "preadv2",
        "open descriptors",
        "ports below 1024",
        "somaxconn",
        "memory overcommit",
        "epoll_pwait2",
        "io_uring",
        "AF_XDP",
        "XDP programs",
        "tc programs",
        "BTF",
        "TUN and TAP",
        "qdisc fq",
        "qdisc netem",
        "polling by epoll",
        "polling by io_uring",
        "polling by AF_XDP",
        "delayable interrupts",
        "delayed interrupts",
        "NET_BIND_SERVICE",
        "PERFMON",
        "IPC_LOCK",
    ] {
        let status = line(&text, name).split_whitespace().next();
        assert!(matches!(status, Some("ok" | "note" | "missing")), "{name}");
    }
    assert!(text.ends_with("softclock serve can run here.\n"));
}

#[test]
fn json_has_a_schema() {
    let (output, text) = run(softclock().args(["doctor", "--json"]));
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["serve"], true);
    assert!(report["softclock"].is_string() && report["system"].is_string());
    let checks = report["checks"].as_array().expect("checks");
    assert!(checks.len() > 30);
    for check in checks {
        let keys: Vec<_> = check.as_object().expect("an object").keys().collect();
        assert_eq!(
            keys,
            ["advice", "found", "group", "name", "needed", "status"]
        );
        assert!(matches!(
            check["status"].as_str(),
            Some("ok" | "note" | "missing")
        ));
        assert!(check["needed"].is_boolean() && check["found"].is_string());
        assert!(
            check["advice"].is_null() || check["status"] != "ok",
            "{check}"
        );
    }
}

#[test]
fn few_descriptors_are_told_and_too_few_end_with_1() {
    require!("prlimit");
    let (output, text) = run(&mut under(&["prlimit", "--nofile=100:1000"], &["doctor"]));
    assert_eq!(output.status.code(), Some(0), "{text}");
    let found = line(&text, "open descriptors");
    assert!(found.contains("note"), "{found}");
    assert!(
        found.contains("100 soft, 1000 hard") && found.contains("468 connections"),
        "{found}"
    );

    let wrapper = ["prlimit", "--nofile=40:40"];
    let (output, text) = run(&mut under(&wrapper, &["doctor"]));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(line(&text, "open descriptors").contains("missing"));
    assert!(
        text.ends_with("cannot run here without: open descriptors\n"),
        "{text}"
    );
    let (output, text) = run(&mut under(&wrapper, &["doctor", "--json"]));
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["serve"], false);
}

#[test]
fn without_capabilities_serve_can_still_run() {
    require!("setpriv");
    let (output, _) = run(Command::new("id").arg("-u"));
    if output.stdout != b"0\n" {
        skip!("only root can drop capabilities from the bounding set");
    }
    let wrapper = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let (output, text) = run(&mut under(&wrapper, &["doctor"]));
    assert_eq!(output.status.code(), Some(0), "{text}");
    for name in ["NET_BIND_SERVICE", "BPF", "AF_XDP", "AF_PACKET"] {
        assert!(line(&text, name).contains("note"), "{name} in {text}");
    }
}

#[test]
fn one_processor_is_noted() {
    require!("taskset");
    let (output, text) = run(&mut under(&["taskset", "1"], &["doctor"]));
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(line(&text, "processors").contains("1 of "), "{text}");
}

#[test]
fn colours_only_where_they_are_wanted() {
    require!("script");
    let (text, status) = on_terminal("doctor", &[]).end();
    assert!(status.success());
    assert!(text.contains("\x1b[32mok"), "{text}");
    let (text, _) = on_terminal("doctor", &[("NO_COLOR", "1")]).end();
    assert!(!text.contains('\x1b'), "{text}");
}
