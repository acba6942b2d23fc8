//! An attacker's connections: plain TCP, and HTTP/2 over TLS with arbitrary frames.

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

use super::frames::{Answers, request};
use super::subject::Front;
use super::tally::Tally;

/// The target of an attack.
#[derive(Debug)]
pub struct Against<'a> {
    /// The server's addresses.
    pub front: &'a Front,
    /// The TLS configuration, which trusts the server's certificate.
    pub config: Arc<ClientConfig>,
    /// The attack's counts, and its end.
    pub tally: &'a Tally,
}

/// An HTTP/2 connection that sends arbitrary frames. It reads and discards the server's answers.
#[derive(Debug)]
pub struct Link<'a> {
    stream: TcpStream,
    tls: ClientConnection,
    tally: &'a Tally,
    /// Counts of the server's answers.
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

    /// Sends all bytes, unless the attack ends first.
    ///
    /// # Errors
    /// The server has ended the connection.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() && self.tally.goes_on() {
            // The writer accepts only as much as its buffer has room for.
            let taken = self.tls.writer().write(bytes)?;
            bytes = &bytes[taken..];
            self.turn(if taken == 0 { LOOK_UP } else { Duration::ZERO })?;
        }
        Ok(())
    }

    /// Sends and receives without blocking; if neither is possible, waits up to `wait`.
    ///
    /// # Errors
    /// The server has ended the connection.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let sent = self.flush()?;
        let received = self.receive()?;
        // The server announces the end before it closes: count the connection as ended by it.
        if self.answers.going_away {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !sent && !received && !wait.is_zero() {
            let mut flags = PollFlags::IN;
            // A writable socket would end the wait at once if there is nothing to write.
            flags.set(PollFlags::OUT, self.tls.wants_write());
            let wait = Timespec::try_from(wait).unwrap_or_default();
            poll(&mut [PollFd::new(&self.stream, flags)], Some(&wait))?;
        }
        Ok(())
    }

    /// Keeps this number of streams open until the attack ends: sends a request with this field block for each, and
    /// another for each stream that the server ends. Counts the requests.
    ///
    /// # Errors
    /// The server has ended the connection.
    pub fn keep_open(&mut self, streams: u64, block: &[u8]) -> io::Result<()> {
        let mut opened = 0;
        while self.tally.goes_on() {
            while opened < self.answers.ended + streams {
                let stream = u32::try_from(2 * opened + 1).map_err(io::Error::other)?;
                self.send(&request(stream, block))?;
                self.tally.units.add(1);
                opened += 1;
            }
            self.turn(LOOK_UP)?;
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

    /// Reads a bounded amount; returns whether there was any.
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

/// Opens one connection after another until the attack is over. A connection that the server ends is replaced after a
/// pause.
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

/// Opens a non-blocking connection from the attackers' address, with a receive buffer of `buffer` bytes.
///
/// # Errors
/// The server refuses or does not accept in time, or no descriptor is left.
pub fn open(address: SocketAddr, buffer: Option<usize>) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    if let Some(bytes) = buffer {
        // Before connecting, because the window is announced with the handshake.
        set_socket_recv_buffer_size(&socket, bytes)?;
    }
    bind(&socket, &SocketAddr::from((ATTACKERS, 0)))?;
    // The send timeout also bounds the time of connecting, which takes two minutes if the server's queue is full.
    set_socket_timeout(&socket, Timeout::Send, Some(TO_CONNECT))?;
    connect(&socket, &address)?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The attackers' address on the loopback interface, which differs from the victim's.
pub const ATTACKERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The time that an attacker waits for a place in the server's accept queue.
const TO_CONNECT: Duration = Duration::from_millis(200);

/// The longest silence of the server in a handshake.
const PATIENCE: Duration = Duration::from_secs(1);

/// The interval at which a waiting link checks whether the attack is over.
const LOOK_UP: Duration = Duration::from_millis(20);

/// The time before the next connection.
const PAUSE: Duration = Duration::from_millis(100);
