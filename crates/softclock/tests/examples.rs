//! The example programs run to their end and print the output that their documentation promises.

use std::process::Command;

#[test]
fn soft_events_fire_beside_a_busy_server() {
    let output = run("soft_event");
    assert!(output.contains("events fired"), "{output}");
    assert!(output.contains("late by p50"), "{output}");
}

#[test]
fn paced_datagrams_arrive() {
    let output = run("paced_datagrams");
    assert!(output.contains("200 of 200 datagrams"), "{output}");
}

#[test]
fn media_streams_arrive_whole() {
    let output = run("media_sender");
    let expected = "50 streams: 200 to 200 packets of each arrived, 0 were not sent";
    assert!(output.contains(expected), "{output}");
}

#[test]
fn a_paced_response_arrives_whole() {
    let output = run("paced_server");
    assert!(output.contains("2000000 bytes arrived"), "{output}");
}

#[test]
fn threads_share_a_port() {
    let output = run("threads");
    let counts = output.rsplit('[').next().unwrap_or_default();
    let counts = counts.trim_end().trim_end_matches(']').split(", ");
    let served: usize = counts.map(|count| count.parse::<usize>().unwrap()).sum();
    assert_eq!(served, 20, "{output}");
}

#[test]
fn timers_fire_in_loops_of_the_program() {
    for example in ["timers_events", "timers_mio", "timers_epoll"] {
        let output = run(example);
        // Some more if the last ones were late together.
        let count = output
            .split_once(" datagrams")
            .map(|(count, _)| count.parse());
        assert!(
            matches!(count, Some(Ok(1_000..1_100))),
            "{example}: {output}"
        );
        let source = format!("{}/examples/{example}.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(source).expect("the example's source");
        assert!(source.lines().count() < 40, "{example} is short");
    }
}

fn run(example: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--example", example])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{example}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}
