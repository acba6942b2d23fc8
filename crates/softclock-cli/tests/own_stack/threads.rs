//! Servers on a stack with several threads.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use crate::lab::{ADDRESS, Carrier, LARGE, Lab, Server, content, eventually, lab};

/// The processor time of each thread that serves, in clock ticks.
fn times(server: &Server) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    let of_task = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        // The name may have spaces; behind it, the 12th and 13th fields are user and system time.
        let (name, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = rest.split(' ').collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let is_worker = name.contains("(softclock");
        Some(ticks(11)? + ticks(12)?).filter(|_| is_worker)
    };
    tasks.filter_map(|task| of_task(task.ok()?)).collect()
}

fn assert_load_succeeds(lab: &Lab, url: &str) {
    let mut command = lab.client().command("wrk");
    command.args(["-t1", "-c64", "-d2s", url]);
    let output = command.output().expect("nsenter is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("requests in"), "{output:?}");
    let has_errors = text.contains("Socket errors") || text.contains("Non-2xx");
    assert!(!has_errors, "{text}");
}

/// The value of a metric at the server's own address for metrics.
fn metric(lab: &Lab, name: &str) -> f64 {
    let mut command = lab.server.command("curl");
    command.args(["--silent", "--fail", "http://127.0.0.1:9180/metrics"]);
    let output = command.output().expect("nsenter is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let values = text.lines().filter(|line| line.starts_with(name));
    let values = values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

#[test]
fn all_threads_serve() {
    softclock_testing::require!("wrk");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        lab.server.run("ip link set lo up").expect("a link");
        let metrics = ["--listen", "10.78.0.7:80", "--metrics", "127.0.0.1:9180"];
        let server = lab.serve(&[&["--threads", "2"][..], &metrics[2..]].concat());
        lab.assert_serves();
        let target = lab.path("got");
        let target = target.to_str().expect("a path");
        for _ in 0..4 {
            let output = lab.curl(&format!("-o {target} @large"));
            assert!(output.status.success(), "{output:?}");
            assert!(fs::read(target).expect("it was written") == content(LARGE));
        }
        assert_load_succeeds(&lab, "http://10.78.0.7/small");
        let times = times(&server);
        let working = times.iter().filter(|&&ticks| ticks > 5).count();
        assert!(working >= 2, "{carrier:?}: {times:?}");
        // More than one thread alone has answered.
        assert!(metric(&lab, "softclock_http_responses_total") > 100.0);
    }
}

/// Each frame of the device has one verdict, on the thread that has its connection or would have it.
#[test]
fn the_verdicts_of_all_threads_are_counted() {
    let lab = lab!(Carrier::Packet);
    lab.server.run("ip link set lo up").expect("a link");
    let _server = lab.serve(&["--threads", "2", "--metrics", "127.0.0.1:9180"]);
    lab.assert_serves();
    let refused = || TcpStream::connect((ADDRESS, 81)).map_err(|error| error.kind());
    for _ in 0..20 {
        let result = lab.client().inside(refused).expect("a namespace");
        assert_eq!(result.err(), Some(ErrorKind::ConnectionRefused));
    }
    let verdicts = "softclock_stack_verdicts_total";
    let received = "softclock_stack_frames_total{direction=\"received\"}";
    eventually(|| metric(&lab, verdicts) == metric(&lab, received));
    let control = metric(&lab, &format!("{verdicts}{{verdict=\"control\"}}"));
    assert!(control >= 20.0, "{control}");
    assert!(metric(&lab, &format!("{verdicts}{{verdict=\"channel\"}}")) > 0.0);
}

/// One thread serves metrics, and would refuse the connections that the hash gives to others.
#[test]
fn metrics_of_several_threads_are_served_by_the_host() {
    let lab = lab!(Carrier::Packet);
    for address in ["10.78.0.7:9180", ":9180"] {
        let options = ["--threads", "2", "--metrics", address];
        let output = lab.command("serve", &options).output();
        let output = output.expect("nsenter is installed");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("need an address of the host"), "{output:?}");
        assert!(!output.status.success());
    }
}

/// The frames that the program in the driver has seen on each queue of the server's link.
fn frames_of_queues(lab: &Lab) -> Vec<u64> {
    let mut command = lab.server.command("ethtool");
    let output = command.args(["--statistics", "host"]).output();
    let output = output.expect("nsenter is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let of_queue = |line: &str| {
        let (name, count) = line.trim().split_once(": ")?;
        let is_count = name.starts_with("rx_queue_") && name.ends_with("_xdp_packets");
        count.parse().ok().filter(|_| is_count)
    };
    text.lines().filter_map(of_queue).collect()
}

#[test]
fn all_queues_of_a_link_are_served() {
    softclock_testing::require!("ethtool");
    for threads in ["1", "2", "3", "4"] {
        let lab = lab!(@ Lab::with_queues(Carrier::Xdp, 3));
        let before = lab.link_state();
        lab.server.run("ip link set lo up").expect("a link");
        let server = lab.serve(&["--threads", threads, "--metrics", "127.0.0.1:9180"]);
        lab.assert_serves();
        // The client's kernel chooses the queue by the ports of the connection.
        for _ in 0..60 {
            let mut stream = lab.connect();
            stream
                .write_all(b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .expect("it is open");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("an answer");
            assert!(answer.ends_with(&content(1024)));
        }
        let frames = frames_of_queues(&lab);
        assert_eq!(frames.len(), 3, "{frames:?}");
        assert!(frames.iter().all(|&frames| frames > 10), "{frames:?}");
        // Each thread receives from queues of its own, and sends by them.
        let receiving = threads.parse::<u32>().expect("a number").min(3);
        for thread in 0..receiving {
            let name = "softclock_stack_thread_frames_total";
            for direction in ["received", "sent"] {
                let labels = format!("{{thread=\"{thread}\",direction=\"{direction}\"}}");
                let frames = metric(&lab, &format!("{name}{labels}"));
                assert!(
                    frames > 10.0,
                    "{thread} of {threads}, {direction}: {frames}"
                );
            }
        }
        lab.run_at_client("ping -c 3 -i 0.2 10.78.0.2");
        server.kill();
        eventually(|| lab.link_state() == before);
    }
}

#[test]
fn a_connection_stays_on_its_thread() {
    let lab = lab!(Carrier::Packet);
    let _server = lab.serve(&["--threads", "3"]);
    lab.assert_serves();
    let mut open: Vec<_> = (0..30).map(|_| lab.connect()).collect();
    for _ in 0..5 {
        for stream in &mut open {
            stream
                .write_all(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("it is open");
        }
        for stream in &mut open {
            // The head and the body.
            let mut answer = Vec::new();
            let mut piece = [0; 2048];
            while !answer.ends_with(&content(1024)) {
                let count = stream.read(&mut piece).expect("it answers");
                assert!(count > 0, "closed");
                answer.extend(&piece[..count]);
            }
        }
    }
}

#[test]
fn a_killed_server_of_several_threads_leaves_the_link_as_it_was() {
    for carrier in [Carrier::Packet, Carrier::Xdp] {
        let lab = lab!(carrier);
        let before = lab.link_state();
        let server = lab.serve(&["--threads", "2"]);
        let mut open: Vec<_> = (0..8).map(|_| lab.connect()).collect();
        for stream in &mut open {
            stream
                .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("it is open");
            stream.read_exact(&mut [0; 1000]).expect("it answers");
        }
        server.kill();
        eventually(|| lab.link_state() == before);
        let _again = lab.serve(&["--threads", "2"]);
        lab.assert_serves();
    }
}

#[test]
fn a_proxy_of_several_threads_connects_by_its_stack() {
    softclock_testing::require!("wrk");
    for carrier in [Carrier::Packet, Carrier::Xdp] {
        let lab = lab!(carrier);
        let mut upstream = lab.client().command(env!("CARGO_BIN_EXE_softclock"));
        upstream.args(["serve", "--listen", "10.78.0.1:8080"]);
        upstream.arg(lab.path(""));
        let _upstream = lab.start(upstream);
        let upstream = ["--threads", "2", "--upstream", "http://10.78.0.1:8080"];
        let _proxy = lab.start(lab.command("proxy", &upstream));
        lab.assert_serves();
        let target = lab.path("got");
        let target = target.to_str().expect("a path");
        let output = lab.curl(&format!("-o {target} @large"));
        assert!(output.status.success(), "{output:?}");
        assert!(fs::read(target).expect("it was written") == content(LARGE));
        assert_load_succeeds(&lab, "http://10.78.0.7/small");
    }
}

#[test]
fn a_server_of_several_threads_ends_and_begins_again() {
    let lab = lab!(Carrier::Xdp);
    for threads in ["2", "4", "1"] {
        let server = lab.serve(&["--threads", threads]);
        lab.assert_serves();
        let mut end = std::process::Command::new("kill");
        end.args(["-INT", &server.id().to_string()]);
        assert!(end.status().expect("kill is installed").success());
        assert!(server.wait().success());
    }
}

/// Each thread takes the rest of the heads of its connections before it judges their timeouts, whichever thread reads
/// the device.
#[test]
fn requests_that_came_during_a_stop_are_answered_by_all_threads() {
    const LIMIT: Duration = Duration::from_millis(500);
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        let server = lab.serve(&["--threads", "2", "--head-timeout", "0.5"]);
        for round in 0..3 {
            let mut clients: Vec<_> = (0..20).map(|_| lab.connect()).collect();
            for client in &mut clients {
                client.write_all(b"GET /small HTT").expect("it is open");
            }
            sleep(LIMIT / 5);
            server.while_stopped(|| {
                sleep(2 * LIMIT);
                for client in &mut clients {
                    let rest = b"P/1.1\r\nHost: a\r\n\r\n";
                    client.write_all(rest).expect("it is open");
                }
            });
            for client in &mut clients {
                let mut status = [0; 12];
                client.read_exact(&mut status).expect("a status line");
                let status = String::from_utf8_lossy(&status);
                assert_eq!(status, "HTTP/1.1 200", "{carrier:?}, round {round}");
            }
        }
    }
}
