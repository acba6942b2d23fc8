//! The example programs run to their end and print the results that their documentation promises.

use std::process::Command;

#[test]
fn a_megabyte_takes_its_time() {
    let program = softclock_testing::example("softclock-quinn", "paced_quic");
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = String::from_utf8(output.stdout).unwrap();
    let ms = output.strip_prefix("1000000 bytes in ");
    let ms = ms.and_then(|rest| rest.strip_suffix(" ms\n"));
    let ms: u64 = ms.and_then(|ms| ms.parse().ok()).expect("the time");
    // 160 ms of payload at this rate.
    assert!(ms > 150, "{output}");
    let source = include_str!("../examples/paced_quic.rs");
    assert!(source.lines().count() < 40, "the example is short");
}
