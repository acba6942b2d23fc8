//! One loop of epoll for connections and for packets that are due.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use softclock_linux::readiness::{Mechanism, Poller, ReadyEvent, Timeout, TimerFd, Token};

use super::{Schedule, Streams};

/// The means by which a wait ends when a packet is due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// A timer descriptor, set when another packet is the next.
    Timerfd,
    /// The wait's own limit.
    Timeout,
}

pub(super) fn send(
    streams: Streams,
    socket: &UdpSocket,
    address: SocketAddr,
    wake: Wake,
) -> io::Result<()> {
    softclock_linux::clock::set_timer_slack_ns(1)?;
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let timer = TimerFd::new()?;
    let mut poller = Poller::with_mechanism(Mechanism::Epoll)?;
    poller.add(listener.as_fd(), LISTENER)?;
    poller.add_for_reading(timer.as_fd(), TIMER)?;
    let mut connections = HashMap::new();
    let mut buffer = vec![0; 8192];
    let mut events: Vec<ReadyEvent> = Vec::new();
    let mut schedule = Schedule::new(streams);
    let mut armed = None;
    while let Some(due) = schedule.next() {
        let rest = due.saturating_duration_since(Instant::now());
        let timeout = match wake {
            Wake::Timerfd => {
                if armed != Some(due) {
                    timer.set(rest);
                    armed = Some(due);
                }
                Timeout::Never
            }
            Wake::Timeout => Timeout::After(rest),
        };
        events.clear();
        poller.wait(timeout, &mut events)?;
        schedule.send_due(socket);
        for event in &events {
            match event.token {
                // Setting it again ends its readiness.
                TIMER => {}
                LISTENER => {
                    while let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(true)?;
                        stream.set_nodelay(true)?;
                        let token = Token(stream.as_raw_fd() as u64);
                        poller.add(stream.as_fd(), token)?;
                        connections.insert(token.0, stream);
                    }
                }
                Token(connection) => {
                    let is_open = connections
                        .get(&connection)
                        .is_some_and(|stream| echo(stream, &mut buffer));
                    if !is_open {
                        connections.remove(&connection);
                    }
                }
            }
            schedule.send_due(socket);
        }
    }
    Ok(())
}

/// Sends back the bytes that have arrived. Returns false at the end of the stream. The messages of this experiment
/// always fit in the socket's buffer.
fn echo(mut stream: &TcpStream, buffer: &mut [u8]) -> bool {
    match stream.read(buffer) {
        Ok(0) => false,
        Ok(length) => stream.write_all(&buffer[..length]).is_ok(),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

const LISTENER: Token = Token(u64::MAX);
const TIMER: Token = Token(u64::MAX - 1);
