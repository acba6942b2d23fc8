//! Scans and floods of nmap and hping3: ports are seen as RFC 9293 demands, and the server lives.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use softclock_testing::{KilledOnDrop, require};

use crate::lab::{ADDRESS, Carrier, Lab, lab};

/// The state of each port in nmap's report, such as `80/open/tcp`.
fn scan(lab: &Lab, words: &str) -> String {
    let words = format!("nmap -n -Pn --max-retries 5 {words} -oG - {ADDRESS}");
    let report = lab.run_at_client(&words);
    let ports = report.lines().find_map(|line| line.split_once("Ports: "));
    let (_, ports) = ports.unwrap_or_else(|| panic!("{words}: {report}"));
    ports.to_owned()
}

#[test]
fn ports_are_seen_as_rfc_9293_demands() {
    require!("nmap");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let _server = lab.serve(&[]);
        lab.assert_serves();
        for (scans, open, closed) in [
            // A SYN: answered by SYN-ACK and RST.
            (&["-sS", "-sT"][..], "open", "closed"),
            // Segments that a listener ignores (3.10.7.2), and that a closed port resets (3.10.7.1).
            (&["-sN", "-sF", "-sX"], "open|filtered", "closed"),
            // An acknowledgment is reset by both.
            (&["-sA"], "unfiltered", "unfiltered"),
            (&["-sM", "-sW"], "closed", "closed"),
        ] {
            for scan_words in scans {
                let ports = scan(&lab, &format!("{scan_words} -p 79-81"));
                for (port, state) in [(79, closed), (80, open), (81, closed)] {
                    let expected = format!("{port}/{state}/tcp");
                    assert!(
                        ports.contains(&expected),
                        "{carrier:?} {scan_words}: {ports}"
                    );
                }
            }
        }
        let datagrams = scan(&lab, "-sU -p 53,80");
        assert!(datagrams.contains("53/closed/udp"), "{datagrams}");
        assert!(datagrams.contains("80/closed/udp"), "{datagrams}");
        lab.assert_serves();
    }
}

/// The many odd requests and segments by which nmap finds out what is there.
#[test]
fn nmap_finds_a_web_server() {
    require!("nmap");
    for carrier in [Carrier::Packet, Carrier::Tap] {
        let lab = lab!(carrier);
        let _server = lab.serve(&[]);
        let ports = scan(&lab, "-sV -O -p 79,80");
        assert!(ports.contains("80/open/tcp//http"), "{carrier:?}: {ports}");
        let protocols = lab.run_at_client(&format!("nmap -n -Pn -sO -p 1,6,17,200 {ADDRESS}"));
        for line in [
            "1        open",
            "6        open",
            "17       open",
            "200      closed",
        ] {
            assert!(protocols.contains(line), "{carrier:?} {line}: {protocols}");
        }
        lab.assert_serves();
    }
}

/// During each flood a client of the same port gets its file, and memory is bounded. The flood has an address of its
/// own, as it uses all ports: a SYN with the client's own address and port would be one of the client's.
#[test]
fn floods_are_survived() {
    require!("hping3");
    for carrier in [Carrier::Packet, Carrier::Xdp] {
        let lab = lab!(carrier);
        lab.run_at_client("ip addr add 10.78.0.66/24 dev client");
        let server = lab.serve(&[]);
        lab.assert_serves();
        let resident = || softclock_testing::resident_kb(server.id()).expect("it runs");
        let before = resident();
        for flags in [
            "-S -p 80 -a 10.78.0.66",
            "-S -p 80 --rand-source",
            "-A -p 80 -a 10.78.0.66",
            "-R -p 80 -a 10.78.0.66",
            "-F -P -U -p 80 -a 10.78.0.66",
            "-S -F -R -A -P -U -X -Y -p 80 -d 100 -a 10.78.0.66",
            "-S -A -p ++1 -a 10.78.0.66",
        ] {
            let words = format!("hping3 --quiet --flood {flags} {ADDRESS}");
            let mut command = lab.at_client(&words);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut flood = KilledOnDrop::new(command.spawn().expect("nsenter is installed"));
            thread::sleep(Duration::from_millis(700));
            let output = lab.curl("--retry 20 --retry-connrefused --retry-delay 1 @small");
            let is_running = flood.try_wait().expect("our own child").is_none();
            drop(flood);
            assert!(
                is_running && output.status.success(),
                "{carrier:?} {flags}: {output:?}"
            );
        }
        let more = resident().saturating_sub(before);
        assert!(more < 32 << 10, "{carrier:?}: {more} KiB");
        lab.assert_serves();
    }
}
