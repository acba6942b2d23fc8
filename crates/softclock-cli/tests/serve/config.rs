//! The configuration file, and its changes on SIGHUP.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::client::Client;
use crate::h2_frames::{Http2, Outcome, get};
use crate::server::{Server, directory, noise, softclock, until};
use crate::tls;

fn check(file: &Path) -> Output {
    let command = &mut softclock();
    let command = command.args(["serve", "--check", "--config"]).arg(file);
    command.output().unwrap()
}

pub(crate) fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn start(file: &Path, options: &[&str]) -> Server {
    let mut command = softclock();
    let command = command.args(["serve", "--config"]).arg(file).args(options);
    Server::spawn(command)
}

#[test]
fn the_file_says_what_the_flags_would() {
    let directory = directory(&[("site/start.htm", b"started")]);
    let file = directory.path().join("softclock.toml");
    let site = directory.path().join("site");
    let text = format!(
        "directory = \"{}\"\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\nindex = \"start.htm\"\n",
        site.display()
    );
    fs::write(&file, text).unwrap();
    let good = check(&file);
    assert!(good.status.success(), "{good:?}");
    assert!(good.stderr.is_empty());

    let server = start(&file, &["--threads", "2"]);
    assert_eq!(server.addresses().len(), 2);
    for &address in server.addresses() {
        assert_eq!(Client::connect(address).get("/").text(), "started");
    }
}

#[test]
fn mistakes_are_told_with_file_and_line() {
    let directory = directory(&[]);
    let file = directory.path().join("softclock.toml");
    let name = file.display();
    for (text, expected) in [
        (
            "\nlisten = 8080\n",
            format!("{name}:2: invalid value '8080'"),
        ),
        (
            "lissen = \":1\"\n",
            format!("{name}:1: unknown setting 'lissen'; did you mean listen?"),
        ),
        ("threads = \n", format!("{name}:1: ")),
        (
            "directory = \"/does/not/exist\"\nlisten = \":1\"",
            "cannot serve /does/not/exist: no such".into(),
        ),
        (
            "directory = \"/\"\nlisten = \"tls::443\"",
            "--tls-cert".into(),
        ),
        (
            "directory = \"/\"\nlisten = [\":1\", \":1\"]",
            "it is given twice".into(),
        ),
        (
            "directory = \"/\"\nlisten = \":1\"\naccess-log = \"/does/not/exist\"",
            "no such directory".into(),
        ),
        (
            "",
            format!("{name}: no address to listen on; write listen = "),
        ),
        (
            "listen = \":1\"",
            format!("{name}: no directory to serve; write directory = "),
        ),
        (
            "listen = \":1\"\ndirectory = \"/\"\ntls-cert = \"c\"",
            format!("{name}: the following required arguments were not provided: --tls-key"),
        ),
        (
            "listen = \":1\"\ndirectory = \"/\"\nquiet = true\nverbose = 1",
            format!("{name}: "),
        ),
    ] {
        fs::write(&file, text).unwrap();
        let bad = check(&file);
        let told = String::from_utf8(bad.stderr).unwrap();
        assert_eq!(bad.status.code(), Some(1), "{told}");
        assert!(
            told.contains(&expected) && told.lines().count() == 1,
            "{told}"
        );
    }
}

/// The upstream may be on the command line, or in the file.
#[test]
fn a_certificate_without_a_key_is_a_mistake_of_its_place() {
    let directory = directory(&[]);
    let file = directory.path().join("proxy.toml");
    let upstream = "listen = \":1\"\nupstream = \"http://127.0.0.1:1\"\n";
    for (text, options, code) in [
        ("tls-cert = \"c\"\n", &[][..], 1),
        ("", &["--tls-cert", "c"], 2),
    ] {
        fs::write(&file, format!("{upstream}{text}")).unwrap();
        let mut command = softclock();
        let command = command.args(["proxy", "--check", "--config"]).arg(&file);
        let output = command.args(options).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains("--tls-key"), "{told}");
        let names_file = told.contains(&file.display().to_string());
        assert_eq!(names_file, code == 1, "{told}");
    }
}

