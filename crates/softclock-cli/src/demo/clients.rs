//! Clients that send the next request as soon as a response is complete. They are cheap, so that the server is the
//! bottleneck.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

struct Client {
    stream: TcpStream,
    /// Bytes of the response that have not arrived yet.
    missing: usize,
}

/// Keeps the server at `address` busy until `stop` is set. From then on the server may refuse and close connections,
/// which is no error.
pub(super) fn run(address: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let result = keep_busy(address, stop);
    if stop.load(Relaxed) { Ok(()) } else { result }
}

fn keep_busy(address: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let response_bytes = response_bytes(address)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut clients = Vec::with_capacity(CLIENTS);
    for index in 0..CLIENTS {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let data = EventData::new_u64(index as u64);
        epoll::add(&epoll, &stream, data, EventFlags::IN)?;
        let mut client = Client { stream, missing: 0 };
        // The first request of each connection; later ones follow a response.
        client.ask(response_bytes)?;
        clients.push(client);
    }
    let mut events = Vec::with_capacity(CLIENTS);
    let mut buffer = vec![0; 64 << 10];
    while !stop.load(Relaxed) {
        events.clear();
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&epoll, room, Some(&LOOK_UP)) {
            Err(rustix::io::Errno::INTR) => continue,
            result => result?,
        };
        for event in &events {
            let client = &mut clients[event.data.u64() as usize];
            if client.read(&mut buffer)? {
                client.ask(response_bytes)?;
            }
        }
    }
    Ok(())
}

impl Client {
    /// Sends a request. The send buffer is empty, so one write takes all of it.
    fn ask(&mut self, response_bytes: usize) -> io::Result<()> {
        self.missing = response_bytes;
        self.stream.write_all(REQUEST)
    }

    /// Reads available bytes; returns whether the response is complete.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.stream.read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            result => {
                self.missing = self.missing.saturating_sub(result?);
                Ok(self.missing == 0)
            }
        }
    }
}

/// Sends one request, to learn the length of the responses: all are equal.
fn response_bytes(address: SocketAddr) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    let mut response = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => response.extend_from_slice(&buffer[..read]),
        }
        if let Some(bytes) = length_of(&response)
            && response.len() >= bytes
        {
            return Ok(bytes);
        }
    }
}

/// Length of head and body; `None` while the head is incomplete.
fn length_of(response: &[u8]) -> Option<usize> {
    let head = response.windows(4).position(|end| end == b"\r\n\r\n")?;
    let fields = String::from_utf8_lossy(&response[..head]).to_ascii_lowercase();
    let body = fields
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))?;
    Some(head + 4 + body.trim().parse::<usize>().ok()?)
}

const REQUEST: &[u8] = b"GET /style.css HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Connections; enough that the server always finds a request waiting.
const CLIENTS: usize = 32;

/// Time limit of the first response.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest wait before checking `stop` again.
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
        assert_eq!(length_of(response), Some(response.len()));
        assert_eq!(length_of(&response[..20]), None);
    }
}
