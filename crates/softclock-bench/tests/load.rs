//! The load generator against real servers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use softclock_http::{Server, Site};

/// A server of the bundled site, for the rest of the test process.
fn server() -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
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
    let output = Command::new(env!("CARGO_BIN_EXE_softclock-bench"))
        .args(["load", url, "--json"])
        .args(arguments)
        .output()
        .unwrap();
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
    let dribbling = load(
        &url,
        &[
            "--rate",
            "0",
            "--duration",
            "0.3",
            "--cold",
            "20",
            "--dribble",
            "0.1",
        ],
    );
    assert_eq!(dribbling["cold"]["open"], 20);
}

#[test]
fn waiting_for_a_slow_server_counts() {
    const STALL: Duration = Duration::from_millis(400);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        // It stalls once; who only measured from sending to answer on few connections would hardly notice.
        thread::sleep(STALL);
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    let result = load(
        &url,
        &["--rate", "200", "--duration", "0.4", "--no-keep-alive"],
    );
    assert_eq!(result["hot"]["answered"], 80, "{result}");
    let median = result["hot"]["latency_us"]["p50"].as_u64().unwrap();
    // Half of the requests were to be sent more than 200 ms before the first answer.
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
