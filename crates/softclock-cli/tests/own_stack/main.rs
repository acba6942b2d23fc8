//! `softclock serve` and `softclock proxy` on a stack of their own, with clients of the kernel's stack on the other
//! side of a link.

mod browser;
mod host;
mod iperf;
mod lab;
mod loads;
mod metrics;
mod paths;
mod probes;
mod reloads;
mod settings;
mod threads;
mod transfers;
mod wireshark;

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Carrier, LARGE, Server, content, eventually, lab};

#[test]
fn curl_gets_small_and_large_files_over_one_connection() {
    for carrier in Carrier::ALL {
        for &architecture in carrier.architectures() {
            let lab = lab!(carrier);
            let _server = lab.serve(&["--architecture", architecture]);
            lab.assert_serves();
            let target = lab.path("got");
            let target = target.to_str().expect("a path");
            // The number of connections that each transfer opened.
            let words = format!("-w %{{num_connects}} -o {target} @large -o /dev/null @small");
            let output = lab.curl(&words);
            assert_eq!(
                output.stdout, b"10",
                "{carrier:?} {architecture}: {output:?}"
            );
            assert!(fs::read(target).expect("it was written") == content(LARGE));
        }
    }
}

#[test]
fn a_client_that_is_killed_in_a_transfer_leaves_the_server_serving() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let _server = lab.serve(&[]);
        lab.assert_serves();
        let mut command = lab.curl_command("--limit-rate 1M -o /dev/null @large");
        let mut client = command.spawn().expect("nsenter is installed");
        thread::sleep(Duration::from_millis(300));
        client.kill().expect("our own child");
        client.wait().expect("our own child");
        lab.assert_serves();
    }
}

/// The server writes a response faster than its client reads it; what waits in the stack is sent before the end.
#[test]
fn the_end_waits_for_what_was_written() {
    for (carrier, threads) in [
        (Carrier::Tap, "1"),
        (Carrier::Packet, "2"),
        (Carrier::Xdp, "1"),
    ] {
        let lab = lab!(carrier);
        let server = lab.serve(&["--threads", threads]);
        lab.assert_serves();
        let mut clients: Vec<_> = (0..4).map(|_| lab.connect()).collect();
        for client in &mut clients {
            client
                .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("it is open");
            client.read_exact(&mut [0; 12]).expect("a status line");
        }
        server.begin_end();
        for client in &mut clients {
            // Nothing is read while most of it waits for this client's window.
            thread::sleep(Duration::from_millis(50));
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).expect("no reset");
            assert!(
                rest.ends_with(&content(LARGE)),
                "{carrier:?}: {}",
                rest.len()
            );
        }
        assert!(server.wait().success(), "{carrier:?}");
    }
}

#[test]
fn a_killed_server_leaves_the_link_as_it_was() {
    for carrier in [Carrier::Packet, Carrier::Xdp] {
        let lab = lab!(carrier);
        let before = lab.link_state();
        let server = lab.serve(&[]);
        let mut open = lab.connect();
        open.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("it is open");
        open.read_exact(&mut [0; 1000]).expect("it answers");
        server.kill();
        eventually(|| lab.link_state() == before);
        let _again = lab.serve(&[]);
        lab.assert_serves();
        // The new server does not know the connection.
        let mut rest = Vec::new();
        let _ = open.set_read_timeout(Some(lab::PATIENCE));
        let ended = open.read_to_end(&mut rest);
        assert!(ended.is_err() && rest.len() < LARGE, "{ended:?}");
    }
}

#[test]
fn a_server_that_is_killed_under_load_can_be_replaced() {
    softclock_testing::require!("wrk");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let server = lab.serve(&[]);
        let mut command = lab.at_client("wrk -t1 -c64 -d3s http://10.78.0.7/large");
        let mut load = command.stdout(Stdio::null()).spawn().expect("it is there");
        thread::sleep(Duration::from_millis(700));
        server.kill();
        let _again = lab.serve(&[]);
        // The load goes on, with segments of connections that the new server does not know.
        lab.assert_serves();
        load.kill().expect("our own child");
        load.wait().expect("our own child");
        lab.assert_serves();
    }
}

/// A client that has missed the announcement of a new server, and sends to the link address of its predecessor, finds
/// the new one by the second announcement.
#[test]
fn a_lost_announcement_is_made_up_for() {
    for carrier in [Carrier::Packet, Carrier::Xdp] {
        let lab = lab!(carrier);
        let _server = lab.serve(&[]);
        let former = "lladdr 02:00:00:00:00:99 dev client nud reachable";
        lab.run_at_client(&format!("ip neigh replace 10.78.0.7 {former}"));
        lab.assert_serves();
    }
}