#[test]
fn a_reload_changes_site_and_listeners_and_drops_no_connection() {
    for threads in ["1", "2"] {
        let content = noise(20_000_000);
        let directory = directory(&[("a/f", b"old"), ("a/big", &content), ("b/f", b"new")]);
        let file = directory.path().join("softclock.toml");
        let (stays, goes, comes) = (free_port(), free_port(), free_port());
        let write = |site: &str, second: SocketAddr| {
            let site = directory.path().join(site);
            let text = format!(
                "directory = \"{}\"\nlisten = [\"{stays}\", \"{second}\"]\n",
                site.display()
            );
            fs::write(&file, text).unwrap();
        };
        write("a", goes);
        let server = start(&file, &["-v", "--threads", threads]);
        let mut kept = Client::connect(stays);
        assert_eq!(kept.get("/f").text(), "old");
        let mut leaving = Client::connect(goes);
        assert_eq!(leaving.get("/f").text(), "old");
        let mut download = Client::connect(goes);
        download.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(download.head().status, 200);

        write("b", comes);
        server.signal(Signal::HUP);
        server.until_logged("reloaded");
        // Whatever the line says is so in all threads.
        for _ in 0..8 {
            assert_eq!(Client::connect(comes).get("/f").text(), "new");
        }
        until("the closed listener", || {
            TcpStream::connect(goes).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
        });
        assert_eq!(kept.get("/f").text(), "new");
        assert_eq!(
            leaving.get("/f").text(),
            "new",
            "the connection outlives its listener"
        );
        let mut body = vec![0; content.len()];
        let mut at = 0;
        while at < body.len() {
            at += download.read(&mut body[at..]).unwrap();
        }
        assert!(
            body == content,
            "a response in progress is that of the old site"
        );
    }
}

#[test]
fn no_request_fails_while_reloads_come() {
    let directory = directory(&[("a/f", b"one"), ("b/f", b"two")]);
    let file = directory.path().join("softclock.toml");
    let address = free_port();
    let write = |site: &str| {
        let site = directory.path().join(site);
        let text = format!(
            "directory = \"{}\"\nlisten = \"{address}\"\n",
            site.display()
        );
        // Rename the file into place: a reload must not read half of it.
        let new = directory.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &file).unwrap();
    };
    write("a");
    let server = start(&file, &["--threads", "2"]);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for round in 0..400 {
                let mut client = Client::connect(address);
                for _ in 0..=round % 3 {
                    let response = client.get("/f");
                    assert!(matches!(response.text(), "one" | "two"));
                }
            }
        });
        for site in ["b", "a"].into_iter().cycle() {
            if asking.is_finished() {
                break;
            }
            write(site);
            server.signal(Signal::HUP);
            thread::sleep(std::time::Duration::from_millis(2));
        }
        asking.join().unwrap();
    });
}

