//! A new process takes the listeners over (SIGUSR2), and the old one ends.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::client::Client;
use crate::h2_frames::{Http2, Outcome, get};
use crate::server::{Server, directory, mechanisms, metric, noise, softclock, until};
use crate::successor::{Successor, replace, replaced, started};
use crate::tls::{self, with_site};

/// Serves `directory` with `options` and an INFO log.
fn start(directory: &Path, options: &[&str]) -> Server {
    Server::start(Some(directory), &[&["--log-level=info"], options].concat())
}

/// Serves by a configuration file.
fn start_by(file: &Path, text: &str) -> Server {
    fs::write(file, text).unwrap();
    let mut command = softclock();
    Server::spawn(
        command
            .args(["serve", "--log-level=info", "--config"])
            .arg(file),
    )
}

/// Sets the flag when dropped, so that a test that fails ends its threads, too.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects repeatedly, sends a request and reads to the end; returns the number of connections.
fn connect_all_the_time(address: SocketAddr, stop: &AtomicBool) -> io::Result<usize> {
    let mut times = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut stream = TcpStream::connect(address)?;
        if times % 3 == 0 {
            // Let the server accept the connection before the request arrives.
            thread::sleep(Duration::from_millis(1));
        }
        stream.write_all(b"GET /small HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        if !answer.ends_with(b"\r\n\r\nsmall") {
            return Err(io::Error::other(String::from_utf8_lossy(&answer)));
        }
        times += 1;
    }
    Ok(times)
}

/// Sends requests over one connection, and over a new one after a response that says it is the last; returns the number
/// of connections.
fn keep_asking(address: SocketAddr, stop: &AtomicBool) -> usize {
    let mut connections = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut client = Client::connect(address);
        connections += 1;
        while !stop.load(Ordering::Relaxed) {
            let response = client.get("/small");
            assert_eq!(response.text(), "small");
            if response.header("connection") == Some("close") {
                break;
            }
        }
    }
    connections
}

#[test]
fn clients_that_connect_all_the_time_notice_nothing() {
    for threads in ["1", "2"] {
        let content = noise(20_000_000);
        let directory = directory(&[("big", &content), ("small", b"small")]);
        let mut server = start(directory.path(), &["--threads", threads, "--drain=30"]);
        let address = server.address();
        let mut slow = server.connect();
        slow.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(slow.head().status, 200);
        let stop = AtomicBool::new(false);
        let successor = thread::scope(|scope| {
            let stop_on_drop = StopOnDrop(&stop);
            let connecting = || connect_all_the_time(address, &stop);
            let connecting = [(); 3].map(|()| scope.spawn(connecting));
            let asking = scope.spawn(|| keep_asking(address, &stop));
            thread::sleep(Duration::from_millis(100));
            let successor = replace(&server);

            let mut body = Vec::with_capacity(content.len());
            let mut buffer = vec![0; 1 << 18];
            while body.len() < content.len() {
                thread::sleep(Duration::from_millis(2));
                let read = slow.read(&mut buffer).unwrap();
                assert!(read > 0, "cut after {} bytes", body.len());
                body.extend_from_slice(&buffer[..read]);
            }
            assert!(body == content);
            drop(slow);
            drop(stop_on_drop);
            for client in connecting {
                assert!(client.join().unwrap().unwrap() > 0);
            }
            assert!(asking.join().unwrap() > 1, "the old process let it go");
            successor
        });
        assert_eq!(server.wait().code(), Some(0));
        assert_eq!(Client::connect(address).get("/small").text(), "small");
        assert!(successor.runs());
        assert!(!server.log().contains("WARN"), "{}", server.log());
    }
}

