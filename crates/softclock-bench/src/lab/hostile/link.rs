//! An attacker's connections: plain ones, and HTTP/2 over TLS, which sends whatever frames it is given.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::time::Timespec;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::frames::Answers;
use super::subject::Front;
use super::tally::Tally;

/// What an attack is given.
#[derive(Debug)]
pub struct Against<'a> {
    /// The server.
    pub front: &'a Front,
    /// The settings of TLS that trust it.
    pub config: Arc<ClientConfig>,
    /// Counts, and tells when the attack is over.
    pub tally: &'a Tally,
}

/// A connection of HTTP/2 that does what no client should. It reads and forgets what the server answers.
#[derive(Debug)]
pub struct Link<'a> {
    stream: TcpStream,
    tls: ClientConnection,
    tally: &'a Tally,
    /// What the server has answered.
    pub answers: Answers,
}

impl<'a> Link<'a> {
    /// Connects and completes the handshake.
    ///
    /// # Errors
    /// The server refuses, is silent for a second, or does not speak HTTP/2.
    pub fn open(against: &Against<'a>) -> io::Result<Self> {
        let mut stream = open(against.front.tls, None)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(Arc::clone(&against.config), name);
        let mut tls = tls.map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        if tls.alpn_protocol() != Some(b"h2") {
            return Err(io::Error::other("the server does not speak HTTP/2"));
        }
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            tls,
            tally: against.tally,
            answers: Answers::default(),
        })
    }

    /// Sends all of it, unless the attack is over before.
    ///
    /// # Errors
    /// The server has ended the connection.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() && self.tally.goes_on() {
            // It takes as much as its buffer has room for.
            let taken = self.tls.writer().write(bytes)?;
            bytes = &bytes[taken..];
            self.turn(if taken == 0 { LOOK_UP } else { Duration::ZERO })?;
        }
        Ok(())
    }

    /// Sends and receives what is possible, and waits for more for so long if nothing is.
    ///
    /// # Errors
    /// The server has ended the connection.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let sent = self.flush()?;
        let received = self.receive()?;
        if self.answers.going_away {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !sent && !received && !wait.is_zero() {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, self.tls.wants_write());
            let wait = Timespec::try_from(wait).unwrap_or_default();
            poll(&mut [PollFd::new(&self.stream, flags)], Some(&wait))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<bool> {
        let mut any = false;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(sent) => self.tally.bytes.add(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            any = true;
        }
        Ok(any)
    }

    /// Reads a bounded amount.
    fn receive(&mut self) -> io::Result<bool> {
        match self.tls.read_tls(&mut self.stream) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        self.tls.process_new_packets().map_err(io::Error::other)?;
        let mut buffer = [0; 16 << 10];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.answers.take(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Has one connection after another until the attack is over: a new one soon after the server has ended the last.
pub fn again_and_again(
    against: &Against<'_>,
    conversation: impl Fn(&mut Link<'_>) -> io::Result<()>,
) {
    while against.tally.goes_on() {
        let result = Link::open(against).and_then(|mut link| conversation(&mut link));
        if result.is_err() && against.tally.goes_on() {
            against.tally.ended.add(1);
            thread::sleep(PAUSE);
        }
    }
}

/// A connection that does not block, from the attackers' address, with a receive buffer of so many bytes.
///
/// # Errors
/// The server refuses, or does not take it in time; or no descriptor is left.
pub fn open(address: SocketAddr, buffer: Option<usize>) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    if let Some(bytes) = buffer {
        // Before connecting, as the window is announced then.
        set_socket_recv_buffer_size(&socket, bytes)?;
    }
    bind(&socket, &SocketAddr::from((ATTACKERS, 0)))?;
    // Also the time of connecting: where a server's queue is full it would be two minutes.
    set_socket_timeout(&socket, Timeout::Send, Some(TO_CONNECT))?;
    connect(&socket, &address)?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Another address of the loopback interface than the victim's.
pub const ATTACKERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How long the kernel may keep an attacker waiting for a place in the server's queue.
const TO_CONNECT: Duration = Duration::from_millis(200);

/// How long the server may be silent in a handshake.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a link that waits looks whether the attack is over.
const LOOK_UP: Duration = Duration::from_millis(20);

/// Before the next connection.
const PAUSE: Duration = Duration::from_millis(100);
