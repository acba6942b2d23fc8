//! The server of *Event Delivery*, Figure 3: one thread, one loop, any number of connections. It sends back what it gets.
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
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
                    let stream = queue.add(stream);
                    let mut state = Readiness::NONE;
                    queue.declare_interest(&stream, Readiness::READABLE, Some(&mut state))?;
                    if !state.wakes_reader() || echo(&stream) {
                        connections.insert(stream.id(), stream);
                    }
                }
                listener.consumed(Readiness::READABLE);
            } else if connections
                .get(&event.source)
                .is_some_and(|stream| !echo(stream))
            {
                connections.remove(&event.source);
            }
        }
    }
}

/// False at the end of the connection.
fn echo(source: &Source<TcpStream>) -> bool {
    let (mut stream, mut buffer) = (&**source, [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(n) if stream.write_all(&buffer[..n]).is_err() => return false,
            Ok(_) => {}
            Err(error) => {
                source.consumed(Readiness::READABLE);
                return error.kind() == io::ErrorKind::WouldBlock;
            }
        }
    }
}
