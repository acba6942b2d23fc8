//! TLS: both versions of HTTP, certificates and their replacement, clients that misbehave.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use softclock_testing::KilledOnDrop;
use tempfile::TempDir;

use crate::client::Client;
use crate::config::free_port;
use crate::own_stack;
use crate::server::{Server, directory, metric, noise, softclock, until};

/// Writes a certificate for `name` and the addresses of programs, and its key.
pub(crate) fn certify(directory: &Path, name: &str) {
    certify_between(directory, name, 1975, 4096);
}

/// Writes a certificate that is valid from the beginning of one year to that of another.
fn certify_between(directory: &Path, name: &str, begin: i32, end: i32) {
    let names = own_stack::names().chain([name.to_owned()]);
    let names: Vec<_> = names.collect();
    let mut parameters = rcgen::CertificateParams::new(names).unwrap();
    parameters.not_before = rcgen::date_time_ymd(begin, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(end, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
    fs::write(directory.join("cert.pem"), certificate.pem()).unwrap();
}

pub(crate) fn start(directory: &TempDir, options: &[&str]) -> Server {
    let path = |name: &str| directory.path().join(name);
    let mut command = softclock();
    command
        .args(["serve", "--listen", "tls:127.0.0.1:0", "-v"])
        .args(options);
    command.arg("--tls-cert").arg(path("cert.pem"));
    command
        .arg("--tls-key")
        .arg(path("key.pem"))
        .arg(path("site"));
    Server::spawn(&mut command)
}

pub(crate) fn curl(directory: &Path, server: &Server, target: &str, options: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command
        .args(["-sS", "--max-time", "30", "--cacert"])
        .arg(directory.join("cert.pem"));
    command
        .args(options)
        .arg(format!("https://{}{target}", server.address()));
    command.output().unwrap()
}

pub(crate) fn with_site(files: &[(&str, &[u8])]) -> TempDir {
    let directory = directory(files);
    certify(directory.path(), "one.test");
    directory
}

#[test]
fn both_versions_of_http_download_exactly() {
    softclock_testing::require!("curl");
    let content = noise(8_000_000);
    let directory = with_site(&[("site/big", &content), ("site/index.html", b"hello")]);
    for threads in ["1", "2"] {
        let server = start(&directory, &["--threads", threads]);
        for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
            let output = curl(directory.path(), &server, "/big", &[option]);
            assert!(
                output.stdout == content,
                "{version}: {output:?}",
                output = output.stderr
            );
            let form = " %{http_version} %{http_code}";
            for (target, body) in [("/", "hello 2"), ("/none", "404")] {
                let output = curl(directory.path(), &server, target, &[option, "-w", form]);
                let told = String::from_utf8(output.stdout).unwrap();
                let end = told.split_once(&format!(" {version} ")).is_some();
                assert!(
                    end && told.contains(&body[..3]),
                    "{target} {version}: {told}"
                );
            }
            let output = curl(
                directory.path(),
                &server,
                "/big",
                &[option, "-r", "100-199"],
            );
            assert!(output.stdout == content[100..200], "{version}");
        }
    }
}

#[test]
fn many_requests_share_a_connection_of_http_2() {
    softclock_testing::require!("curl");
    let content = noise(300_000);
    let directory = with_site(&[("site/f", &content)]);
    let server = start(&directory, &["--metrics", "127.0.0.1:0"]);
    let target = "/f?[1-40]";
    let options = [
        "--http2",
        "--parallel",
        "--parallel-max",
        "20",
        "--parallel-immediate",
    ];
    let output = curl(
        directory.path(),
        &server,
        target,
        &[
            &options[..4],
            &["-o", "/dev/null", "-w", "%{size_download} "],
        ]
        .concat(),
    );
    let sizes = String::from_utf8(output.stdout).unwrap();
    assert_eq!(sizes, "300000 ".repeat(40));
    let metrics = crate::client::Client::connect(server.metrics()).get("/metrics");
    let samples = metrics.text();
    assert!(
        samples.contains("responses_total{method=\"GET\",class=\"2xx\"} 40\n"),
        "{samples}"
    );
}

#[test]
fn plain_and_broken_clients_are_let_go() {
    let directory = with_site(&[("site/f", b"x")]);
    let server = start(&directory, &["--metrics", "127.0.0.1:0"]);
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5],
        b"",
    ] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 20, "an alert at most: {answer:?}");
    }
    let failed = || {
        let page = crate::client::Client::connect(server.metrics()).get("/metrics");
        page.text()
            .contains("softclock_tls_handshakes_failed_total 3\n")
    };
    until("the count", failed);
}

