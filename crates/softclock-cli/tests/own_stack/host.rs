//! A stack at the addresses of the host: the host keeps all ports but those that are served.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use softclock_testing::beside;

use crate::lab::{Carrier, Lab, PATIENCE, Server, content, eventually, lab};

/// The host's address on the link, and the one that its kernel routes by the client.
const HOST: &str = "10.78.0.2";
const FAR: &str = "192.0.2.1";

/// A command of the program at port 80 of the host's addresses.
fn command(lab: &Lab, arguments: &[&str]) -> Command {
    let mut program = lab.server.command(env!("CARGO_BIN_EXE_softclock"));
    program.args(["serve", "--dev", "host", "--address", "host"]);
    program.args(arguments).arg(lab.path(""));
    program
}

fn serve(lab: &Lab) -> Server {
    lab.start(command(lab, &["--listen", ":80"]))
}

/// Has a client elsewhere: an address behind the client's end of the link, which is the host's router.
fn add_far_client(lab: &Lab) {
    for words in [
        format!("ip addr add {FAR}/32 dev client"),
        "ip addr add fd78::1/64 dev client nodad".into(),
    ] {
        lab.client().run(&words).expect("a link");
    }
    for words in [
        "ip addr add fd78::2/64 dev host nodad",
        "ip route add default via 10.78.0.1",
    ] {
        lab.server.run(words).expect("a link");
    }
}

fn get(lab: &Lab, words: &str) -> Output {
    lab.curl(&format!("-g {words}"))
}

/// Asserts that the small file is served at the host's address.
fn assert_serves(lab: &Lab) {
    let output = get(lab, &format!("http://{HOST}/small"));
    assert!(output.stdout == content(1024), "{output:?}");
}

/// Sends a line to a listener of the host's kernel at this port, and reads it back.
fn assert_kernel_serves(lab: &Lab, port: u16) {
    let address: SocketAddr = (HOST.parse::<std::net::Ipv4Addr>().expect("one"), port).into();
    let listener = lab.server.inside(|| TcpListener::bind(address));
    let listener = listener.expect("a namespace").expect("it is free");
    let echo = thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut line = [0; 5];
        stream.read_exact(&mut line)?;
        stream.write_all(&line)
    });
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let mut stream = lab
        .client()
        .inside(connect)
        .expect("a namespace")
        .expect("it listens");
    stream.write_all(b"hello").expect("it is open");
    let mut line = [0; 5];
    stream.read_exact(&mut line).expect("it answers");
    assert_eq!(&line, b"hello");
    echo.join().expect("no panic").expect("it is open");
}