#[test]
fn a_client_that_has_connected_may_ask_the_old_process() {
    let directory = directory(&[("small", b"small")]);
    let mut server = start(directory.path(), &["--drain=30"]);
    let (mut silent, mut idle) = (server.connect(), server.connect());
    assert_eq!(idle.get("/small").header("connection"), None);
    let _successor = replace(&server);
    for client in [&mut silent, &mut idle] {
        let response = client.get("/small");
        assert_eq!(response.text(), "small");
        assert_eq!(response.header("connection"), Some("close"));
        assert!(client.rest().is_empty());
    }
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_client_of_http_2_may_ask_the_old_process_too() {
    let directory = with_site(&[("site/small", b"small")]);
    let certificate = directory.path().join("cert.pem");
    let mut server = tls::start(&directory, &["--drain=4"]);
    let mut client = Http2::connect(server.address(), &certificate);
    client.send(&get(1, "/small"));
    assert_eq!(client.outcome(1), Outcome::Status(200));
    let _successor = replace(&server);
    client.send(&get(3, "/small"));
    assert_eq!(client.outcome(3), Outcome::Status(200));
    let mut other = Http2::connect(server.address(), &certificate);
    other.send(&get(1, "/small"));
    assert_eq!(other.outcome(1), Outcome::Status(200));
    assert_eq!(server.wait().code(), Some(0));
    assert!(!server.log().contains("cut"), "{}", server.log());
}

#[test]
fn idle_connections_are_let_go_in_time() {
    let directory = directory(&[("small", b"small")]);
    let mut server = start(directory.path(), &["--drain=1"]);
    let mut idle = server.connect();
    assert_eq!(idle.get("/small").text(), "small");
    let _successor = replace(&server);
    assert!(idle.rest().is_empty());
    assert_eq!(server.wait().code(), Some(0));
    assert!(!server.log().contains("cut"), "{}", server.log());
}

/// Hands over with each mechanism, with metrics, and a different number of threads each time.
#[test]
fn one_process_after_another() {
    for mechanism in mechanisms() {
        let directory = directory(&[("site/small", b"small")]);
        let file = directory.path().join("serve.toml");
        let text = |threads: usize| {
            let site = directory.path().join("site");
            format!(
                "listen = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\ndirectory = {site:?}\nevents = \"{mechanism}\"\n\
                 threads = {threads}\n"
            )
        };
        let mut server = start_by(&file, &text(2));
        let (address, metrics) = (server.address(), server.metrics());
        fs::write(&file, text(1)).unwrap();
        let first = replace(&server);
        assert_eq!(server.wait().code(), Some(0));
        fs::write(&file, text(3)).unwrap();
        first.signal(Signal::USR2);
        let second = replaced(&server, 2);
        first.wait();
        for _ in 0..10 {
            assert_eq!(Client::connect(address).get("/small").text(), "small");
        }
        let responses = "softclock_connections_accepted_total";
        assert!(metric(metrics, responses) >= 10.0);
        second.signal(Signal::TERM);
        second.wait();
        assert!(TcpStream::connect(address).is_err());
        assert!(TcpStream::connect(metrics).is_err());
    }
}

#[test]
fn a_replacement_is_one_line_at_the_default_level() {
    let directory = directory(&[("small", b"small")]);
    let mut server = Server::start(Some(directory.path()), &[]);
    let old = server.id();
    let successor = replace(&server);
    assert_eq!(server.wait().code(), Some(0));
    let log = server.log();
    let of_replacement: Vec<_> = log
        .lines()
        .filter(|line| line.contains("process"))
        .collect();
    let [line] = of_replacement[..] else {
        panic!("{log}");
    };
    assert!(
        line.contains(&format!("serves in place of {old},")),
        "{line}"
    );
    successor.signal(Signal::TERM);
    successor.wait();
}

#[test]
fn a_process_that_does_not_start_changes_nothing() {
    let directory = directory(&[("site/small", b"small")]);
    let file = directory.path().join("serve.toml");
    let path = directory.path().join("socket");
    let site = directory.path().join("site");
    let good = format!(
        "listen = [\"127.0.0.1:0\", \"unix:{}\"]\ndirectory = {site:?}\n",
        path.display()
    );
    let server = start_by(&file, &good);
    let mut kept = server.connect();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = format!(
        "listen = [\"unix:{}\", \"{}\"]\ndirectory = {site:?}\n",
        path.display(),
        taken.local_addr().unwrap()
    );
    let mistakes = [
        ("lisen = 1\n", "unknown setting"),
        (&in_use, "the port is taken"),
    ];
    for (times, (text, reason)) in mistakes.into_iter().enumerate() {
        fs::write(&file, text).unwrap();
        server.signal(Signal::USR2);
        let told = "this process continues: the new process has ended (exit status: 1)";
        until(told, || server.log().matches(told).count() > times);
        assert!(server.log().contains(reason), "{}", server.log());
        assert_eq!(kept.get("/small").text(), "small");
        assert_eq!(server.connect().get("/small").text(), "small");
        UnixStream::connect(&path).unwrap();
    }
    fs::write(&file, good).unwrap();
    let _successor = replace(&server);
    assert_eq!(server.connect().get("/small").text(), "small");
}

#[test]
fn the_program_may_be_another_by_then() {
    let directory = directory(&[("site/small", b"small")]);
    let program = directory.path().join("softclock");
    let install = || symlink(env!("CARGO_BIN_EXE_softclock"), &program).unwrap();
    install();
    let mut command = Command::new(&program);
    command.args(["serve", "--log-level=info", "--listen=127.0.0.1:0"]);
    let mut server = Server::spawn(command.arg(directory.path().join("site")));
    fs::remove_file(&program).unwrap();
    server.signal(Signal::USR2);
    server.until_logged("this process continues: cannot start");
    assert_eq!(server.connect().get("/small").text(), "small");
    install();
    let _successor = replace(&server);
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(server.connect().get("/small").text(), "small");
}

/// The new process reads its configuration from a pipe, and so starts late.
#[test]
fn signals_meanwhile() {
    for ending in [false, true] {
        let directory = directory(&[("site/small", b"small")]);
        let file = directory.path().join("serve.toml");
        let site = directory.path().join("site");
        let text = format!("listen = \"127.0.0.1:0\"\ndirectory = {site:?}\n");
        let mut server = start_by(&file, &text);
        let address = server.address();
        fs::remove_file(&file).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, 0o600.into()).unwrap();
        server.signal(Signal::USR2);
        server.until_logged("a new process starts");
        server.signal(Signal::USR2);
        server.until_logged("a new process is already starting");
        server.signal(Signal::HUP);
        server.until_logged("not reloaded: a new process is starting");
        server.signal(Signal::USR1);
        assert_eq!(server.connect().get("/small").text(), "small");
        if ending {
            let new = Successor(started(&server)[0]);
            server.signal(Signal::TERM);
            assert_eq!(server.wait().code(), Some(0));
            assert!(!new.runs());
            assert!(TcpStream::connect(address).is_err());
        } else {
            fs::write(&file, &text).unwrap();
            let _successor = replaced(&server, 1);
            assert_eq!(started(&server).len(), 1);
            assert_eq!(server.wait().code(), Some(0));
            assert_eq!(Client::connect(address).get("/small").text(), "small");
        }
    }
}