#[test]
fn a_handshake_has_the_time_of_a_head() {
    let directory = with_site(&[("site/f", b"x")]);
    // One client sends nothing of its handshake, the other one the start of a record.
    let server = start(
        &directory,
        &["--first-byte-timeout", "0.3", "--head-timeout", "0.3"],
    );
    for bytes in [&b""[..], &[0x16, 3, 1, 2]] {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        let took = begun.elapsed();
        assert!((250..5000).contains(&took.as_millis()), "{took:?}");
    }
}

#[test]
fn silent_clients_of_http_2_hold_no_connection() {
    softclock_testing::require!("openssl");
    let directory = with_site(&[("site/f", b"x")]);
    let options = ["--idle-timeout", "0.3", "--metrics", "127.0.0.1:0"];
    let server = start(&directory, &options);
    let open = || metric(server.metrics(), "softclock_connections_open");
    // The server has allocated everything when it has answered.
    let mut other = Session::open(server.address(), &[]);
    other.status();
    until("closed", || open() == 0.0);
    let before = server.descriptors();
    let session = Session::open(server.address(), &["-alpn", "h2"]);
    until("accepted", || open() > 0.0);
    until("closed", || open() == 0.0 && server.descriptors() <= before);
    drop(session);
}

#[test]
fn the_end_does_not_wait_for_handshakes() {
    let directory = with_site(&[("site/f", b"x")]);
    let mut server = start(&directory, &[]);
    let mut silent = TcpStream::connect(server.address()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(server.wait().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(3));
}

/// A connection through openssl, kept open between requests.
pub(crate) struct Session {
    child: KilledOnDrop,
}

impl Session {
    pub(crate) fn open(address: SocketAddr, options: &[&str]) -> Self {
        let mut command = Command::new("openssl");
        command.args([
            "s_client",
            "-quiet",
            "-ign_eof",
            "-connect",
            &address.to_string(),
        ]);
        command.args(options);
        let piped = std::process::Stdio::piped;
        command
            .stdin(piped())
            .stdout(piped())
            .stderr(std::process::Stdio::null());
        Self {
            child: KilledOnDrop::new(command.spawn().unwrap()),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(bytes).unwrap();
    }

    /// The bytes that the server sends.
    pub(crate) fn output(&mut self) -> &mut impl Read {
        self.child.stdout.as_mut().unwrap()
    }

    fn status(&mut self) -> String {
        let input = self.child.stdin.as_mut().unwrap();
        input
            .write_all(b"HEAD /f HTTP/1.1\r\nHost: t\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            self.child
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut byte)
                .unwrap();
            answer.push(byte[0]);
        }
        String::from_utf8(answer[..12].to_vec()).unwrap()
    }
}

fn trusts(directory: &Path, server: &Server) -> bool {
    let output = curl(directory, server, "/f", &[]);
    output.status.success() && output.stdout == b"x"
}

#[test]
fn a_new_certificate_is_shown_after_a_signal_and_connections_go_on() {
    softclock_testing::require!("curl", "openssl");
    let directory = with_site(&[("site/f", b"x")]);
    let server = start(&directory, &[]);
    assert!(trusts(directory.path(), &server));
    let mut session = Session::open(server.address(), &[]);
    assert_eq!(session.status(), "HTTP/1.1 200");

    certify(directory.path(), "two.test");
    assert!(!trusts(directory.path(), &server), "still the old one");
    server.signal(Signal::HUP);
    until("the new certificate", || trusts(directory.path(), &server));
    assert_eq!(session.status(), "HTTP/1.1 200");

    let good = fs::read(directory.path().join("key.pem")).unwrap();
    fs::write(directory.path().join("key.pem"), "bad").unwrap();
    server.signal(Signal::HUP);
    server.until_logged("the old settings stay: cannot use");
    assert!(trusts(directory.path(), &server));
    fs::write(directory.path().join("key.pem"), good).unwrap();
    assert_eq!(session.status(), "HTTP/1.1 200");
}

#[test]
fn changed_files_are_noticed() {
    softclock_testing::require!("curl");
    let directory = with_site(&[("site/f", b"x")]);
    let server = start(&directory, &["--tls-check", "0.1"]);
    assert!(trusts(directory.path(), &server));
    fs::write(directory.path().join("key.pem"), "bad").unwrap();
    server.until_logged("the old certificate stays: cannot use");
    assert!(trusts(directory.path(), &server));
    certify(directory.path(), "a-longer-name.test");
    until("the new certificate", || trusts(directory.path(), &server));
}

#[test]
fn a_certificate_that_clients_refuse_is_told() {
    let directory = with_site(&[("site/f", b"x")]);
    let file = |name: &str| directory.path().join(name);
    let check = || {
        let mut command = softclock();
        command.args(["serve", "--check", "--listen", "tls:127.0.0.1:0"]);
        command.arg("--tls-cert").arg(file("cert.pem"));
        command.arg("--tls-key").arg(file("key.pem"));
        let output = command.arg(file("site")).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), told)
    };
    assert_eq!(check(), (Some(0), String::new()));
    certify_between(directory.path(), "one.test", 2001, 2002);
    let (code, told) = check();
    assert_eq!(code, Some(1));
    let expired = format!(
        "the certificate in {} expired on Tue, 01 Jan 2002 00:00:00 GMT",
        file("cert.pem").display()
    );
    assert!(
        told.contains(&expired) && told.lines().count() == 1,
        "{told}"
    );
    // A server with an invalid certificate starts and keeps running.
    let server = start(&directory, &["--tls-check", "0.1"]);
    server.until_logged(&expired);
    certify(directory.path(), "a-longer-name.test");
    server.until_logged("new certificate");
    certify_between(directory.path(), "an-even-longer-name.test", 4000, 4001);
    let early = "is not valid before Sat, 01 Jan 4000 00:00:00 GMT";
    server.until_logged(early);
    assert_eq!(check().0, Some(1));
    certify_between(directory.path(), "one.test", 2003, 2004);
    server.signal(Signal::HUP);
    server.until_logged("expired on Thu, 01 Jan 2004");
    assert_eq!(server.log().matches(early).count(), 1, "said once");
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(file("key.pem"), key.serialize_pem()).unwrap();
    let (code, told) = check();
    assert!(
        code == Some(1) && told.contains("not the key of the certificate"),
        "{told}"
    );
}

