//! An upstream with adjustable delays: it answers `/wait/300` after 300 ms, any other path at once.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// An upstream in threads of this process, one per connection. It ends when it is dropped.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    over: AtomicBool,
    /// Requests without an answer.
    open: AtomicUsize,
}

impl Upstream {
    /// Starts to listen. The threads stay on the processor that this thread is pinned to.
    ///
    /// # Errors
    /// No port is free.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let acceptor = thread::spawn(move || accept(&listener, &shared));
        Ok(Self {
            address,
            state,
            acceptor: Some(acceptor),
        })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of requests that have begun to arrive and are not answered, on connections that the proxy has
    /// not closed.
    pub fn open_requests(&self) -> usize {
        self.state.open.load(Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.over.store(true, Relaxed);
        // Unblocks the acceptor.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    while let Ok((stream, _)) = listener.accept() {
        if state.over.load(Relaxed) {
            return;
        }
        let state = Arc::clone(state);
        let serve = move || {
            // The proxy may close a connection at any time.
            let _ = serve(stream, &state);
        };
        // If no thread can be started, the stream is dropped and the proxy sees a closed connection.
        let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(serve);
    }
}

fn serve(stream: TcpStream, state: &State) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while !reader.fill_buf()?.is_empty() {
        state.open.fetch_add(1, Relaxed);
        let answered = answer(&mut reader, state);
        state.open.fetch_sub(1, Relaxed);
        answered?;
    }
    Ok(())
}

fn answer(reader: &mut BufReader<TcpStream>, state: &State) -> io::Result<()> {
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    // Of the fields only the body's length matters.
    while line.trim_end() != "" {
        line.clear();
        reader.read_line(&mut line)?;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    // The request stays open until its whole body has arrived.
    let body = io::copy(&mut reader.take(length), &mut io::sink())?;
    if body < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if let Some(ms) = path.strip_prefix("/wait/") {
        wait(reader, ms.parse().unwrap_or(0), state)?;
    }
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    reader.get_mut().write_all(answer)
}

/// Waits for `ms` milliseconds, or until the proxy closes the connection or the upstream ends.
fn wait(reader: &mut BufReader<TcpStream>, ms: u64, state: &State) -> io::Result<()> {
    let mut left = Duration::from_millis(ms);
    while !left.is_zero() && !state.over.load(Relaxed) {
        let step = left.min(LOOK_UP);
        reader.get_ref().set_read_timeout(Some(step))?;
        match reader.get_ref().peek(&mut [0]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            // The next request has arrived already.
            Ok(_) => thread::sleep(step),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        left -= step;
    }
    reader.get_ref().set_read_timeout(None)
}

const STACK_BYTES: usize = 128 << 10;

const LOOK_UP: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_late_and_sees_clients_leave() {
        let upstream = Upstream::start().unwrap();
        let ask = |path: &str| {
            let mut stream = TcpStream::connect(upstream.address()).unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
            stream.write_all(request.as_bytes()).unwrap();
            stream
        };
        let mut quick = ask("/");
        let mut answer = [0; 15];
        quick.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        let slow = ask("/wait/100000");
        while upstream.open_requests() != 1 {
            thread::sleep(Duration::from_millis(1));
        }
        drop(slow);
        while upstream.open_requests() != 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
