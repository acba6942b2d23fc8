//! The server of *Event Delivery*, Figure 3: one thread with one loop serves any number of connections. It sends back
//! the data that it receives.
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::time::Duration;

use softclock::events::{EventQueue, Readiness, Source, SourceEvent};

const MAX_EVENTS: usize = 64;

fn main() -> io::Result<()> {
    let queue = EventQueue::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("echo server on {}", listener.local_addr()?);
    listener.set_nonblocking(true)?;
    let listener = queue.add(listener);
    queue.declare_interest(&listener, Readiness::READABLE, None)?;
    let mut connections = HashMap::new();
    let mut events = [SourceEvent::NONE; MAX_EVENTS];
    loop {
        let found = queue.get_next_event(&mut events, Some(Duration::from_secs(1)))?;
        if found == 0 && connections.is_empty() {
            return Ok(()); // idle for a second
        }
        for event in &events[..found] {
            if event.source == listener.id() {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    let mut connection = Connection::new(queue.add(stream));
                    let (stream, mut state) = (&connection.stream, Readiness::NONE);
                    queue.declare_interest(stream, Readiness::READABLE, Some(&mut state))?;
                    if !state.wakes_reader() || connection.go_on(&queue)? {
                        connections.insert(connection.stream.id(), connection);
                    }
                }
                listener.consumed(Readiness::READABLE);
            } else if let Some(connection) = connections.get_mut(&event.source)
                && !connection.go_on(&queue)?
            {
                connections.remove(&event.source);
            }
        }
    }
}

struct Connection {
    stream: Source<TcpStream>,
    buffer: [u8; 4096],
    /// The part of the buffer that was read and not yet sent back.
    unsent: Range<usize>,
}

impl Connection {
    fn new(stream: Source<TcpStream>) -> Self {
        Self {
            stream,
            buffer: [0; 4096],
            unsent: 0..0,
        }
    }

    /// Does all work that does not block, and declares the next interest. Returns false at the end of the connection.
    fn go_on(&mut self, queue: &EventQueue) -> io::Result<bool> {
        match self.echo() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // While the client does not read, no more data is read from it.
                let awaited = match self.unsent.is_empty() {
                    true => Readiness::READABLE,
                    false => Readiness::WRITABLE,
                };
                self.stream.consumed(awaited);
                queue.declare_interest(&self.stream, awaited, None)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Sends data back until the client ends the connection, or the next call would block.
    fn echo(&mut self) -> io::Result<()> {
        let mut stream = &*self.stream;
        loop {
            while !self.unsent.is_empty() {
                self.unsent.start += stream.write(&self.buffer[self.unsent.clone()])?;
            }
            match stream.read(&mut self.buffer)? {
                0 => return Ok(()),
                length => self.unsent = 0..length,
            }
        }
    }
}
