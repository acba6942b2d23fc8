//! The server as a library, in a runtime of the caller's.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use softclock::Runtime;
use softclock::net::TcpListener;
use softclock_http::{
    ConnectionOptions, Site, WorkerOptions, requests_answered, serve, serve_connection,
};

struct Running {
    address: SocketAddr,
    /// Dropped to end the server.
    stop: async_channel::Sender<()>,
    thread: JoinHandle<(usize, u64)>,
}

/// Serves in a thread of its own.
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

    /// Ends the server: connections cut and requests answered.
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

#[test]
fn slow_heads_end() {
    let connection = ConnectionOptions {
        head_timeout: Duration::from_millis(150),
        ..ConnectionOptions::default()
    };
    let server = start(
        Site::bundled(),
        WorkerOptions {
            connection,
            ..WorkerOptions::default()
        },
    );
    for head in ["", "GET / HTTP/1.1\r\nHost: "] {
        let begun = Instant::now();
        assert_eq!(exchange(server.connect(), head), "");
        let took = begun.elapsed();
        assert!((100..5_000).contains(&took.as_millis()), "{took:?}");
    }
    assert_eq!(server.end(), (0, 0));
}

#[test]
fn clients_that_take_nothing_are_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let len = 50_000_000;
    std::fs::File::create(directory.path().join("big"))
        .unwrap()
        .set_len(len)
        .unwrap();
    let connection = ConnectionOptions {
        send_timeout: Duration::from_millis(150),
        ..ConnectionOptions::default()
    };
    let site = Site::directory(directory.path()).unwrap();
    let server = start(
        site,
        WorkerOptions {
            connection,
            ..WorkerOptions::default()
        },
    );
    let mut stream = server.connect();
    stream
        .write_all(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n")
        .unwrap();
    thread::sleep(Duration::from_millis(600));
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    assert!((got.len() as u64) < len, "all of it came");
    assert_eq!(server.end(), (0, 1));
}

#[test]
fn the_limit_of_connections_holds() {
    let options = WorkerOptions {
        max_connections: 2,
        ..WorkerOptions::default()
    };
    let server = start(Site::bundled(), options);
    let first = server.connect();
    let second = server.connect();
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
