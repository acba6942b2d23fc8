//! A thread that sleeps until the next packet is due.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::Instant;

use super::{Schedule, Streams};

pub(super) fn send(streams: Streams, socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    // Connections only show that the process runs.
    let _listener = TcpListener::bind(address)?;
    softclock_linux::clock::set_timer_slack_ns(1)?;
    let mut schedule = Schedule::new(streams);
    while let Some(due) = schedule.next() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        schedule.send_due(socket);
    }
    Ok(())
}