/// Whether the host's kernel refuses a connection to port 80.
fn is_refused(lab: &Lab) -> bool {
    let address: SocketAddr = format!("{HOST}:80").parse().expect("an address");
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let connected = lab.client().inside(connect).expect("a namespace");
    connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[test]
fn the_host_keeps_its_other_ports_and_answers_ping() {
    softclock_testing::require!("ping");
    let lab = lab!(Carrier::Xdp);
    add_far_client(&lab);
    let _server = serve(&lab);
    for url in [
        format!("http://{HOST}/small"),
        "http://[fd78::2]/small".into(),
        format!("--interface {FAR} http://{HOST}/small"),
    ] {
        let output = get(&lab, &url);
        assert!(output.stdout == content(1024), "{url}: {output:?}");
    }
    assert_kernel_serves(&lab, 22);
    let mut ping = lab.client().command("ping");
    let output = ping
        .args(["-c", "3", "-i", "0.2", "-W", "5", HOST])
        .output();
    let output = output.expect("nsenter is installed");
    assert!(output.status.success(), "{output:?}");
    // The host's kernel has sent nothing about the port that is not its own.
    let output = get(
        &lab,
        &format!("-o /dev/null -w %{{http_code}} http://{HOST}/large"),
    );
    assert_eq!(output.stdout, b"200", "{output:?}");
}

#[test]
fn the_neighbor_of_an_idle_connection_is_found_again() {
    let lab = lab!(Carrier::Xdp);
    let _server = serve(&lab);
    let address: SocketAddr = format!("{HOST}:80").parse().expect("an address");
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let mut open = lab
        .client()
        .inside(connect)
        .expect("a namespace")
        .expect("it listens");
    open.set_read_timeout(Some(PATIENCE)).expect("an option");
    for _ in 0..2 {
        open.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("it is open");
        let mut answer = Vec::new();
        let mut piece = [0; 2048];
        while !answer.ends_with(&content(1024)) {
            let count = open.read(&mut piece).expect("it answers");
            assert!(count > 0, "closed");
            answer.extend(&piece[..count]);
        }
        // As if the kernel had needed the memory.
        lab.server.run("ip neigh flush all").expect("a link");
    }
}

#[test]
fn a_killed_server_gives_the_port_back() {
    let lab = lab!(Carrier::Xdp);
    let before = lab.link_state();
    assert!(is_refused(&lab));
    let server = serve(&lab);
    assert_serves(&lab);
    beside(loads(&lab), || {
        (0..5).for_each(|_| assert_serves(&lab));
        server.kill();
    });
    eventually(|| lab.link_state() == before);
    assert!(is_refused(&lab));
    assert_kernel_serves(&lab, 80);
    let _again = serve(&lab);
    assert_serves(&lab);
}

/// Two clients that get a part of the large file again and again.
fn loads(lab: &Lab) -> impl Iterator<Item = impl FnMut() + Send> {
    let entries = [(); 2].map(|()| lab.client().entry().expect("a namespace"));
    entries.into_iter().map(|entry| {
        let mut entry = Some(entry);
        move || {
            if let Some(entry) = entry.take() {
                entry.enter().expect("a namespace");
            }
            // The server may be gone.
            let _ = get_a_part();
        }
    })
}

fn get_a_part() -> std::io::Result<()> {
    let address = SocketAddr::from(([10, 78, 0, 2], 80));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")?;
    stream.read_exact(&mut [0; 65_536])
}

/// The host removes its address while it is shared, and has it again.
#[test]
fn a_removed_address_is_reported_and_served_when_it_is_back() {
    let lab = lab!(Carrier::Xdp);
    let log = lab.path("log");
    let mut command = command(&lab, &["--listen", ":80"]);
    command.stderr(File::create(&log).expect("a directory"));
    let _server = lab.start(command);
    let count = |words: &str| {
        let text = fs::read_to_string(&log).expect("it is there");
        text.matches(words).count()
    };
    for times in 1..=2 {
        assert_serves(&lab);
        lab.server
            .run("ip addr del 10.78.0.2/24 dev host")
            .expect("a link");
        eventually(|| count("the host has removed 10.78.0.2:") == times);
        assert_eq!(count("the host has 10.78.0.2 again"), times - 1);
        // Others do not count.
        for verb in ["add", "del"] {
            let other = format!("ip addr {verb} 10.79.0.2/24 dev host");
            lab.server.run(&other).expect("a link");
        }
        lab.server
            .run("ip addr add 10.78.0.2/24 dev host")
            .expect("a link");
        eventually(|| count("the host has 10.78.0.2 again") == times);
    }
    assert_serves(&lab);
    let counts = ["the host has removed", "10.78.0.2 again", "10.79.0.2"].map(count);
    assert_eq!(counts, [2, 2, 0]);
}

#[test]
fn what_cannot_be_shared_is_refused_with_advice() {
    let lab = lab!(Carrier::Xdp);
    let address = format!("{HOST}:81");
    let busy = lab.server.inside(|| TcpListener::bind(&address));
    let _busy = busy.expect("a namespace").expect("it is free");
    for (arguments, advice) in [
        (
            &["--listen", ":80", "--mechanism", "packet"][..],
            "leave out --mechanism",
        ),
        (
            &["--listen", ":80", "--address", "10.78.0.7/24"],
            "--address host alone",
        ),
        (
            &["--listen", ":80", "--link-address", "02:00:00:00:00:01"],
            "--link-address",
        ),
        (&["--listen", "127.0.0.1:80"], "give --listen"),
        (&["--listen", ":81"], "10.78.0.2:81"),
    ] {
        let mut program = command(&lab, arguments);
        let output = program
            .stdin(Stdio::null())
            .output()
            .expect("nsenter is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(advice),
            "{arguments:?}: {errors}"
        );
    }
    for (dev, reason) in [
        ("tap:own", "only AF_XDP shares the host's addresses"),
        ("lo", "the host has no address on lo to share"),
    ] {
        let mut program = lab.server.command(env!("CARGO_BIN_EXE_softclock"));
        program.args([
            "serve",
            "--dev",
            dev,
            "--address",
            "host",
            "--listen",
            ":80",
        ]);
        let output = program
            .arg(lab.path(""))
            .output()
            .expect("nsenter is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(reason),
            "{dev}: {errors}"
        );
    }
}

#[test]
fn several_threads_serve_at_the_host_s_address() {
    let lab = lab!(Carrier::Xdp);
    let _server = lab.start(command(&lab, &["--listen", ":80", "--threads", "2"]));
    for _ in 0..10 {
        let output = get(&lab, &format!("http://{HOST}/small"));
        assert!(output.stdout == content(1024), "{output:?}");
    }
}

#[test]
fn datagrams_are_echoed_at_the_host_s_address() {
    let lab = lab!(Carrier::Xdp);
    for architecture in ["soft-lrp", "ni-lrp"] {
        let mut program = lab.server.command(env!("CARGO_BIN_EXE_softclock"));
        program.args(["echo", "--dev", "host", "--address", "host", "--quiet"]);
        let child = program.args(["--architecture", architecture]).spawn();
        let mut child = child.expect("nsenter is installed");
        let client = lab.client().inside(|| UdpSocket::bind("10.78.0.1:0"));
        let client = client.expect("a namespace").expect("an address");
        client.connect((HOST, 7)).expect("a route");
        client
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("an option");
        // The host refuses datagrams until the command has begun.
        eventually(|| {
            let _ = client.send(b"hello");
            let mut answer = [0; 16];
            client
                .recv(&mut answer)
                .is_ok_and(|count| &answer[..count] == b"hello")
        });
        child.kill().expect("our own child");
        child.wait().expect("our own child");
    }
}
