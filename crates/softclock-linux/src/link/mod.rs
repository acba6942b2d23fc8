//! Network links: interfaces as frames see them.
//!
//! - [`Link`]: an interface, by name and number.
//! - [`PacketSocket`]: its frames, by AF_PACKET.
//! - [`Tap`]: a link of our own, whose frames we exchange with the host.

mod packet_socket;
mod tap;

use std::fs;
use std::io;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

pub use packet_socket::{PacketSocket, Received};
pub use tap::Tap;

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

    /// One of the counts that the kernel keeps of it, such as `tx_dropped`.
    ///
    /// # Errors
    /// Those of reading it: `NotFound` for links of other namespaces.
    pub(crate) fn statistic(&self, name: &str) -> io::Result<u64> {
        let path = format!("/sys/class/net/{}/statistics/{name}", self.name);
        let text = fs::read_to_string(path)?;
        text.trim().parse().map_err(io::Error::other)
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
