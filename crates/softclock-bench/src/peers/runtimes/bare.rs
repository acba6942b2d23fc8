//! A loop of epoll without a runtime, the least that the kernel's calls cost.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::BUFFER;

/// Serves echo to all connections. The messages of a closed loop always fit in the sockets' buffers.
pub(super) fn echo(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut connections = Vec::new();
    let mut buffer = vec![0; BUFFER];
    let mut events = Vec::with_capacity(64);
    loop {
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            if event.data.u64() == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let data = EventData::new_u64(connections.len() as u64);
                epoll::add(&epoll, &stream, data, EventFlags::IN | EventFlags::ET)?;
                connections.push(Some(stream));
                continue;
            }
            let connection = &mut connections[event.data.u64() as usize];
            let Some(stream) = connection else { continue };
            match stream.read(&mut buffer) {
                Ok(length) if length > 0 => stream.write_all(&buffer[..length])?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => *connection = None,
            }
        }
    }
}

const LISTENER: u64 = u64::MAX;
