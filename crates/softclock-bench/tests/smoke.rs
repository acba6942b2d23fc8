//! Runs every experiment at its smallest size, through the program that users run, so that none stops working
//! unnoticed. The numbers are not checked.

use std::path::Path;
use std::process::{Command, Output};

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

/// A test for each experiment, so that one that fails beside others is run again without all of them.
macro_rules! experiments {
    ($($test:ident: $name:literal,)*) => {
        const NAMES: &[&str] = &[$($name),*];

        $(
            #[test]
            fn $test() {
                runs($name);
            }
        )*
    };
}

experiments! {
    soft_timers_check: "soft-timers/check",
    soft_timers_wheel: "soft-timers/wheel",
    soft_timers_sleep_precision: "soft-timers/sleep-precision",
    soft_timers_table_1: "soft-timers/table-1",
    soft_timers_table_2: "soft-timers/table-2",
    soft_timers_table_3: "soft-timers/table-3",
    soft_timers_table_4: "soft-timers/table-4",
    soft_timers_figure_3: "soft-timers/figure-3",
    soft_timers_table_5: "soft-timers/table-5",
    soft_timers_table_6: "soft-timers/table-6",
    soft_timers_table_8: "soft-timers/table-8",
    soft_timers_table_12: "soft-timers/table-12",
    soft_timers_table_13: "soft-timers/table-13",
    event_delivery_figure_6: "event-delivery/figure-6",
    event_delivery_figure_7: "event-delivery/figure-7",
    event_delivery_figure_8: "event-delivery/figure-8",
    event_delivery_figure_9: "event-delivery/figure-9",
    event_delivery_table_2: "event-delivery/table-2",
    event_delivery_bench: "event-delivery/bench",
    event_delivery_wake_one: "event-delivery/wake-one",
    pspacer_table_1: "pspacer/table-1",
    pspacer_table_2: "pspacer/table-2",
    pspacer_table_5: "pspacer/table-5",
    pspacer_table_6: "pspacer/table-6",
    pspacer_table_7: "pspacer/table-7",
    pspacer_table_8: "pspacer/table-8",
    pspacer_figure_9: "pspacer/figure-9",
    pspacer_tolerance: "pspacer/tolerance",
    pspacer_cost: "pspacer/cost",
    lrp_figure_3: "lrp/figure-3",
    lrp_figure_4: "lrp/figure-4",
    lrp_figure_5: "lrp/figure-5",
    lrp_step: "lrp/step",
    lrp_table_1_udp: "lrp/table-1-udp",
    lrp_table_1_tcp: "lrp/table-1-tcp",
    lrp_table_2: "lrp/table-2",
    lrp_demultiplexer: "lrp/demultiplexer",
    tcp_serve: "tcp/serve",
    tcp_loss: "tcp/loss",
    tcp_cost: "tcp/cost",
    clocked_interrupts_table_1: "clocked-interrupts/table-1",
    clocked_interrupts_latency: "clocked-interrupts/latency",
    signalling_load: "signalling/load",
    signalling_livelock: "signalling/livelock",
    embed_runtimes: "embed/runtimes",
    embed_media: "embed/media",
    embed_timers: "embed/timers",
    embed_quic: "embed/quic",
    wan_delay: "wan/delay",
    burst_speed: "burst/speed",
    serve_head: "serve/head",
    servers_static: "servers/static",
    hostile_stalled_streams: "hostile/stalled-streams",
    hostile_many_fields: "hostile/many-fields",
    hostile_control_frames: "hostile/control-frames",
    hostile_frame_floods: "hostile/frame-floods",
    hostile_slow_clients: "hostile/slow-clients",
    hostile_metrics: "hostile/metrics",
    hostile_departed_clients: "hostile/departed-clients",
    hostile_slow_uploads: "hostile/slow-uploads",
    hostile_stopped: "hostile/stopped",
}

#[test]
fn every_listed_experiment_has_a_test() {
    assert_eq!(listed(), NAMES);
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

/// A result must not be taken for one of the rounds or subjects that were asked for.
#[test]
fn choices_without_effect_are_refused() {
    for (option, value, name) in [
        ("--rounds", "2", "soft-timers/check"),
        ("--only", "softclock", "hostile/metrics"),
    ] {
        let output = bench(&["run", "--smoke", option, value, name, "embed/media"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty(), "nothing was measured");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        let told = format!("softclock-bench: {option} has no effect on {name}\n");
        assert_eq!(stderr, told);
    }
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
