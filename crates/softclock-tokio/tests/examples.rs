//! The example programs run to their end and print the results that their documentation promises.

use std::process::Command;

use softclock_testing::example;

#[test]
fn frames_are_spread() {
    let output = run("frames", &[]);
    assert!(output.starts_with("500 datagrams, gaps "), "{output}");
    let source = include_str!("../examples/frames.rs");
    assert!(source.lines().count() < 40, "the example is short");
}

#[test]
fn lateness_is_printed() {
    let output = run("lateness", &["20"]);
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines.len(), 12, "{output}");
    for (line, name) in lines[2..]
        .iter()
        .zip(["softclock", "tokio"].into_iter().cycle())
    {
        assert!(line.contains(name), "{line}");
        assert_eq!(line.split_whitespace().count(), 6, "{line}");
    }
}

fn run(name: &str, arguments: &[&str]) -> String {
    let program = example("softclock-tokio", name);
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
