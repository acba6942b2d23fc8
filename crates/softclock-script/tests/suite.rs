//! FreeBSD's test suite of TCP, where its folder is beside the project: `SOFTCLOCK_TCP_TESTSUITE` names another place.

mod common;

use std::path::{Path, PathBuf};

use softclock_script::Verdict;

use common::{run_file, scripts};

/// The names of scripts that expect what FreeBSD chooses where the RFCs choose otherwise, or leave a choice; with the
/// difference.
const OTHER_CHOICES: [(&str, &[&str]); 4] = [
    (
        "the acknowledgment of a FIN in FIN-WAIT-1 repeats FreeBSD's own FIN; RFC 9293, 3.10.7.4 has SEG.SEQ = SND.NXT",
        &[
            "rcv-rst-closing-left-edge-secure-ipv4",
            "rcv-rst-closing-outside-left-insecure-ipv4",
            "rcv-rst-closing-outside-right-insecure-ipv6",
            "rcv-rst-closing-right-edge-insecure-ipv6",
            "rcv-rst-closing-right-edge-secure-ipv4",
            "rcv-rst-closing-right-edge-secure-ipv6",
            "rcv-syn-closing-left-edge-secure-ipv6",
            "rcv-syn-closing-outside-left-insecure-ipv4",
            "rcv-syn-closing-outside-left-insecure-ipv6",
            "rcv-syn-closing-outside-left-secure-ipv4",
            "rcv-syn-closing-outside-right-secure-ipv6",
            "rcv-syn-closing-right-edge-insecure-ipv4",
            "rcv-syn-closing-right-edge-secure-ipv4",
        ],
    ),
    (
        "FreeBSD does not answer; RFC 9293, 3.10.7.2 has a reset for any acknowledgment in LISTEN",
        &[
            "rcv-syn-ack-with-data-listen-ipv6",
            "rcv-syn-ack-without-data-listen-ipv4",
        ],
    ),
    (
        "time exceeded aborts FreeBSD's connection; by RFC 1122, 4.2.3.9 it must not",
        &["rcv-icmp-hard-error-ttl-exceeded-ipv6"],
    ),
    (
        "FreeBSD's reset for a port without a listener has the TTL and the class of a socket that is bound to it",
        &[
            "socket-api-setsockopt-traffic-class-passive-ipv6",
            "socket-api-setsockopt-ttl-passive-ipv4",
        ],
    ),
];

/// The folder of the suite, if it is there.
fn suite() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("SOFTCLOCK_TCP_TESTSUITE") {
        return Some(folder.into());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = here
        .ancestors()
        .map(|folder| folder.join("shared/tcp-testsuite"));
    folders.find(|folder| folder.is_dir())
}

#[test]
fn scripts_of_freebsd_pass_or_differ_for_a_reason() {
    let Some(folder) = suite() else {
        softclock_testing::skip!("the folder tcp-testsuite is absent");
    };
    let excused: Vec<_> = (OTHER_CHOICES.iter())
        .flat_map(|(_, names)| names.iter().copied())
        .collect();
    let mut differing = Vec::new();
    let (mut passed, mut not_applicable) = (0, 0);
    let mut failed = Vec::new();
    for file in scripts(&folder) {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        match run_file(&file) {
            Verdict::Passed => passed += 1,
            Verdict::NotApplicable(_) => not_applicable += 1,
            Verdict::Failed(_) if excused.contains(&name.as_str()) => differing.push(name),
            Verdict::Failed(difference) => failed.push(format!("{name}: {difference}")),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    differing.sort();
    let mut expected = excused;
    expected.sort_unstable();
    assert_eq!(differing, expected, "those that pass need no excuse");
    let applicable = passed + differing.len();
    assert!(
        passed * 100 >= applicable * 95,
        "{passed} of {applicable} pass"
    );
    assert!(
        not_applicable * 9 <= applicable,
        "{not_applicable} are not applicable"
    );
}
