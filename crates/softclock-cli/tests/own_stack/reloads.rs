//! Reloads that change the listeners of the stack, and a replacement, which it does not allow.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{Carrier, Lab, Server, content, eventually, lab};

/// A server with a configuration file, and the file of its log.
struct Configured<'a> {
    lab: &'a Lab,
    server: Server,
}

impl<'a> Configured<'a> {
    /// Starts a server that listens at `listen`, an array's elements.
    fn start(lab: &'a Lab, listen: &str, threads: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let names = rcgen::CertificateParams::new(vec!["a.test".into()]).expect("a name");
        let certificate = names.self_signed(&key).expect("a certificate");
        fs::write(lab.path("key"), key.serialize_pem()).expect("a directory");
        fs::write(lab.path("cert"), certificate.pem()).expect("a directory");
        write(lab, listen);
        let mut command = lab.server.command(env!("CARGO_BIN_EXE_softclock"));
        command.args(["serve", "--dev", "tap:client", "--address", "10.78.0.7/24"]);
        command.args(["--threads", threads, "--config"]);
        command.arg(lab.path("file"));
        let log = fs::File::create(lab.path("log")).expect("a directory");
        command.stderr(Stdio::from(log));
        let server = lab.start(command);
        Self { lab, server }
    }

    /// Changes the addresses, and waits until the log has this line once more.
    fn reload(&self, listen: &str, line: &str) {
        write(self.lab, listen);
        let lines = || log(self.lab).matches(line).count();
        let before = lines();
        self.signal(Signal::HUP);
        eventually(|| lines() > before);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server.0), signal).expect("our own child");
    }
}

fn write(lab: &Lab, listen: &str) {
    let path = |name| lab.path(name).display().to_string();
    let text = format!(
        "directory = \"{}\"\nlisten = [{listen}]\ntls-cert = \"{}\"\ntls-key = \"{}\"\n",
        path(""),
        path("cert"),
        path("key")
    );
    fs::write(lab.path("file"), text).expect("a directory");
}

fn log(lab: &Lab) -> String {
    fs::read_to_string(lab.path("log")).expect("it was created")
}

/// Several connections, so that each thread gets one.
fn assert_serves(lab: &Lab, url: &str) {
    for _ in 0..8 {
        let output = lab.curl(&format!("--insecure {url}"));
        assert!(
            output.stdout == content(1024),
            "{url}: {output:?} {}",
            log(lab)
        );
    }
}

#[test]
fn the_addresses_of_a_stack_change_their_forms() {
    for threads in ["1", "2"] {
        let lab = lab!(Carrier::Tap);
        let server = Configured::start(&lab, "\"10.78.0.7:80\"", threads);
        for (listen, scheme) in [
            ("\"tls:10.78.0.7:80\"", "https"),
            ("\"10.78.0.7:80\"", "http"),
            ("\"0.0.0.0:80\"", "http"),
            ("\":80\"", "http"),
            ("\"tls:10.78.0.7:80\", \":80\"", "https"),
            ("\"tls:0.0.0.0:80\"", "https"),
        ] {
            server.reload(listen, "reloaded");
            assert_serves(&lab, &format!("{scheme}://10.78.0.7:80/small"));
        }
        let log = log(&lab);
        assert!(!log.contains("cannot listen"), "{log}");
        assert!(!log.contains("not reloaded"), "{log}");
    }
}

#[test]
fn a_reload_with_an_address_that_cannot_be_opened_changes_nothing() {
    let lab = lab!(Carrier::Tap);
    let server = Configured::start(&lab, "\"10.78.0.7:80\"", "2");
    // More than the stack has room for.
    let many: Vec<_> = (1000..3000)
        .map(|port| format!("\"10.78.0.7:{port}\""))
        .collect();
    server.reload(&many.join(", "), "not reloaded");
    server.reload("\"tls:10.78.0.7:80\", \"10.78.0.7:80\"", "not reloaded");
    server.reload("\":80\", \"tls:0.0.0.0:80\"", "not reloaded");
    assert_serves(&lab, "http://10.78.0.7:80/small");
    server.reload("\"10.78.0.7:80\", \"10.78.0.7:1000\"", " reloaded");
    for port in [80, 1000] {
        assert_serves(&lab, &format!("http://10.78.0.7:{port}/small"));
    }
}

#[test]
fn a_new_process_is_refused_at_once() {
    let lab = lab!(Carrier::Tap);
    let server = Configured::start(&lab, "\"10.78.0.7:80\"", "1");
    server.signal(Signal::USR2);
    eventually(|| log(&lab).contains("not replaced, this process continues: "));
    let log = log(&lab);
    assert!(
        log.contains("a network stack (--dev) cannot be handed"),
        "{log}"
    );
    assert_serves(&lab, "http://10.78.0.7:80/small");
}
