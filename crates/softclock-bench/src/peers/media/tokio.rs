//! Tasks with intervals, and tasks of connections, on tokio's runtime of the current thread.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use ::tokio::runtime::Builder;
use ::tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::super::runtimes::tokio::accept_echo;
use super::{LEAD, Streams, packet};

pub(super) fn send(streams: Streams, socket: UdpSocket, address: SocketAddr) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = Arc::new(socket);
        let begin = Instant::now() + LEAD;
        for stream in 0..streams.count {
            let socket = socket.clone();
            ::tokio::spawn(async move {
                let first = begin + streams.period * stream / streams.count;
                let mut ticks = interval_at(first, streams.period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
                loop {
                    ticks.tick().await;
                    let _ = socket.send(&packet(stream));
                }
            });
        }
        accept_echo(address).await
    })
}
