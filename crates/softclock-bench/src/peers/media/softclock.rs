//! Tasks with intervals, and tasks of connections, on softclock's runtime.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;

use softclock::{Builder, interval, sleep_until, spawn_local};

use super::super::runtimes::softclock::accept_echo;
use super::{LEAD, Streams, packet};

pub(super) fn send(
    runtime: &Builder,
    streams: Streams,
    socket: UdpSocket,
    address: SocketAddr,
) -> io::Result<()> {
    runtime.build()?.block_on(async {
        let socket = Rc::new(socket);
        let begin = softclock::now() + LEAD;
        for stream in 0..streams.count {
            let socket = socket.clone();
            drop(spawn_local(async move {
                sleep_until(begin + streams.period * stream / streams.count).await;
                let mut ticks = interval(streams.period);
                loop {
                    ticks.tick().await;
                    let _ = softclock::system_call(|| socket.send(&packet(stream)));
                }
            }));
        }
        accept_echo(address).await
    })
}
