//! Effects of a reload on upstreams; the proxy's end and replacement.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use rustix::process::Signal;
use softclock_testing::lab::Namespace;

use crate::client::Client;
use crate::server::{Server, directory, softclock, until};
use crate::successor::replace;
use crate::upstream::Upstream;

#[test]
fn a_reload_changes_upstreams_and_drops_no_connection() {
    let (old, new) = (Upstream::saying("old"), Upstream::saying("new"));
    let slow = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl");
        std::thread::sleep(Duration::from_secs(1));
        connection.send(b"ow");
    });
    for threads in ["1", "2"] {
        let directory = directory(&[]);
        let file = directory.path().join("proxy.toml");
        let write = |upstream: &Upstream| {
            let text = format!(
                "upstream = [\"{}\"]\nlisten = \"127.0.0.1:0\"\n",
                upstream.url()
            );
            fs::write(&file, text).unwrap();
        };
        write(&slow);
        let mut command = softclock();
        let command = command.args(["proxy", "-v", "--threads", threads, "--config"]);
        let proxy = Server::spawn(command.arg(&file));
        let mut download = proxy.connect();
        download.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(download.head().status, 200);
        let mut kept = proxy.connect();
        for upstream in [&old, &new] {
            write(upstream);
            proxy.signal(Signal::HUP);
            let text = if std::ptr::eq(upstream, &old) {
                "old"
            } else {
                "new"
            };
            until(text, || kept.ask("GET", "/", &[]).text() == text);
        }
        let mut rest = [0; 4];
        download.read_exact(&mut rest);
        assert_eq!(&rest, b"slow");
        // After a mistake all stays as it was.
        fs::write(&file, "upstream = \"ftp://x\"\n").unwrap();
        proxy.signal(Signal::HUP);
        proxy.until_logged("not reloaded");
        assert_eq!(kept.ask("GET", "/", &[]).text(), "new");
    }
}

#[test]
fn upstreams_that_stay_keep_their_connections() {
    let upstream = Upstream::saying("x");
    let directory = directory(&[]);
    let file = directory.path().join("proxy.toml");
    let text = format!(
        "upstream = \"{}\"\nlisten = \"127.0.0.1:0\"\n",
        upstream.url()
    );
    fs::write(&file, &text).unwrap();
    let mut command = softclock();
    let proxy = Server::spawn(command.args(["proxy", "-v", "--config"]).arg(&file));
    let mut client = proxy.connect();
    client.ask("GET", "/", &[]);
    fs::write(&file, text + "tries = 1\n").unwrap();
    proxy.signal(Signal::HUP);
    proxy.until_logged("reloaded");
    client.ask("GET", "/", &[]);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn requests_from_before_a_reload_count_towards_the_limit() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.rest();
    });
    let directory = directory(&[]);
    let file = directory.path().join("proxy.toml");
    let url = upstream.url();
    let text = format!("upstream = \"{url}\"\nlisten = \"127.0.0.1:0\"\nmax-requests = 2\n");
    fs::write(&file, &text).unwrap();
    let mut command = softclock();
    let command = command.args(["proxy", "-v", "--threads", "3", "--config"]);
    let proxy = Server::spawn(command.arg(&file));
    let begin = |here: usize| {
        let mut client = proxy.connect();
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        until("the request arrives", || upstream.seen().len() == here);
        client
    };
    let _first = begin(1);
    fs::write(&file, text + "tries = 1\n").unwrap();
    proxy.signal(Signal::HUP);
    proxy.until_logged("reloaded");
    let _second = begin(2);
    let status = || proxy.connect().ask("GET", "/", &[]).status;
    assert!((0..9).all(|_| status() == 503));
}

#[test]
fn responses_in_progress_end_before_the_proxy_does() {
    let upstream = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfi");
        std::thread::sleep(Duration::from_millis(500));
        connection.send(b"ne");
    });
    let mut proxy = crate::upstream::proxy(&[&upstream.url()], &[]);
    let mut client = proxy.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().status, 200);
    proxy.signal(Signal::TERM);
    let mut body = [0; 4];
    client.read_exact(&mut body);
    assert_eq!(&body, b"fine");
    assert!(proxy.wait().success());
}

#[test]
fn a_new_process_takes_over_while_a_response_comes() {
    let slow = Upstream::start(|connection| {
        connection.request();
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl");
        std::thread::sleep(Duration::from_secs(1));
        connection.send(b"ow");
    });
    let mut command = softclock();
    command.args(["proxy", "-v", "--listen", "127.0.0.1:0", "--upstream"]);
    let mut proxy = Server::spawn(command.arg(slow.url()));
    let mut before = proxy.connect();
    before.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(before.head().status, 200);
    let _successor = replace(&proxy);
    let mut rest = [0; 4];
    before.read_exact(&mut rest);
    assert_eq!(&rest, b"slow");
    drop(before);
    assert_eq!(proxy.wait().code(), Some(0));
    let mut after = Client::connect(proxy.address());
    assert_eq!(after.ask("GET", "/", &[]).text(), "slow");
}

/// The resolver of names never answers.
#[test]
fn a_signal_ends_a_reload_that_waits_for_a_name() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let directory = directory(&[]);
    let path = |name: &str| directory.path().join(name);
    namespace.batch("ip", "link set lo up\n").unwrap();
    let text = "nameserver 127.0.0.1\noptions timeout:30\n";
    fs::write(path("resolv.conf"), text).unwrap();
    let mount = format!(
        "mount --bind {} /etc/resolv.conf",
        path("resolv.conf").display()
    );
    namespace.run(&mount).unwrap();
    let resolver = namespace.inside(|| UdpSocket::bind("127.0.0.1:53"));
    let resolver = resolver.unwrap().unwrap();
    let patience = Some(Duration::from_secs(10));
    resolver.set_read_timeout(patience).unwrap();
    let write = |upstream: &str| {
        let text = format!("upstream = \"http://{upstream}\"\nlisten = \"127.0.0.1:0\"\n");
        fs::write(path("proxy.toml"), text).unwrap();
    };
    for signal in [Signal::TERM, Signal::INT] {
        write("127.0.0.1:1");
        let mut command = namespace.command(env!("CARGO_BIN_EXE_softclock"));
        command.args(["proxy", "-v", "--config"]);
        let mut proxy = Server::spawn(command.arg(path("proxy.toml")));
        write("upstream.test");
        for _ in 0..3 {
            proxy.signal(Signal::HUP);
        }
        resolver.recv(&mut [0; 512]).expect("a query");
        proxy.signal(signal);
        assert_eq!(proxy.wait().code(), Some(0));
    }
}
