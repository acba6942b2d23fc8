//! Frames of any content, sent at the client's interface below its kernel's stack.

use std::io;
use std::thread;
use std::time::Duration;

use softclock_linux::link::{Link, PacketSocket};
use softclock_wire::packet::Offload;

use crate::lab::Lab;

/// A socket of AF_PACKET on the client's interface.
pub(crate) struct Probe(PacketSocket);

impl Lab {
    /// Calls `f` with a probe in the client's namespace.
    pub(crate) fn with_probe<R: Send>(&self, f: impl FnOnce(&Probe) -> R + Send) -> R {
        let call = || {
            let link = Link::named("client").expect("the link is there");
            let socket = PacketSocket::open(&link, 1 << 20).expect("root may");
            f(&Probe(socket))
        };
        self.client().inside(call).expect("the namespace is there")
    }

    /// Sends frames from the client's interface, in order.
    pub(crate) fn inject(&self, frames: &[Vec<u8>]) {
        self.with_probe(|probe| frames.iter().for_each(|frame| probe.send(frame)));
    }
}

impl Probe {
    /// Sends a frame; waits while the link has no room.
    pub(crate) fn send(&self, frame: &[u8]) {
        loop {
            match self.0.send([(frame, &Offload::NONE)]) {
                Ok(1) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
                Err(error) => panic!("{} bytes: {error}", frame.len()),
            }
            thread::sleep(Duration::from_micros(50));
        }
    }
}

const ENOBUFS: i32 = 105;
