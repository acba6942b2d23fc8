//! Uses the server as a library, in the caller's runtime.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use softclock::Runtime;
use softclock::net::TcpListener;
use softclock_http::{
    ConnectionOptions, Site, Timeouts, WorkerOptions, requests_answered, serve, serve_connection,
};

struct Running {
    address: SocketAddr,
    /// Dropped to end the server.
    stop: async_channel::Sender<()>,
    thread: JoinHandle<(usize, u64)>,
}

/// Serves in a separate thread.
fn start(site: Site, options: WorkerOptions) -> Running {
    let (stop, stopped) = async_channel::bounded::<()>(1);
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        Runtime::new().unwrap().block_on(async {
            let listener = TcpListener::bind(([127, 0, 0, 1], 0)).unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let stopped = async { stopped.recv().await.unwrap_or(()) };
            let cut = serve(vec![listener], Rc::new(site), options, stopped).await;
            (cut, requests_answered())
        })
    });
    let address = told.recv().unwrap();
    Running {
        address,
        stop,
        thread,
    }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }

    /// Ends the server; returns the number of connections that were cut and of requests that were answered.
    fn end(self) -> (usize, u64) {
        drop(self.stop);
        self.thread.join().unwrap()
    }
}

fn exchange(mut stream: TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_worker_counts_its_requests() {
    let server = start(Site::bundled(), WorkerOptions::default());
    for _ in 0..3 {
        let answer = exchange(server.connect(), "GET / HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    }
    assert_eq!(server.end(), (0, 3));
}

#[test]
fn one_connection_of_a_runtime() {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        Runtime::new().unwrap().block_on(async {
            let listener = TcpListener::bind(([127, 0, 0, 1], 0)).unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let options = ConnectionOptions::default();
            serve_connection(stream, Rc::new(Site::bundled()), &options).await
        })
    });
    let stream = TcpStream::connect(told.recv().unwrap()).unwrap();
    let answer = exchange(
        stream,
        "GET /style.css HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
    );
    assert!(answer.contains("content-type: text/css"));
    thread.join().unwrap().unwrap();
}

/// Returns options with these timeouts.
fn patient(timeouts: Timeouts) -> WorkerOptions {
    WorkerOptions {
        connection: ConnectionOptions {
            timeouts,
            ..ConnectionOptions::default()
        },
        ..WorkerOptions::default()
    }
}

const SHORT: Option<Duration> = Some(Duration::from_millis(150));

/// Returns the response to a request, which must arrive after about [`SHORT`].
fn exchange_in_short(server: &Running, request: &str) -> String {
    let begun = Instant::now();
    let answer = exchange(server.connect(), request);
    let took = begun.elapsed();
    assert!((100..5_000).contains(&took.as_millis()), "{took:?}");
    answer
}

#[test]
fn each_phase_has_its_time() {
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    let first_byte = Timeouts {
        first_byte: SHORT,
        ..Timeouts::default()
    };
    let server = start(Site::bundled(), patient(first_byte));
    assert_eq!(exchange_in_short(&server, ""), "");
    assert_eq!(server.end(), (0, 0));

    let head = Timeouts {
        head: SHORT,
        ..Timeouts::default()
    };
    let server = start(Site::bundled(), patient(head));
    for head in ["G", "GET / HTTP/1.1\r\nHost: t\r\n\r"] {
        let answer = exchange_in_short(&server, head);
        assert!(
            answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"),
            "{answer}"
        );
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    let answer = exchange_in_short(&server, &format!("{REQUEST}GET"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("HTTP/1.1 408 "));
    assert_eq!(server.end(), (0, 1));

    let idle = Timeouts {
        idle: SHORT,
        ..Timeouts::default()
    };
    let server = start(Site::bundled(), patient(idle));
    let answer = exchange_in_short(&server, &format!("{REQUEST}{REQUEST}"));
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 2);
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "and no word more");
    assert_eq!(server.end(), (0, 2));
}

#[test]
fn progress_is_not_cut() {
    let timeouts = Timeouts {
        head: Some(Duration::from_secs(10)),
        first_byte: SHORT,
        idle: SHORT,
        ..Timeouts::default()
    };
    let server = start(Site::bundled(), patient(timeouts));
    let mut stream = server.connect();
    let request = b"HEAD / HTTP/1.1\r\nHost: t\r\n\r\n";
    for _ in 0..3 {
        for part in request.chunks(5) {
            thread::sleep(Duration::from_millis(40));
            stream.write_all(part).unwrap();
        }
        let mut answer = [0; 1024];
        let read = stream.read(&mut answer).unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200 OK"));
    }
    drop(stream);
    assert_eq!(server.end(), (0, 3));
}

/// Requests a large file, reads `bytes` every 20 ms at the first pace for a while, and returns whether the rest
/// arrives.
fn takes_slowly(timeouts: Timeouts, bytes: u64, pace: u32) -> bool {
    const LEN: u64 = 30_000_000;
    const TIMES: u64 = 40;
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("big")).unwrap();
    file.set_len(LEN).unwrap();
    let site = Site::directory(directory.path()).unwrap();
    let server = start(site, patient(timeouts));
    let mut stream = server.connect();
    stream
        .write_all(b"GET /big HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut got = Vec::new();
    for _ in 0..TIMES {
        thread::sleep(Duration::from_millis(20) * pace);
        let _ = (&stream).take(bytes).read_to_end(&mut got);
    }
    let whole = stream.read_to_end(&mut got).is_ok() && got.len() as u64 > LEN;
    drop(stream);
    server.end();
    whole
}

/// Returns whether `holds` is true at one of several paces, each half as fast as the one before. If the machine stalls
/// for longer than a client may, client and server stall together; at slower paces this matters less.
fn at_some_pace(holds: impl Fn(u32) -> bool) -> bool {
    [1, 2, 4, 8].into_iter().any(holds)
}

#[test]
fn clients_that_take_nothing_are_let_go() {
    let timeouts = |pace| Timeouts {
        send: SHORT.map(|short| short * pace),
        min_rate: 0,
        ..Timeouts::default()
    };
    assert!(at_some_pace(|pace| !takes_slowly(timeouts(pace), 0, pace)));
    assert!(
        at_some_pace(|pace| takes_slowly(timeouts(pace), 300_000, pace)),
        "progress is not cut"
    );
}

#[test]
fn clients_that_take_too_little_are_let_go() {
    let timeouts = |pace| Timeouts {
        min_rate: 100_000 / pace,
        rate_window: Duration::from_millis(150) * pace,
        ..Timeouts::default()
    };
    assert!(at_some_pace(|pace| !takes_slowly(
        timeouts(pace),
        100,
        pace
    )));
    assert!(
        at_some_pace(|pace| takes_slowly(timeouts(pace), 300_000, pace)),
        "enough is not cut"
    );
    let any = Timeouts {
        min_rate: 0,
        ..timeouts(1)
    };
    assert!(takes_slowly(any, 100, 1), "0 is off");
}

#[test]
fn the_limit_of_connections_holds() {
    let options = WorkerOptions {
        max_connections: 2,
        ..WorkerOptions::default()
    };
    let server = start(Site::bundled(), options);
    // Connections with half a request are busy, so they do not end to make room.
    let half = || {
        let mut stream = server.connect();
        stream.write_all(b"GET").unwrap();
        stream
    };
    let (first, second) = (half(), half());
    let mut third = server.connect();
    third.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    third
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert!(
        third.read(&mut [0]).is_err(),
        "it waits in the kernel's queue"
    );
    drop((first, second));
    third
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    assert_eq!(third.read(&mut [0]).unwrap(), 1);
    drop(third);
    assert_eq!(server.end().1, 1);
}

#[test]
fn idle_connections_make_room() {
    let options = WorkerOptions {
        max_connections: 3,
        ..WorkerOptions::default()
    };
    let server = start(Site::bundled(), options);
    let request = b"HEAD / HTTP/1.1\r\nHost: t\r\n\r\n";
    let idle: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(request).unwrap();
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream
        })
        .collect();
    for _ in 0..5 {
        let answer = exchange(server.connect(), "GET / HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    }
    let mut first = &idle[0];
    assert_eq!(
        first.read(&mut [0]).unwrap(),
        0,
        "the longest idle was closed"
    );
    assert_eq!(server.end().1, 8);
}
