//! The end of the program: by signal, by `--duration`, by its interface, and by SIGKILL under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::lab::{ADDRESSES, Carrier, eventually, lab};

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
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for port in [7, 9] {
                let socket = lab.socket("10.78.0.7", port);
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let _ = socket.send(&[1; 200]);
                    }
                });
            }
            // The load is there when some of it was echoed.
            for _ in 0..20 {
                assert_eq!(lab.ping("10.78.0.2", 1, ""), 1, "the host's own traffic");
            }
            server.kill();
            is_over.store(true, Ordering::Relaxed);
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
    server.kill();
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
        let (errors, summary) = server.fail();
        assert!(
            errors.contains(&format!("{name} is gone")),
            "{carrier:?}: {errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert_eq!(summary["pings"], 4, "{summary}");
    }
}

/// The host's traffic over a shared interface is the same with the server and without it.
#[test]
fn the_hosts_traffic_is_untouched() {
    for carrier in Carrier::SHARED {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        lab.assert_answers();
        for address in ["10.78.0.2", "fd78::2"] {
            for size in [0, 56, 1472, 5000] {
                let replies = lab.ping(address, 2, &format!("-s {size}"));
                assert_eq!(replies, 2, "{address} -s {size}");
            }
            let socket = lab.socket(address, 7);
            socket.send(b"hello").expect("a datagram leaves");
            let error = socket
                .recv(&mut [0; 16])
                .expect_err("the host has no echo service");
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        let summary = server.end();
        assert_eq!(summary["echo"]["datagrams"], ADDRESSES.len());
    }
}