#[test]
fn a_bad_file_keeps_the_old_settings() {
    let directory = directory(&[("f", b"here")]);
    let file = directory.path().join("softclock.toml");
    let address = free_port();
    let good = format!(
        "directory = \"{}\"\nlisten = \"{address}\"\n",
        directory.path().display()
    );
    fs::write(&file, &good).unwrap();
    let server = start(&file, &[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for (text, told) in [
        ("threads = 0".to_owned(), ":1: invalid value '0'"),
        (
            format!("directory = \"/does/not/exist\"\nlisten = \"{address}\""),
            "no such directory",
        ),
        (
            format!("directory = \"/\"\nlisten = [\"127.0.0.1:0\", \"{taken}\"]"),
            "the port is taken",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let before = server.log().len();
        server.signal(Signal::HUP);
        server.until_logged(told);
        let log = server.log();
        let line = &log[before..];
        assert!(
            line.contains("the old settings stay") && line.lines().count() == 1,
            "{line}"
        );
        assert_eq!(Client::connect(address).get("/f").text(), "here");
    }
    fs::write(&file, good + "log-level = \"info\"\n").unwrap();
    server.signal(Signal::HUP);
    until("the next signal is logged", || {
        server.signal(Signal::HUP);
        server.log().contains("INFO signal")
    });
}

/// A thread at its limit of connections closes removed listeners late.
#[test]
fn an_address_returns_while_its_listener_closes() {
    for threads in ["1", "2"] {
        let directory = directory(&[("site/big", &noise(8_000_000)), ("site/f", b"x")]);
        let file = directory.path().join("softclock.toml");
        let (first, second) = (free_port(), free_port());
        let path = directory.path().join("socket");
        let write = |address: SocketAddr, path: &str| {
            let text = format!(
                "directory = \"{}\"\nlisten = [\"{address}\"{path}]\n",
                directory.path().join("site").display()
            );
            fs::write(&file, text).unwrap();
        };
        let with_path = format!(", \"unix:{}\"", path.display());
        write(first, &with_path);
        let options = ["-v", "--threads", threads, "--max-connections", threads];
        let server = start(&file, &options);
        let mut busy: Vec<_> = (0..16).map(|_| Client::connect(first)).collect();
        for client in &mut busy {
            client.send(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        }
        let reload = |times: usize| {
            server.signal(Signal::HUP);
            until("the reload", || {
                let log = server.log();
                assert!(!log.contains("not reloaded"), "{log}");
                log.matches(" reloaded").count() == times
            });
        };
        write(second, "");
        reload(1);
        write(first, &with_path);
        reload(2);
        drop(busy);
        assert_eq!(Client::connect(first).get("/f").text(), "x");
        until("the second is closed", || {
            TcpStream::connect(second).is_err()
        });
        let mut local = std::os::unix::net::UnixStream::connect(&path).unwrap();
        io::Write::write_all(&mut local, b"GET /f HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        io::Read::read_to_string(&mut local, &mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nx"), "{answer}");
    }
}

#[test]
fn listeners_are_exchanged_under_load() {
    let directory = directory(&[("f", b"x")]);
    let file = directory.path().join("softclock.toml");
    let (stays, first, second) = (free_port(), free_port(), free_port());
    let write = |other: SocketAddr| {
        let text = format!(
            "directory = \"{}\"\nlisten = [\"{stays}\", \"{other}\"]\n",
            directory.path().display()
        );
        // Rename the file into place: a reload must not read half of it.
        let new = directory.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &file).unwrap();
    };
    write(first);
    let server = start(&file, &["--threads", "2"]);
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for _ in 0..300 {
                assert_eq!(Client::connect(stays).get("/f").text(), "x");
            }
        });
        for address in [first, second] {
            let has_ended = &has_ended;
            scope.spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    let _ = TcpStream::connect(address);
                }
            });
        }
        for other in [second, first].into_iter().cycle() {
            if asking.is_finished() {
                break;
            }
            write(other);
            server.signal(Signal::HUP);
            thread::sleep(std::time::Duration::from_millis(1));
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    let log = server.log();
    assert!(!log.contains("not reloaded"), "{log}");
}

/// A file with settings of each kind, cut after each of its lines: an editor or a copy that is interrupted leaves the
/// beginning of a file.
#[test]
fn the_beginning_of_a_file_never_serves_what_it_does_not_name() {
    let directory = tls::with_site(&[("site/f", b"named")]);
    let path = |name: &str| directory.path().join(name);
    let site = path("site").display().to_string();
    let upstreams = [(); 2].map(|()| Server::start(Some(&path("site")), &["--index", "f"]));
    let [one, two] = upstreams.each_ref().map(Server::address);
    for (command, settings) in [
        ("serve", format!("index = \"f\"\ndirectory = \"{site}\"\n")),
        (
            "proxy",
            format!("tries = 1\nupstream = [\n  \"http://{one}\",\n  \"http://{two}\",\n]\n"),
        ),
    ] {
        let [plain, secure, metrics] = [(); 3].map(|()| free_port());
        let (log, file) = (path(&format!("{command}.log")), path("softclock.toml"));
        let text = format!(
            "# Settings.\n{settings}threads = 1\nlisten = [\n  \"{plain}\",\n  \"tls:{secure}\",\n]\n\
             tls-cert = \"{}\"\ntls-key = \"{}\"\nmetrics = [\n  \"{metrics}\",\n]\n\
             access-log = \"{}\"\nmax-connections = 100\n",
            path("cert.pem").display(),
            path("key.pem").display(),
            log.display(),
        );
        fs::write(&file, &text).unwrap();
        let server = Server::spawn(softclock().args([command, "-v", "--config"]).arg(&file));
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let mut in_force = &text[..];
        for end in std::iter::once(0).chain(ends) {
            let beginning = &text[..end];
            fs::write(&file, beginning).unwrap();
            // An unclosed list is not valid TOML.
            let has_closed = beginning.matches('[').count() == beginning.matches(']').count();
            let is_complete = has_closed && beginning.contains("\ntls-key = ");
            let check = (softclock()
                .args([command, "--check", "--config"])
                .arg(&file))
            .output();
            let check = check.unwrap();
            assert_eq!(check.status.success(), is_complete, "{check:?}");
            reload(&server, is_complete);
            if is_complete {
                in_force = beginning;
            }
            let mut named = vec![plain, secure];
            named.extend(in_force.contains("metrics").then_some(metrics));
            named.sort();
            until("the addresses that are named", || {
                listening(&server) == named
            });
            assert_eq!(Client::connect(plain).get("/").text(), "named", "{end}");
            let mut client = Http2::connect(secure, &path("cert.pem"));
            client.send(&get(1, "/"));
            assert_eq!(client.outcome(1), Outcome::Status(200), "{end}");
        }
        until("the access log", || {
            fs::read_to_string(&log).is_ok_and(|lines| lines.contains("GET / HTTP/2"))
        });
    }
}

