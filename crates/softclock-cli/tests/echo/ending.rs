//! The end of the program: by signal, by `--duration`, by its interface, and by SIGKILL under load.

use rustix::process::{Signal, kill_process};

use crate::lab::{ADDRESSES, Carrier, Server, eventually, lab};
use crate::load::{echoed, impatient, loaded};

#[test]
fn signals_end_it_with_a_summary() {
    for signal in [Signal::TERM, Signal::INT] {
        let lab = lab!(Carrier::Packet);
        let server = lab.serve(&[]);
        lab.assert_answers();
        let summary = server.end_by(signal);
        assert_eq!(summary["interface"], "host");
        assert_eq!(summary["mechanism"], "packet");
        assert_eq!(summary["echo"]["datagrams"], 2);
        assert_eq!(summary["pings"], 4);
        assert_eq!(summary["lost"], 0, "{summary}");
    }
}

#[test]
fn it_ends_after_its_duration() {
    let lab = lab!(Carrier::Packet);
    let summary = lab.serve(&["--duration", "50ms"]).summary();
    assert!(summary["seconds"].as_f64() >= Some(0.05), "{summary}");
}

/// A failing standard error costs the messages, not the server.
#[test]
fn messages_that_cannot_be_written_are_ignored() {
    let lab = lab!(Carrier::Packet);
    let full = std::fs::File::create("/dev/full").expect("a device");
    let mut command = lab.command(&["--duration", "50ms"]);
    let output = command.stderr(full).output().expect("nsenter is installed");
    assert!(output.status.success(), "{}", output.status);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(summary["seconds"].as_f64() >= Some(0.05), "{summary}");
}

#[test]
fn a_summary_that_cannot_be_written_is_an_error() {
    let lab = lab!(Carrier::Packet);
    let full = std::fs::File::create("/dev/full").expect("a device");
    let mut command = lab.command(&["--duration", "50ms", "--quiet"]);
    let output = command.stdout(full).output().expect("nsenter is installed");
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains("cannot write to standard output"), "{line}");
}

/// Without `--json` the summary is text, and names only the losses that occurred.
#[test]
fn the_summary_is_text_without_json() {
    let lab = lab!(Carrier::Packet);
    let mut command = lab.server.command(env!("CARGO_BIN_EXE_softclock"));
    let output = command
        .args(["echo", "--dev", "host", "--address", "10.78.0.7/24"])
        .args(["--quiet", "--duration", "10ms"])
        .output()
        .expect("nsenter is installed");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("echo, datagrams") && !text.contains("channel_full"),
        "{text}"
    );
}

#[test]
fn a_killed_server_leaves_nothing_behind() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let before = lab.link_state();
        let server = lab.serve(&[]);
        assert_ne!(
            lab.link_state(),
            before,
            "promiscuous, or with an XDP program"
        );
        loaded(&lab, || {
            // The load is there when some of it was echoed.
            for _ in 0..20 {
                assert_eq!(lab.ping("10.78.0.2", 1, ""), 1, "the host's own traffic");
            }
            server.kill();
        });
        lab.await_link_state(&before);
        for address in ["10.78.0.2", "fd78::2"] {
            assert_eq!(lab.ping(address, 2, ""), 2, "{address}");
        }
        // The address is free, and so is the interface.
        eventually(|| {
            let output = lab.command(&["--duration", "1ms"]).output();
            output.expect("nsenter is installed").status.success()
        });
        let server = lab.serve(&[]);
        lab.assert_answers();
        drop(server);
    }
}

#[test]
fn the_tap_device_goes_with_a_killed_server() {
    let lab = lab!(Carrier::Tap);
    let server = lab.serve(&[]);
    lab.assert_answers();
    loaded(&lab, || {
        let socket = impatient(&lab, ADDRESSES[0]);
        (0..20).for_each(|number| echoed(&socket, number));
        server.kill();
    });
    eventually(|| !lab.run("ip link show client").status.success());
    let _server = lab.serve(&[]);
    lab.assert_answers();
}

/// The server ends when its interface is deleted, and still prints what it did.
#[test]
fn it_ends_when_its_interface_is_deleted() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        lab.configure_client("ip link delete client");
        let name = match carrier {
            Carrier::Tap => "client",
            _ => "host",
        };
        assert_gone(server, name, carrier);
    }
}

/// Waits for the end of a server whose interface has this name and is gone.
fn assert_gone(server: Server, name: &str, carrier: Carrier) {
    let (errors, summary) = server.fail();
    let expected = format!("{name} is gone");
    assert!(errors.contains(&expected), "{carrier:?}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert_eq!(summary["pings"], 4, "{summary}");
}

#[test]
fn it_ends_when_its_interface_is_moved_to_another_namespace() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        let target = lab.client().id();
        lab.configure(&format!("ip link set host netns {target}"));
        assert_gone(server, "host", carrier);
    }
}

/// The kernel loses the report of the end, behind others that the server has had no time for.
#[test]
fn it_ends_when_the_report_of_the_end_is_lost() {
    for carrier in [Carrier::Xdp, Carrier::NiLrp] {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        kill_process(server.pid(), Signal::STOP).expect("our own child");
        let alias = |number| format!("link set host alias {number}\n");
        let mut storm: String = (0..2000).map(alias).collect();
        storm.push_str("link delete host\n");
        lab.server.batch("ip", &storm).expect("links change");
        kill_process(server.pid(), Signal::CONT).expect("our own child");
        assert_gone(server, "host", carrier);
    }
}
