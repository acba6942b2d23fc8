//! Network links: interfaces as frames see them.
//!
//! - [`Link`]: an interface, by name and number.
//! - [`PacketSocket`]: its frames, by AF_PACKET.
//!
//! What gives frames of a link and takes frames for it has the same operations, whatever it goes by: `receive` hands over
//! up to [`BATCH`] frames that are there, `send` sends up to [`BATCH`] of them, in order, and `take_lost` counts what
//! was lost for want of room. None of them waits; the descriptor is readable when `receive` has something to do.

#[cfg(test)]
mod cable;
mod packet_socket;

use std::fs;
use std::io;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use softclock_core::packet::Offload;

pub use packet_socket::PacketSocket;

/// A frame that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    /// The frame.
    pub bytes: &'a [u8],
    /// What is left to do with it.
    pub offload: Offload,
    /// How long ago the kernel received it; zero if that is not known.
    pub age: Duration,
}

/// Why a frame that arrived is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// What it leaves to the link has no name here.
    UnknownOffload,
    /// It is longer than there is room.
    TooLong,
}

/// Frames that are received or sent in a row, at most.
pub const BATCH: usize = 32;

/// A network interface of this process' network namespace.
#[derive(Clone, Debug)]
pub struct Link {
    name: String,
    index: u32,
}

impl Link {
    /// The interface of this name.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn named(name: &str) -> io::Result<Self> {
        let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let index = netdevice::name_to_index(&any, name)?;
        Ok(Self {
            name: name.into(),
            index,
        })
    }

    /// What the kernel calls it by.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Its name when it was looked up.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is still there.
    pub fn exists(&self) -> bool {
        let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None);
        any.is_ok_and(|any| netdevice::index_to_name(&any, self.index).is_ok())
    }

    /// What its driver says of its speed, in Mbit/s. Many virtual links say nothing.
    pub fn speed_mbit(&self) -> Option<u64> {
        let text = fs::read_to_string(format!("/sys/class/net/{}/speed", self.name)).ok()?;
        text.trim().parse().ok().filter(|&speed| speed > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_names() {
        let loopback = Link::named("lo").unwrap();
        assert_eq!((loopback.name(), loopback.exists()), ("lo", true));
        let error = Link::named("no-such-link").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