/// Makes the server reload its file, and waits for success or failure.
fn reload(server: &Server, succeeds: bool) {
    let before = server.log().len();
    server.signal(Signal::HUP);
    let mut log = String::new();
    until("the reload", || {
        log = server.log()[before..].to_owned();
        log.contains("reloaded")
    });
    assert_eq!(!log.contains("the old settings stay"), succeeds, "{log}");
}

/// The IPv4 addresses on which a server listens.
fn listening(server: &Server) -> Vec<SocketAddr> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let sockets: Vec<_> = links
        .filter_map(|link| {
            let text = link.to_str()?.strip_prefix("socket:[")?;
            Some(text.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let mut all: Vec<SocketAddr> = table
        .lines()
        .filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let is_own = fields[3] == "0A" && sockets.iter().any(|own| own == fields[9]);
            let (ip, port) = fields[1].split_once(':')?;
            let ip = u32::from_str_radix(ip, 16).ok()?.to_ne_bytes();
            let port = u16::from_str_radix(port, 16).ok()?;
            is_own.then(|| (ip, port).into())
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn connections_to_removed_addresses_of_metrics_are_closed() {
    let directory = directory(&[]);
    let file = directory.path().join("softclock.toml");
    let write = |more: &str| {
        let site = directory.path().display();
        let text = format!("directory = \"{site}\"\nlisten = \"127.0.0.1:0\"\n{more}");
        fs::write(&file, text).unwrap();
    };
    write("metrics = \"127.0.0.1:0\"\n");
    let server = start(&file, &["-v"]);
    let mut scraper = Client::connect(server.metrics());
    assert_eq!(scraper.get("/metrics").status, 200);
    write("");
    reload(&server, true);
    // Ended from the server's side, without an answer.
    scraper.try_send(b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(matches!(scraper.read(&mut [0; 100]), Ok(0) | Err(_)));
}

#[test]
fn connections_in_use_get_changed_limits_and_timeouts() {
    let directory = directory(&[("f", b"x")]);
    let file = directory.path().join("softclock.toml");
    let write = |more: &str| {
        let site = directory.path().display();
        let text = format!("directory = \"{site}\"\nlisten = \"127.0.0.1:0\"\n{more}");
        fs::write(&file, text).unwrap();
    };
    write("");
    let server = start(&file, &["-v"]);
    let [mut idle, mut long] = [(); 2].map(|()| {
        let mut client = server.connect();
        assert_eq!(client.get("/f").text(), "x");
        client
    });
    write("idle-timeout = \"100ms\"\nmax-line = 300\n");
    reload(&server, true);
    assert_eq!(long.get(&format!("/{}", "x".repeat(400))).status, 414);
    assert_eq!(idle.get("/f").text(), "x");
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0);
}