#[test]
fn an_address_changes_to_tls_and_back() {
    softclock_testing::require!("curl");
    let directory = with_site(&[("site/f", b"x")]);
    let path = |name: &str| directory.path().join(name).display().to_string();
    let file = directory.path().join("softclock.toml");
    let write = |listen: &str| {
        let text = format!(
            "directory = \"{}\"\nlisten = \"{listen}\"\ntls-cert = \"{}\"\ntls-key = \"{}\"\n",
            path("site"),
            path("cert.pem"),
            path("key.pem")
        );
        fs::write(&file, text).unwrap();
    };
    for threads in ["1", "2"] {
        let address = free_port();
        write(&address.to_string());
        let mut command = softclock();
        let command = command.args(["serve", "-v", "--threads", threads, "--config"]);
        let server = Server::spawn(command.arg(&file));
        for (listen, is_tls) in [("tls:", true), ("", false)] {
            write(&format!("{listen}{address}"));
            server.signal(Signal::HUP);
            until("the change", || {
                let log = server.log();
                assert!(!log.contains("not reloaded"), "{log}");
                trusts(directory.path(), &server) == is_tls
            });
        }
        assert_eq!(server.connect().get("/f").text(), "x");
    }
}

#[test]
fn clients_in_the_queue_of_a_removed_address_get_tls() {
    softclock_testing::require!("openssl");
    let directory = with_site(&[("site/f", b"x"), ("site/big", &noise(8_000_000))]);
    let path = |name: &str| directory.path().join(name).display().to_string();
    let file = directory.path().join("softclock.toml");
    let (plain, secure) = (free_port(), free_port());
    let write = |more: &str| {
        let text = format!("directory = \"{}\"\n{more}\n", path("site"));
        fs::write(&file, text).unwrap();
    };
    write(&format!(
        "listen = [\"{plain}\", \"tls:{secure}\"]\ntls-cert = \"{}\"\ntls-key = \"{}\"",
        path("cert.pem"),
        path("key.pem")
    ));
    let mut command = softclock();
    let command = command.args(["serve", "-v", "--max-connections", "1", "--config"]);
    let server = Server::spawn(command.arg(&file));
    let mut busy = Client::connect(plain);
    busy.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(busy.head().status, 200);
    let mut waiting = Session::open(secure, &[]);
    waiting.send(b"HEAD /f HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    until("it waits", || {
        let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        let port = format!(":{:04X} ", secure.port());
        // The listener, and both ends of the connection.
        table.matches(&port).count() >= 3
    });
    write(&format!("listen = \"{plain}\""));
    server.signal(Signal::HUP);
    server.until_logged(" reloaded");
    drop(busy);
    let mut answer = String::new();
    waiting.output().read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
