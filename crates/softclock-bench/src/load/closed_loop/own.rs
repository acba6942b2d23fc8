//! Closed-loop clients: cheap, so that it is the server that limits the throughput.

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
        p99: None,
        errors: 0,
    })
}

/// The length of a response, head included: the same each time. Asks once.
///
/// # Errors
/// Those of the socket, and a response that is no success.
pub fn response_bytes(target: &Target<'_>) -> io::Result<usize> {
    measure_response(&TcpStream::connect(target.address)?, &request(target))
}

fn request(target: &Target<'_>) -> Vec<u8> {
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
    /// Head and body: the same for every request.
    response_bytes: usize,
    /// What was read.
    bytes: u64,
}

struct Connection {
    stream: TcpStream,
    /// Bytes of the response that have not come yet.
    missing: usize,
}

impl Clients {
    /// Connects, and asks once to learn how long a response is.
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

    /// A connection that is known as number `index`. Over loopback it does not wait.
    fn open(&self, index: usize) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let data = EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &stream, data, EventFlags::IN)?;
        Ok(stream)
    }

    /// Asks and asks until it is over.
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
                // The server may close while it ends.
                if over() {
                    return Ok(());
                }
                answered?;
            }
        }
        Ok(())
    }

    /// Reads what has come; asks again if the response is complete.
    fn read_and_ask(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        let before = self.connections[index].missing;
        let answered = self.connections[index].read(buffer, self.keep_alive)?;
        self.bytes += (before - self.connections[index].missing) as u64;
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
    /// The send buffer is empty, so that it takes all of a request.
    fn ask(&mut self, request: &[u8], response_bytes: usize) -> io::Result<()> {
        self.missing = response_bytes;
        self.stream.write_all(request)
    }

    /// Whether the response is complete, and the connection closed unless it is to be kept.
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

/// Asks once and gives the length of the response, which must be a success with a Content-Length.
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

/// Of head and body; `None` while the head is not complete.
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

/// Larger than a response, so that one read takes all that is there.
const BUFFER_BYTES: usize = 64 << 10;

/// How long the first response may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to notice the end.
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