#[test]
fn paths_stay_as_long_as_they_are_named() {
    let directory = directory(&[("site/small", b"small")]);
    let file = directory.path().join("serve.toml");
    let path = |name: &str| directory.path().join(name);
    let text = |sockets: [&str; 2]| {
        let [a, b] = sockets.map(|name| format!("unix:{}", path(name).display()));
        format!(
            "listen = [\"127.0.0.1:0\", {a:?}, {b:?}]\ndirectory = {:?}\n",
            path("site")
        )
    };
    let mut server = start_by(&file, &text(["stays", "goes"]));
    let inode = || path("stays").metadata().unwrap().ino();
    let before = inode();
    fs::write(&file, text(["stays", "comes"])).unwrap();
    let successor = replace(&server);
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(inode(), before);
    for name in ["stays", "comes"] {
        let mut stream = UnixStream::connect(path(name)).unwrap();
        write!(stream, "GET /small HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("small"), "{name}: {answer}");
    }
    until("removed", || !path("goes").exists());
    successor.signal(Signal::TERM);
    successor.wait();
    assert!(!path("stays").exists() && !path("comes").exists());
}

#[test]
fn the_service_manager_learns_of_the_new_process() {
    let directory = directory(&[]);
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let timeout = Some(Duration::from_secs(10));
    manager.set_read_timeout(timeout).unwrap();
    let next = || {
        let mut buffer = [0; 200];
        let len = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let mut command = softclock();
    command.args(["serve", "--log-level=info", "--listen=127.0.0.1:0"]);
    let mut server = Server::spawn(command.env("NOTIFY_SOCKET", &path));
    assert_eq!(next(), "READY=1");
    let successor = replace(&server);
    assert_eq!(next(), format!("MAINPID={}", successor.0.as_raw_nonzero()));
    assert_eq!(server.wait().code(), Some(0));
    successor.signal(Signal::HUP);
    assert!(next().starts_with("RELOADING=1"));
    assert_eq!(next(), "READY=1");
    successor.signal(Signal::TERM);
    assert_eq!(next(), "STOPPING=1");
    successor.wait();
}