/// The link is away for longer than the first retransmissions.
#[test]
fn transfers_go_on_after_the_link_was_down() {
    for carrier in [Carrier::Packet, Carrier::Xdp] {
        let lab = lab!(carrier);
        let _proxy = lab.proxy(&[]);
        transfers::echo_bodies(&lab);
        let (source, target) = (lab.path("large"), lab.path("got"));
        let (source, target) = (source.display(), target.display());
        let words = format!("--limit-rate 5M -H Expect: -T {source} -o {target} @large");
        let mut client = lab.curl_command(&words).spawn().expect("it is installed");
        thread::sleep(Duration::from_millis(500));
        lab.server.run("ip link set host down").expect("a link");
        thread::sleep(Duration::from_secs(5));
        lab.server.run("ip link set host up").expect("a link");
        assert!(
            client.wait().expect("our own child").success(),
            "{carrier:?}"
        );
        assert!(fs::read(lab.path("got")).expect("it was written") == content(LARGE));
    }
}

#[test]
fn responses_are_paced_by_the_stack() {
    let lab = lab!(Carrier::Packet);
    let _server = lab.serve(&["--pace", "80mbit"]);
    lab.assert_serves();
    let began = Instant::now();
    let output = lab.curl("-o /dev/null -w %{size_download} @large");
    assert_eq!(output.stdout, LARGE.to_string().as_bytes(), "{output:?}");
    // 10 MiB at 80 Mbit/s.
    let least = Duration::from_millis(950);
    assert!(began.elapsed() > least, "{:?}", began.elapsed());
}

#[test]
fn a_proxy_connects_by_its_stack() {
    for carrier in [Carrier::Packet, Carrier::Xdp] {
        let lab = lab!(carrier);
        let mut upstream = lab.client().command(env!("CARGO_BIN_EXE_softclock"));
        upstream.args(["serve", "--listen", "10.78.0.1:8080"]);
        upstream.arg(lab.path(""));
        let _upstream = lab.start(upstream);
        let proxy = lab.command("proxy", &["--upstream", "http://10.78.0.1:8080"]);
        let _proxy = lab.start(proxy);
        lab.assert_serves();
        let target = lab.path("got");
        let target = target.to_str().expect("a path");
        let output = lab.curl(&format!("-o {target} @large"));
        assert!(output.status.success(), "{output:?}");
        assert!(fs::read(target).expect("it was written") == content(LARGE));
    }
}

#[test]
fn an_idle_server_with_connections_does_not_wake_up() {
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let server = lab.serve(&["--idle-timeout", "60s"]);
        let mut open: Vec<_> = (0..20).map(|_| lab.connect()).collect();
        for stream in &mut open {
            stream
                .write_all(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("it is open");
            stream.read_exact(&mut [0; 1024]).expect("it answers");
        }
        // The messages of neighbors wake any server, so a few seconds are tried.
        let is_idle = (0..6).any(|_| {
            let before = wakeups(&server);
            thread::sleep(Duration::from_secs(1));
            wakeups(&server) - before == 0
        });
        assert!(is_idle, "{carrier:?}");
    }
}

/// The times that the server's threads have slept and been woken so far.
fn wakeups(server: &Server) -> u64 {
    softclock_testing::waits_of_process(server.id()).expect("it runs")
}

#[test]
fn a_tap_device_cannot_have_packets_of_any_length() {
    let lab = lab!(Carrier::Tap);
    let program = env!("CARGO_BIN_EXE_softclock");
    let options = "--dev tap:client --address 10.78.0.7/24 --mtu 65535";
    let output = lab
        .at_client(&format!("timeout 60 {program} serve {options} ."))
        .output();
    let output = output.expect("nsenter is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("an MTU of 65535: "), "{output:?}");
}

#[test]
fn mistakes_are_refused_with_advice() {
    for (arguments, advice) in [
        (&["--dev", "lo"][..], "--address A/PREFIX"),
        (&["--address", "192.0.2.7/24"], "--dev"),
        (
            &["--dev", "no-such-link", "--address", "192.0.2.7/24"],
            "no-such-link",
        ),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_softclock"));
        let output = command.arg("serve").args(arguments).output();
        let output = output.expect("the program");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(advice),
            "{errors}"
        );
    }
}
