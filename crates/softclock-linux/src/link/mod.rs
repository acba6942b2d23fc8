//! Network links: interfaces as frames see them.
//!
//! - [`Link`]: an interface, by name and number; the host's addresses on it.
//! - [`Claim`]: the claim to a link, which one process has at a time.
//! - [`PacketSocket`]: its frames, by AF_PACKET.
//! - [`XdpSocket`]: its frames, by AF_XDP.
//! - [`Tap`]: a link of our own, whose frames we exchange with the host.
//! - [`Device`]: any of these three, for a link that is taken over.
//!
//! What gives frames of a link and takes frames for it has the same operations, whatever it goes by: `receive` hands over
//! up to [`BATCH`] frames that are there, `send` sends up to [`BATCH`] of them, in order, and `take_lost` counts what
//! was lost for want of room. None of them waits; the descriptor is readable when `receive` has something to do.

mod addresses;
mod buffer;
#[cfg(test)]
mod cable;
mod claim;
mod device;
mod packet_socket;
mod tap;
mod xdp_socket;

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, mem};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use softclock_wire::packet::Offload;

pub use buffer::{Buffer, Pool};
pub use claim::{Claim, ClaimError};
pub use device::{Device, DeviceError, DeviceFailure};
pub use packet_socket::PacketSocket;
pub use tap::Tap;
pub use xdp_socket::{Chunk, Copies, XdpError, XdpSettings, XdpSocket, XdpStep};

/// A frame that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received<B = Buffer> {
    /// The frame.
    pub bytes: B,
    /// What is left to do with it.
    pub offload: Offload,
    /// How long ago the kernel received it; zero if that is not known.
    pub age: Duration,
}

impl<B> Received<B> {
    /// The same frame in other memory.
    pub(crate) fn map<C>(self, into: impl FnOnce(B) -> C) -> Received<C> {
        Received {
            bytes: into(self.bytes),
            offload: self.offload,
            age: self.age,
        }
    }
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
        let speed = read_number(&self.sysfs().ok()?.join("speed"));
        speed.ok().filter(|&speed| speed > 0)
    }

    /// Whether no device is behind it. False if that is not known.
    pub fn is_virtual(&self) -> bool {
        self.sysfs().is_ok_and(|link| !link.join("device").exists())
    }

    /// One of the counts that the kernel keeps of it, such as `tx_dropped`.
    ///
    /// # Errors
    /// `NotFound`, `ENODEV` or `ENXIO` for links that are now in other namespaces, or if `/sys` shows another; those of
    /// reading it.
    pub(crate) fn statistic(&self, name: &str) -> io::Result<u64> {
        read_number(&self.sysfs()?.join("statistics").join(name))
    }

    /// Where `/sys` shows it. It may have been renamed, and its name be another's; and `/sys` may be another namespace's.
    fn sysfs(&self) -> io::Result<PathBuf> {
        let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let link = Path::new("/sys/class/net").join(netdevice::index_to_name(&any, self.index)?);
        match read_number(&link.join("ifindex"))? == u64::from(self.index) {
            true => Ok(link),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Whether the device, or what stands for one, takes tags of VLANs off frames that arrive, and tells them apart from
    /// the frames. False if that is not known.
    pub fn takes_tags_off(&self) -> bool {
        self.ethtool_flags()
            .is_ok_and(|flags| flags & ETH_FLAG_RXVLAN != 0)
    }

    fn ethtool_flags(&self) -> io::Result<u32> {
        let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let mut value = EthtoolValue {
            command: ETHTOOL_GFLAGS,
            data: 0,
        };
        // SAFETY: zero is valid for this structure of integers and pointers.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        let name = netdevice::index_to_name(&any, self.index)?;
        let place = &mut request.ifr_name[..libc::IFNAMSIZ - 1];
        for (to, from) in place.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request ends its name with zero and points to what this command reads and writes, which outlives it.
        match unsafe { libc::ioctl(any.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
            0 => Ok(value.data),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The links on top of this one: a bridge or bond that it is part of, VLANs, and others. Empty if that is not known.
    pub fn uppers(&self) -> Vec<Self> {
        let entries = self.sysfs().and_then(fs::read_dir);
        let names = entries.into_iter().flatten().filter_map(|entry| {
            let name = entry.ok()?.file_name();
            Some(name.to_str()?.strip_prefix("upper_")?.to_owned())
        });
        names.filter_map(|name| Self::named(&name).ok()).collect()
    }

    /// Queues in which it receives; 1 if that is not known.
    pub fn receive_queues(&self) -> usize {
        let queues = self
            .sysfs()
            .and_then(|link| fs::read_dir(link.join("queues")));
        let is_receiving = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"rx-"))
        };
        let count = queues.map_or(0, |queues| {
            queues.map(is_receiving).filter(|&is| is).count()
        });
        count.max(1)
    }
}

fn read_number(file: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    text.trim().parse().map_err(io::Error::other)
}

/// include/uapi/linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

const ETHTOOL_GFLAGS: u32 = 0x25;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
/// include/uapi/linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

#[cfg(test)]
mod tests {
    use super::cable::cable;
    use super::*;

    /// What is told of a link is not of another that has its name now.
    #[test]
    fn a_link_is_itself_under_another_name() {
        let [cable, other] = [cable!(), cable!()];
        let [link, _] = cable.links();
        let speed = link.speed_mbit();
        assert!(speed.is_some());
        cable.rename_first(&format!("{}x", link.name()), "up");
        other.rename_first(link.name(), "down");
        assert_eq!(Link::named(link.name()).unwrap().speed_mbit(), None);
        assert_eq!(link.speed_mbit(), speed);
        assert!(link.is_virtual() && link.takes_tags_off());
    }

    #[test]
    fn links_have_names() {
        let loopback = Link::named("lo").unwrap();
        assert_eq!((loopback.name(), loopback.exists()), ("lo", true));
        assert!(loopback.is_virtual());
        let error = Link::named("no-such-link").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
