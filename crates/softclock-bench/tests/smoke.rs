//! Runs every experiment at its smallest size, through the program that users run, so that none stops working
//! unnoticed. The numbers are not checked.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softclock-bench"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn listed() -> Vec<String> {
    let output = bench(&["list"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let name = |line: &str| line.split_whitespace().next().map(str::to_owned);
    text.lines().filter_map(name).collect()
}

#[test]
fn every_listed_experiment_runs() {
    let names = listed();
    assert!(names.contains(&"soft-timers/check".to_owned()), "{names:?}");
    // Most of them wait for most of their time.
    let next = Mutex::new(names.iter());
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(name) = take(&next) {
                    runs(name);
                }
            });
        }
    });
}

/// Experiments that run at a time.
const AT_A_TIME: usize = 2;

fn take<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().expect("nothing panics with the lock").next()
}

/// Runs an experiment, and checks the form of its results.
fn runs(name: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let json = directory.path().join("result.json");
    let svg = directory.path().join("result.svg");
    let output = bench(&[
        "run",
        name,
        "--smoke",
        "--json",
        json.to_str().expect("UTF-8"),
        "--svg",
        svg.to_str().expect("UTF-8"),
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    if let Some((_, reason)) = stdout.split_once("note: not measured: ") {
        softclock_testing::skip(name, reason.trim());
        return;
    }
    check_json(name, &read(&json));
    check_svg(name, &read(&svg));
}

#[test]
fn the_report_is_one_page_with_its_experiments() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pages = directory.path().join("new/pages");
    let names = ["soft-timers/check", "event-delivery/figure-7"];
    let mut arguments = vec!["report", pages.to_str().expect("UTF-8"), "--smoke"];
    arguments.extend(names);
    let output = bench(&arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let page = read(&pages.join("index.html"));
    for name in names {
        assert!(page.contains(&format!("<h2>{name}</h2>")), "{name}");
    }
    let names_hosts = ["src=", "href=\"http", "url("];
    assert!(!names_hosts.iter().any(|word| page.contains(word)));
    let entries = std::fs::read_dir(&pages).expect("readable");
    assert_eq!(entries.count(), 1, "no temporary file is left behind");
}

#[test]
fn the_json_file_appears_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let json = directory.path().join("result.json");
    let path = json.to_str().expect("UTF-8");
    let output = bench(&["run", "soft-timers/check", "--smoke", "--json", path]);
    assert!(output.status.success());
    assert!(serde_json::from_str::<Value>(&read(&json)).is_ok_and(|value| value.is_object()));
    let entries = std::fs::read_dir(directory.path()).expect("readable");
    assert_eq!(entries.count(), 1, "no temporary file is left behind");
}

#[test]
fn an_unknown_name_is_one_line_and_status_2() {
    let output = bench(&["run", "no-such-thing"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("no-such-thing"), "{stderr}");
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_measuring() {
    let path = "/nonexistent/result.json";
    let output = bench(&["run", "all", "--smoke", "--json", path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "nothing was measured");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(path), "{stderr}");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn check_json(name: &str, text: &str) {
    let document: Value = serde_json::from_str(text).expect("valid JSON");
    assert_eq!(document["experiment"], name);
    for field in ["kernel", "cpu", "hz", "clock_source", "rustc"] {
        let value = document["environment"][field].as_str();
        assert!(value.is_some_and(|v| !v.is_empty()), "{name}: {field}");
    }
    assert!(
        document["steal"]["rounds"].is_u64(),
        "{name}: no steal time"
    );
    let rows = document["rows"].as_array().expect("rows is an array");
    assert!(!rows.is_empty(), "{name} reports nothing");
    for row in rows {
        check_row(name, row);
    }
}

fn check_row(name: &str, row: &Value) {
    for field in ["variant", "metric", "unit"] {
        assert!(row[field].is_string(), "{name}: {field} in {row}");
    }
    // JSON has no infinity and no NaN: they would be null here.
    let number = |field: &str| row[field].as_f64().unwrap_or(f64::NAN);
    let least = if is_difference(row) {
        f64::MIN
    } else {
        f64::MIN_POSITIVE
    };
    assert!(number("value") >= least, "{name}: value in {row}");
    assert!(number("low") <= number("value"), "{name}: low in {row}");
    assert!(number("high") >= number("value"), "{name}: high in {row}");
    assert!(
        row["paper"].is_null() || number("paper").is_finite(),
        "{name}: paper in {row}"
    );
}

/// Returns whether a row's value may be 0 or negative. Differences are negative where the noise is greater; a server
/// that shares its processor may never be busy; shares and lateness may be 0, as may the alarms that expire, and an
/// attack may send nothing more.
fn is_difference(row: &Value) -> bool {
    let metric = row["metric"].as_str().unwrap_or_default();
    let words = [
        "more ",
        "lost",
        "above",
        "cost of an event",
        "busy",
        "share of",
        "lateness",
        "landed",
        "sent by the attack",
    ];
    words.iter().any(|word| metric.contains(word))
}

/// Checks that tags balance, which a wrong escape or a missing end tag would break.
fn check_svg(name: &str, text: &str) {
    assert!(text.starts_with("<svg"), "{name}: not an SVG");
    let mut open: Vec<&str> = Vec::new();
    for tag in text.split('<').skip(1) {
        let (tag, content) = tag.split_once('>').expect("each tag ends");
        assert!(!content.contains('>'), "{name}: stray '>' in {content}");
        let word = tag.split([' ', '/']).next().unwrap_or_default();
        if let Some(end) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(end), "{name}: unbalanced");
        } else if !tag.ends_with('/') {
            open.push(word);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{name}: quotes in {tag}");
    }
    assert!(open.is_empty(), "{name}: {open:?} left open");
}
