//! The load generator against real servers.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use softclock_http::{Server, Site};

/// Starts a server of the bundled site, which runs until the test process ends.
fn server() -> SocketAddr {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let listen = "127.0.0.1:0".parse().unwrap();
        let server = Server::builder(Site::bundled())
            .listen(listen)
            .bind()
            .unwrap();
        tell.send(server.local_addresses()[0].to_string()).unwrap();
        server.run(std::future::pending())
    });
    told.recv().unwrap().parse().unwrap()
}

fn load(url: &str, arguments: &[&str]) -> Value {
    result(start(url, arguments).wait_with_output().unwrap())
}

fn start(url: &str, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_softclock-bench"))
        .args(["load", url, "--json"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn result(output: Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn hot_and_cold_clients_of_a_server() {
    let url = format!("http://{}/", server());
    for kind in [&[][..], &["--no-keep-alive"]] {
        let cold = ["--rate", "400", "--duration", "0.5", "--cold", "120"];
        let result = load(&url, &[&cold, kind].concat());
        assert_eq!(result["hot"]["intended"], 200, "{result}");
        assert_eq!(result["hot"]["answered"], 200, "{result}");
        assert_eq!(result["hot"]["statuses"]["200"], 200, "{result}");
        assert_eq!(result["cold"]["open"], 120, "{result}");
    }
    let first = ["--rate", "100", "--duration", "0.1", "--connections", "5"];
    assert_eq!(load(&url, &first)["hot"]["answered"], 10);
}

/// For each connection, the client's address and the bytes that it sent.
type Told = Vec<(IpAddr, Vec<u8>)>;

/// Starts a listener that collects the bytes of `count` connections until their clients close them.
fn told_by(count: usize) -> (String, thread::JoinHandle<Told>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let read = |(mut stream, address): (TcpStream, SocketAddr)| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        (address.ip(), bytes)
    };
    let told = thread::spawn(move || {
        let all: Vec<_> = (0..count).map(|_| listener.accept().unwrap()).collect();
        all.into_iter().map(read).collect()
    });
    (url, told)
}

#[test]
fn cold_clients_are_spread_over_processes_and_addresses() {
    let (url, told) = told_by(6);
    let cold = ["--rate", "0", "--duration", "0.1", "--cold", "6"];
    let result = load(&url, &[&cold[..], &["--cold-per-process", "2"]].concat());
    assert_eq!(result["cold"]["open"], 6, "{result}");
    let told = told.join().unwrap();
    assert!(told.iter().all(|(_, bytes)| bytes.is_empty()), "{told:?}");
    let addresses: BTreeSet<_> = told.iter().map(|(address, _)| *address).collect();
    assert_eq!(addresses.len(), 3, "{told:?}");
}

#[test]
fn dribbling_clients_send_heads_that_do_not_end() {
    let (url, told) = told_by(5);
    let cold = ["--rate", "0", "--duration", "1", "--cold", "5"];
    let result = load(&url, &[&cold[..], &["--dribble", "0.02"]].concat());
    assert_eq!(result["cold"]["open"], 5, "{result}");
    for (_, bytes) in told.join().unwrap() {
        let head = [&b"GET / HTTP/1.1\r\nX-Slow: "[..], &[b'a'; 100]].concat();
        assert!(bytes.len() >= 2 && head.starts_with(&bytes), "{bytes:?}");
    }
}

#[test]
fn a_client_that_cannot_send_in_time_counts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = tell.send(());
            answer(&mut stream);
        }
    });
    let child = start(
        &url,
        &["--rate", "200", "--duration", "2", "--no-keep-alive"],
    );
    told.recv().unwrap();
    let client = Pid::from_child(&child);
    kill_process(client, Signal::STOP).unwrap();
    thread::sleep(Duration::from_secs(1));
    kill_process(client, Signal::CONT).unwrap();
    let result = result(child.wait_with_output().unwrap());
    assert_eq!(result["hot"]["answered"], 400, "{result}");
    // Half of the requests were due while the client was stopped; none waited for its answer after it was sent.
    let late = result["hot"]["latency_us"]["p90"].as_u64().unwrap();
    assert!(late > 400_000, "{result}");
}

fn answer(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0; 1024]);
    let _ =
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
}

#[test]
fn waiting_for_a_slow_server_counts() {
    const STALL: Duration = Duration::from_millis(400);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        // The server stalls once. A client that measured from sending to answer on few connections would hardly notice.
        thread::sleep(STALL);
        while let Ok((mut stream, _)) = listener.accept() {
            answer(&mut stream);
        }
    });
    let result = load(
        &url,
        &["--rate", "200", "--duration", "0.4", "--no-keep-alive"],
    );
    assert_eq!(result["hot"]["answered"], 80, "{result}");
    let median = result["hot"]["latency_us"]["p50"].as_u64().unwrap();
    // Half of the requests were due more than 200 ms before the first answer.
    assert!(median > 100_000, "{result}");
}

#[test]
fn errors_are_counted_by_reason() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let result = load(
        &format!("http://{closed}/"),
        &["--rate", "50", "--duration", "0.2"],
    );
    assert_eq!(result["hot"]["failed"], 10, "{result}");
    assert_eq!(
        result["hot"]["errors"]["connection refused"], 10,
        "{result}"
    );
}

/// Starts a server that closes its first connections, at once or after a request and this answer; it serves all others.
fn server_that_closes(first: usize, answer: &'static [u8]) -> String {
    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for number in 0.. {
            let (mut stream, _) = listener.accept().unwrap();
            thread::spawn(move || match (number < first, answer) {
                (true, []) => {}
                (true, answer) => {
                    let _ = stream.read(&mut [0; 1024]);
                    let _ = stream.write_all(answer);
                }
                (false, _) => {
                    while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {
                        let _ = stream.write_all(WHOLE);
                    }
                }
            });
        }
    });
    url
}

/// Ten requests, of which the first three use connections that were opened before.
const ON_KEPT: [&str; 6] = ["--rate", "50", "--duration", "0.2", "--connections", "3"];

#[test]
fn what_a_kept_connection_brings_instead_of_a_response_counts() {
    for (answer, reason) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"[..],
            "unexpected end of file",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "unexpected end of file"),
        (b"SSH-2.0\r\n\r\n", "invalid data"),
    ] {
        let result = load(&server_that_closes(3, answer), &ON_KEPT);
        assert_eq!(result["hot"]["errors"][reason], 3, "{result}");
        assert_eq!(result["hot"]["answered"], 7, "{result}");
        assert_eq!(result["hot"]["retries"], 0, "{result}");
    }
}

#[test]
fn connections_closed_between_requests_are_no_failures() {
    let result = load(&server_that_closes(3, b""), &ON_KEPT);
    assert_eq!(result["hot"]["answered"], 10, "{result}");
    assert_eq!(result["hot"]["failed"], 0, "{result}");
    assert_eq!(result["hot"]["retries"], 3, "{result}");
}
