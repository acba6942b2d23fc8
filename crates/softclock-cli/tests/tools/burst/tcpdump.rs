//! A capture by the real tcpdump, of packets that the test sends to itself.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use softclock_testing::{require, skip};

use super::capture::Files;
use super::{burst, json};

const PACKETS: u16 = 120;

/// Time between two packets.
const PAUSE_NS: u64 = 100_000;

/// Ethernet, IPv4 and UDP, as on the loopback interface.
const HEADER_BYTES: u64 = 14 + 20 + 8;

#[test]
fn a_capture_by_tcpdump() {
    require!("tcpdump");
    let files = Files::new();
    for precision in ["micro", "nano"] {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("an address").port();
        let path = files.path(precision);
        let output = File::create(&path).expect("a file");
        let mut tcpdump = match start(port, precision, output) {
            Ok(tcpdump) => tcpdump,
            Err(reason) => skip!("tcpdump cannot capture here: {reason}"),
        };
        let mut bytes = 0;
        for index in 0..PACKETS {
            let payload = vec![0; usize::from(index) * 10];
            bytes += payload.len() as u64 + HEADER_BYTES;
            socket.send_to(&payload, ("127.0.0.1", port)).expect("sent");
            thread::sleep(Duration::from_nanos(PAUSE_NS));
        }
        wait(&mut tcpdump);
        let figures = json(burst([&path]).args(["--filter", &format!("proto udp dport {port}")]));
        assert_eq!(figures["packets"], PACKETS, "{precision}");
        assert_eq!(figures["bytes"], bytes, "those kept are 60 each");
        // The clock of stamps may be slewed against that of sleeping, but not by half.
        assert!(figures["duration_ns"].as_u64() > Some(u64::from(PACKETS) * PAUSE_NS / 2));
        assert_eq!(figures["left_out"]["by_filter"], 0);
    }
}

/// Captures packets to `port`; the capture runs when this returns.
fn start(port: u16, precision: &str, output: File) -> Result<Child, String> {
    let program = softclock_testing::find("tcpdump").expect("it is there");
    let mut tcpdump = Command::new(program)
        .args(["-i", "lo", "-n", "-s", "60", "-U", "--immediate-mode"])
        .args(["-c", &PACKETS.to_string(), "-w", "-"])
        .arg(format!("--time-stamp-precision={precision}"))
        .arg(format!("udp dst port {port}"))
        .env("LC_ALL", "C")
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .expect("tcpdump starts");
    let mut errors = BufReader::new(tcpdump.stderr.take().expect("piped"));
    let mut told = String::new();
    while !told.contains("listening on") {
        if errors.read_line(&mut told).expect("text") == 0 {
            tcpdump.wait().expect("our own child");
            return Err(told.trim().to_owned());
        }
    }
    // tcpdump prints more at its end, and would block without a reader.
    thread::spawn(move || errors.read_to_string(&mut String::new()));
    Ok(tcpdump)
}

/// Waits until tcpdump has captured all packets, or fails after a time limit.
fn wait(tcpdump: &mut Child) {
    let (ended, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let id = tcpdump.id().to_string();
        scope.spawn(move || {
            if end
                .recv_timeout(Duration::from_secs(20))
                .is_err_and(|error| error == mpsc::RecvTimeoutError::Timeout)
            {
                let _ = Command::new("kill").arg(id).status();
            }
        });
        let status = tcpdump.wait().expect("our own child");
        drop(ended);
        assert!(status.success(), "not all packets were captured: {status}");
    });
}
