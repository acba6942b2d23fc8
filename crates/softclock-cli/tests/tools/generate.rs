//! The manual and the completions.

use std::fs;
use std::path::Path;
use std::process::Command;

use softclock_testing::require;
use tempfile::TempDir;

use crate::{run, softclock};

const COMMANDS: [&str; 9] = [
    "serve", "proxy", "top", "burst", "pace", "wan", "echo", "doctor", "demo",
];

const UNIT: &str = include_str!("../../../../packaging/softclock.service");

fn generated(what: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (output, _) = run(softclock().args(["generate", what]).arg(directory.path()));
    assert!(output.status.success());
    directory
}

/// Every flag that `softclock COMMAND --help` names.
fn flags(command: &str) -> Vec<String> {
    let (_, help) = run(softclock().args([command, "--help"]));
    let (_, options) = help.split_once("Options:").expect("options");
    // Descriptions are indented further, and may begin a line with an option.
    let words = options.lines().filter(|line| {
        let text = line.trim_start();
        text.starts_with('-') && line.len() - text.len() <= 6
    });
    let flags = words.flat_map(|line| line.split_whitespace().take(2));
    let flags = flags.filter(|word| word.starts_with("--"));
    flags
        .map(|flag| flag.trim_end_matches([',', '.']).to_owned())
        .collect()
}

fn page(directory: &Path, name: &str) -> String {
    let page = fs::read_to_string(directory.join(name)).expect("a page");
    page.replace("\\-", "-")
}

#[test]
fn every_flag_is_in_the_manual() {
    let directory = generated("man");
    for command in COMMANDS {
        let page = page(directory.path(), &format!("softclock-{command}.1"));
        let flags = flags(command);
        assert!(flags.len() >= 2, "{command}: {flags:?}");
        for flag in flags {
            assert!(page.contains(&flag), "{flag} in softclock-{command}.1");
        }
    }
    let main = page(directory.path(), "softclock.1");
    for command in COMMANDS {
        assert!(main.contains(&format!("softclock-{command}(1)")), "{main}");
    }
    let count = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(count, 1 + COMMANDS.len(), "hidden commands have no page");
}

#[test]
fn the_manual_tells_of_signals_files_and_exit_statuses() {
    let directory = generated("man");
    let serve = page(directory.path(), "softclock-serve.1");
    for section in ["CONFIGURATION FILE", "SIGNALS", "EXIT STATUS", "FILES"] {
        assert!(serve.contains(&format!(".SH {section}\n")), "{section}");
    }
    let value = |key: &str| {
        let mut lines = UNIT.lines();
        let value = lines.find_map(|line| line.strip_prefix(key));
        value.unwrap_or_else(|| panic!("no {key} in the unit"))
    };
    for file in [
        value("EnvironmentFile=-").to_owned(),
        format!("/var/log/{}", value("LogsDirectory=")),
        format!("/run/{}", value("RuntimeDirectory=")),
    ] {
        assert!(serve.contains(&file), "{file}");
    }
}

/// 1 is a failure, 2 a mistake in the command line.
#[test]
fn exit_statuses_are_those_of_the_manual() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("softclock.toml");
    fs::write(&config, "colour = 1\n").expect("a file");
    let config = config.to_str().expect("text");
    for (status, arguments) in [
        (0, &["--help"][..]),
        (0, &["serve", "--check"]),
        (1, &["serve", "--check", "/does/not/exist"]),
        (1, &["serve", "/does/not/exist"]),
        (1, &["serve", "--config", config]),
        (1, &["pace", "lo", "lo", "--config", config]),
        (1, &["pace", "lo", "lo", "--class", "rate 1mbit"]),
        (1, &["wan", "lo", "lo"]),
        (1, &["top", "--once", "unix:/does/not/exist"]),
        (1, &["burst", "/does/not/exist"]),
    ] {
        let (output, _) = run(softclock().args(arguments));
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    }
    // The interfaces are not taken from the file.
    let bare = run(softclock().args(["pace", "--config", config])).0;
    assert_eq!(bare.status.code(), Some(2));
    for command in COMMANDS {
        let (output, _) = run(softclock().args([command, "--colour"]));
        assert_eq!(output.status.code(), Some(2), "{command}");
    }
}

#[test]
fn every_flag_can_be_completed() {
    let directory = generated("completions");
    for script in ["softclock.bash", "softclock.fish", "_softclock"] {
        let text = fs::read_to_string(directory.path().join(script)).expect("a script");
        for flag in COMMANDS.into_iter().flat_map(flags) {
            let name = flag.trim_start_matches('-');
            assert!(text.contains(name), "{flag} in {script}");
        }
    }
}

#[test]
fn the_manual_renders_without_warnings() {
    require!("groff");
    let directory = generated("man");
    for entry in fs::read_dir(directory.path()).unwrap() {
        let page = entry.unwrap().path();
        let rendered = Command::new("groff")
            .args(["-man", "-ww", "-Tutf8"])
            .arg(&page)
            .output()
            .expect("groff starts");
        let warnings = String::from_utf8_lossy(&rendered.stderr);
        assert!(
            rendered.status.success() && warnings.is_empty(),
            "{}: {warnings}",
            page.display()
        );
        assert!(!rendered.stdout.is_empty());
    }
}

#[test]
fn bash_understands_the_completions() {
    require!("bash");
    let directory = generated("completions");
    let script = directory.path().join("softclock.bash");
    let complete = format!(
        "source {}; COMP_WORDS=(softclock doctor --j); COMP_CWORD=2; _softclock softclock --j doctor; echo \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let (output, text) = run(Command::new("bash").args(["--norc", "-c", &complete]));
    assert!(output.status.success());
    assert_eq!(text.trim(), "--json");
}

#[test]
fn a_directory_that_cannot_be_made_is_told() {
    let (output, _) = run(softclock().args(["generate", "man", "/proc/no/such"]));
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.starts_with("softclock: cannot write to /proc/no/such: "),
        "{error}"
    );
}
