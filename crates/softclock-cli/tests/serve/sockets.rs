//! Sockets of the Unix family, and those that the service manager passes; notifications to it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use softclock_linux::socket::unix;

use crate::server::{Server, directory, noise, softclock, until};
use crate::successor::replace;

fn unix(path: &Path) -> String {
    format!("--listen=unix:{}", path.display())
}

fn ask(path: &Path, target: &str) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    write!(stream, "GET {target} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

#[test]
fn a_unix_socket_is_served_and_removed_at_the_end() {
    for threads in ["1", "3"] {
        let content = noise(3_000_000);
        let directory = directory(&[("site/big", &content)]);
        let path = directory.path().join("socket");
        // A socket file whose listener is gone.
        drop(UnixListener::bind(&path).unwrap());
        let site = directory.path().join("site");
        let options = [&unix(&path), "--socket-mode", "606", "--threads", threads];
        let mut server = Server::start(Some(&site), &options);
        let file = fs::metadata(&path).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o777, 0o606);
        for _ in 0..10 {
            let answer = ask(&path, "/big");
            assert!(answer.starts_with(b"HTTP/1.0 200 OK\r\n") && answer.ends_with(&content));
        }
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
        assert!(!path.exists());
    }
}

#[test]
fn a_path_in_use_is_left_alone() {
    let directory = directory(&[("file", b"kept")]);
    let used = directory.path().join("used");
    let _listener = UnixListener::bind(&used).unwrap();
    for path in [used, directory.path().join("file")] {
        let output = softclock().args(["serve", &unix(&path)]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            told.contains("another server uses the path") && told.lines().count() == 1,
            "{told}"
        );
        assert!(path.exists());
    }
    assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"kept");
}

#[test]
fn the_access_log_knows_local_clients() {
    let directory = directory(&[]);
    let path = directory.path().join("socket");
    let mut command = softclock();
    command
        .args(["serve", &unix(&path), "--access-log=-"])
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    until("the socket", || path.exists());
    ask(&path, "/");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let mut told = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert!(told.contains("unix: - - ["), "{told}");
}

/// The shell stands in for systemd: descriptor 3 is the socket, and the process has the number named.
#[test]
fn sockets_that_are_passed_are_served() {
    softclock_testing::require!("python3");
    let directory = directory(&[]);
    let path = directory.path().join("socket");
    let script = "\
import os, socket, sys
a = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()
b = socket.socket(socket.AF_UNIX); b.bind(sys.argv[2]); b.listen()
fds = [os.dup2(os.dup(s.fileno()), 10 + i) for i, s in enumerate([a, b])]
a.close(); b.close()
for i, fd in enumerate(fds): os.dup2(fd, 3 + i)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='2', LISTEN_FDNAMES='web:local')
os.execv(sys.argv[1], ['softclock', 'serve', '--threads', '2'] + sys.argv[3:])
";
    let program = env!("CARGO_BIN_EXE_softclock");
    let command = || {
        let mut command = Command::new("python3");
        let _ = fs::remove_file(&path);
        command.args(["-c", script, program]).arg(&path);
        command
    };
    let mut server = Server::spawn(command().args(["--listen", "systemd", "-v"]));
    let both = || {
        for _ in 0..5 {
            assert_eq!(server.connect().get("/").status, 200);
            assert!(ask(&path, "/").starts_with(b"HTTP/1.0 200"));
        }
    };
    both();
    let successor = replace(&server);
    both();
    successor.signal(Signal::TERM);
    successor.wait();
    assert_eq!(server.wait().code(), Some(0));
    assert!(path.exists(), "it is the service manager's");

    let server =
        Server::spawn(command().args(["--listen", "systemd:local", "--listen", "127.0.0.1:0"]));
    assert!(ask(&path, "/").starts_with(b"HTTP/1.0 200"));
    assert_eq!(server.addresses().len(), 1);

    let output = command()
        .args(["--listen", "systemd:other"])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("no such socket was passed") && told.lines().count() == 1,
        "{told}"
    );
}

#[test]
fn the_service_manager_is_notified() {
    let directory = directory(&[]);
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let next = || {
        let mut buffer = [0; 200];
        let len = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let mut command = softclock();
    let command = command.args(["serve", "--listen", "127.0.0.1:0"]);
    let mut server = Server::spawn(command.env("NOTIFY_SOCKET", &path));
    assert_eq!(next(), "READY=1");
    server.signal(Signal::HUP);
    assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next(), "READY=1");
    server.signal(Signal::TERM);
    assert_eq!(next(), "STOPPING=1");
    assert_eq!(server.wait().code(), Some(0));
}

/// Starts a server that listens at `listen`, with a configuration file that the returned closure writes.
fn configured(directory: &Path, listen: &str) -> (Server, impl Fn(&str)) {
    let file = directory.join("softclock.toml");
    let site = directory.join("site").display().to_string();
    let path = file.clone();
    let write = move |listen: &str| {
        let text = format!("directory = \"{site}\"\nlisten = {listen}\n");
        fs::write(&path, text).unwrap();
    };
    write(listen);
    let server = Server::spawn(softclock().args(["serve", "-v", "--config"]).arg(&file));
    (server, write)
}

#[test]
fn reloads_and_new_processes_change_the_mode_of_sockets() {
    let directory = directory(&[("site/f", b"x")]);
    let path = directory.path().join("socket");
    let listen = format!("[\"127.0.0.1:0\", \"unix:{}\"]", path.display());
    let (server, write) = configured(directory.path(), &listen);
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o660);
    write(&format!("{listen}\nsocket-mode = \"606\""));
    server.signal(Signal::HUP);
    server.until_logged("changed: operation");
    assert_eq!(mode(), 0o606);
    write(&format!("{listen}\nsocket-mode = \"640\""));
    let _successor = replace(&server);
    until("the new mode", || mode() == 0o640);
    assert!(ask(&path, "/f").ends_with(b"x"));
}

/// The server at the path accepts nothing, and its queue is full.
#[test]
fn a_reload_does_not_wait_for_the_server_at_a_path() {
    let directory = directory(&[("site/f", b"x")]);
    let path = directory.path().join("socket");
    let _hung = unix::listen(&path, 0o600, 0).unwrap();
    let mut clients = Vec::new();
    while let Ok(client) = unix::connect(&path) {
        clients.push(client);
    }
    let (server, write) = configured(directory.path(), "\"127.0.0.1:0\"");
    write(&format!("[\"127.0.0.1:0\", \"unix:{}\"]", path.display()));
    server.signal(Signal::HUP);
    server.until_logged("another server uses the path");
    assert_eq!(server.connect().get("/f").text(), "x");
    assert!(path.exists());
}
