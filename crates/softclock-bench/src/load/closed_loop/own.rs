//! Closed-loop clients, so cheap that the server limits the throughput.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use super::{Outcome, Target};

pub(super) fn run(target: &Target<'_>, over: impl Fn() -> bool) -> io::Result<Outcome> {
    let mut clients = Clients::connect(target)?;
    let start = Instant::now();
    clients.run(over)?;
    Ok(Outcome {
        bytes: clients.bytes,
        elapsed: start.elapsed(),
        p50: None,
        p99: None,
        errors: 0,
    })
}

/// Requests the target once; returns the length of the response with its head. All responses must have this length.
///
/// # Errors
/// Those of the socket, and a response without status 200.
pub fn response_bytes(target: &Target<'_>) -> io::Result<usize> {
    measure_response(&TcpStream::connect(target.address)?, &request(target))
}

/// Returns the request of a client.
pub(in crate::load) fn request(target: &Target<'_>) -> Vec<u8> {
    let close = if target.keep_alive {
        ""
    } else {
        "Connection: close\r\n"
    };
    let path = target.path;
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{close}\r\n").into_bytes()
}

/// Connections that each have one request outstanding.
struct Clients {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    address: SocketAddr,
    keep_alive: bool,
    request: Vec<u8>,
    /// The length of every response, head and body.
    response_bytes: usize,
    /// The bytes read so far.
    bytes: u64,
}

struct Connection {
    stream: TcpStream,
    /// Bytes of the response that have not arrived.
    missing: usize,
}

impl Clients {
    /// Opens the connections, after one request that shows the length of a response.
    fn connect(target: &Target<'_>) -> io::Result<Self> {
        let mut clients = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            connections: Vec::with_capacity(target.connections),
            address: target.address,
            keep_alive: target.keep_alive,
            response_bytes: response_bytes(target)?,
            request: request(target),
            bytes: 0,
        };
        for index in 0..target.connections {
            let stream = clients.open(index)?;
            clients.connections.push(Connection { stream, missing: 0 });
        }
        Ok(clients)
    }

    /// Opens a connection and registers it as number `index`. Connecting blocks, but not for long over loopback.
    fn open(&self, index: usize) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let data = EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &stream, data, EventFlags::IN)?;
        Ok(stream)
    }

    /// Sends requests until `over` returns true.
    fn run(&mut self, over: impl Fn() -> bool) -> io::Result<()> {
        let mut events = Vec::with_capacity(self.connections.len());
        let mut buffer = vec![0; BUFFER_BYTES];
        for connection in &mut self.connections {
            connection.ask(&self.request, self.response_bytes)?;
        }
        while !over() {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&LOOK_UP),
            ) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result?,
            };
            for event in &events {
                let answered = self.read_and_ask(event.data.u64() as usize, &mut buffer);
                // At the end, errors are expected: the server may close connections first.
                if over() {
                    return Ok(());
                }
                answered?;
            }
        }
        Ok(())
    }

    /// Reads the available bytes; sends the next request if the response is complete.
    fn read_and_ask(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        let before = self.connections[index].missing;
        let answered = self.connections[index].read(buffer, self.keep_alive)?;
        self.bytes += (before - self.connections[index].missing) as u64;
        // The server has closed the connection after its response.
        if answered && !self.keep_alive {
            self.connections[index].stream = self.open(index)?;
        }
        if answered {
            self.connections[index].ask(&self.request, self.response_bytes)?;
        }
        Ok(())
    }
}

impl Connection {
    /// Sends a request. It always fits, because the send buffer is empty.
    fn ask(&mut self, request: &[u8], response_bytes: usize) -> io::Result<()> {
        self.missing = response_bytes;
        self.stream.write_all(request)
    }

    /// Returns whether the response is complete, and the connection closed if it is not to be reused.
    fn read(&mut self, buffer: &mut [u8], keep_alive: bool) -> io::Result<bool> {
        let read = match self.stream.read(buffer) {
            Ok(0) if self.missing == 0 && !keep_alive => return Ok(true),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            result => result?,
        };
        self.missing = self
            .missing
            .checked_sub(read)
            .ok_or_else(|| io::Error::other("a response is longer than the first"))?;
        Ok(self.missing == 0 && keep_alive)
    }
}

/// Sends one request; returns the length of the response, which must have status 200 and a Content-Length.
fn measure_response(mut stream: &TcpStream, request: &[u8]) -> io::Result<usize> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut response = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => response.extend_from_slice(&buffer[..read]),
        }
        if let Some(length) = response_length(&response)?
            && response.len() >= length
        {
            return Ok(length);
        }
    }
}

/// Returns the length of head and body, or `None` while the head is incomplete.
fn response_length(response: &[u8]) -> io::Result<Option<usize>> {
    let Some(head_bytes) = response.windows(4).position(|end| end == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&response[..head_bytes]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|length| length.trim().parse::<usize>().ok());
    match length {
        Some(length) if head.starts_with("http/1.1 200 ") => Ok(Some(head_bytes + 4 + length)),
        _ => Err(io::Error::other(format!("unexpected response: {head}"))),
    }
}

/// Larger than usual responses, so that one read takes all available bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// The time within which the first response must be complete.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time until `over` is checked again.
const LOOK_UP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_head_and_body() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(response_length(response).unwrap(), Some(response.len()));
        assert_eq!(response_length(&response[..20]).unwrap(), None);
        assert!(response_length(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").is_err());
    }
}
