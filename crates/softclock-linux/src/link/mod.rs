//! Network interfaces at the level of Ethernet frames.
//!
//! - [`Link`]: an interface, by name and number, and the host's addresses on it.
//! - [`Claim`]: an exclusive claim to a link, held by one process at a time.
//! - [`PacketSocket`]: receives and sends frames by AF_PACKET.
//! - [`XdpSocket`]: receives and sends frames by AF_XDP.
//! - [`XdpChannels`]: receives frames by AF_XDP into a bounded channel for each endpoint.
//! - [`LongFrames`]: sends frames with pending segmentation beside AF_XDP.
//! - [`Tap`]: a TAP device, whose frames are exchanged with the host.
//! - [`HostNeighbors`]: the host's neighbors on a link, for a stack that shares the host's addresses.
//! - [`LinkMonitor`]: the end of a link, and changes of the host's addresses on it.
//! - [`DelayedInterrupts`]: a delay of a link's interrupts, undone also if the process is killed.
//! - [`Device`]: a link by AF_PACKET or AF_XDP, or a TAP device. Takes the link's frames from the host, or shares the
//!   link with it.
//!
//! The sockets and devices have the same operations: `receive` passes up to [`BATCH`] frames that have arrived to a
//! closure, `send` sends up to [`BATCH`] frames in order, and `take_lost` counts frames lost because a buffer was full.
//! None of them blocks; the descriptor is readable when `receive` has frames.
//!
//! The feature `experiments` adds `SharedXdpSocket`, an [`XdpSocket`] for receivers in several threads, and `Polling`,
//! with which the receivers of a queue drive its receive work, instead of interrupts.

mod addresses;
mod buffer;
#[cfg(test)]
mod cable;
mod claim;
mod device;
mod generic_netlink;
mod host;
mod interrupts;
mod long_frames;
mod monitor;
mod napi;
mod netlink;
mod packet_socket;
#[cfg(feature = "experiments")]
mod polling;
mod queue_count;
mod tap;
#[cfg(test)]
mod two;
mod xdp_device;
mod xdp_socket;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, mem};

use rustix::net::{AddressFamily, SocketType, netdevice, socket_with};
use softclock_wire::packet::Offload;

use crate::socket::NEW_SOCKET;
pub use buffer::{Buffer, Pool};
pub use claim::{Claim, ClaimError, DelayHolder};
pub use device::{Device, DeviceError, DeviceFailure};
pub use host::{HostNeighbors, reserve_port};
pub use interrupts::{DelayError, DelayMeans, DelayedInterrupts, InterruptDelay, InterruptDelays};
pub use long_frames::LongFrames;
pub use monitor::{LinkChange, LinkMonitor};
pub use packet_socket::PacketSocket;
#[cfg(feature = "experiments")]
pub use polling::{PollSettings, Poller, Polling};
pub use tap::Tap;
pub use xdp_device::{XdpDevice, XdpQueue};
#[cfg(feature = "experiments")]
pub use xdp_socket::SharedXdpSocket;
pub use xdp_socket::{
    ChannelSettings, Chunk, Copies, EndpointKey, Transport, XdpChannel, XdpChannels, XdpError,
    XdpFilter, XdpMemory, XdpSettings, XdpSocket, XdpStep,
};

/// A received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received<B = Buffer> {
    /// The frame, from the Ethernet header on.
    pub bytes: B,
    /// Checksum and segmentation that are still to be done by the sending link.
    pub offload: Offload,
    /// Time since the kernel received the frame; zero if unknown.
    pub age: Duration,
}

impl<B> Received<B> {
    /// Converts the memory of the frame.
    pub fn map<C>(self, into: impl FnOnce(B) -> C) -> Received<C> {
        Received {
            bytes: into(self.bytes),
            offload: self.offload,
            age: self.age,
        }
    }
}

/// Why a frame was received but cannot be passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The frame needs an offload that [`Offload`] cannot describe.
    UnknownOffload,
    /// The frame is longer than the receive buffer.
    TooLong,
}

/// The most frames that one `receive` or `send` handles.
pub const BATCH: usize = 32;

/// A network interface in this process's network namespace, identified by its index: renaming it does no harm.
#[derive(Clone, Debug)]
pub struct Link {
    name: String,
    index: u32,
}

impl Link {
    /// Looks an interface up by name, or by an alternative name (`ip link property add ... altname`). Then
    /// [`name`](Self::name) is the one that the kernel's tables show.
    ///
    /// # Errors
    /// `ENODEV` if no interface has this name.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use softclock_linux::link::Link;
    ///
    /// let loopback = Link::named("lo")?;
    /// assert!(loopback.exists() && loopback.is_virtual());
    /// assert!(Link::named("no-such-link").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn named(name: &str) -> io::Result<Self> {
        let any = any_socket()?;
        let index = netdevice::name_to_index(&any, name)?;
        Ok(Self {
            name: netdevice::index_to_name(&any, index)?,
            index,
        })
    }

    /// The kernel's number of the interface.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The interface's name at the time of the look-up. It may have been renamed since.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the interface still exists. Also true if that cannot be found out, as for want of descriptors.
    pub fn exists(&self) -> bool {
        let name = any_socket().and_then(|any| Ok(netdevice::index_to_name(&any, self.index)?));
        !name.is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV))
    }

    /// The speed that the driver reports, in Mbit/s. `None` for many virtual links.
    pub fn speed_mbit(&self) -> Option<u64> {
        let speed = read_number(&self.sysfs().ok()?.join("speed"));
        speed.ok().filter(|&speed| speed > 0)
    }

    /// The maximum transmission unit: the length in bytes of the longest packet in a frame, without the Ethernet
    /// header.
    ///
    /// # Errors
    /// `ENODEV` if the link was deleted or moved to another network namespace.
    pub fn mtu(&self) -> io::Result<u32> {
        // SAFETY: zero is valid for this structure of integers and pointers.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // SAFETY: this command uses no pointer.
        unsafe { self.ask(libc::SIOCGIFMTU, &mut request)? };
        // SAFETY: this command has filled in the MTU.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        u32::try_from(mtu).map_err(io::Error::other)
    }

    /// Sets the [MTU](Self::mtu). Disturbs the host's traffic: use it for links of this process's own.
    ///
    /// # Errors
    /// `InvalidInput` for a length that the link cannot have; `PermissionDenied` without CAP_NET_ADMIN; those of
    /// [`mtu`](Self::mtu).
    pub fn set_mtu(&self, bytes: u32) -> io::Result<()> {
        // SAFETY: zero is valid for this structure of integers and pointers.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        let bytes = i32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        request.ifr_ifru.ifru_mtu = bytes;
        // SAFETY: this command uses no pointer.
        unsafe { self.ask(libc::SIOCSIFMTU, &mut request) }
    }

    /// The Ethernet address of the link, which the host's frames carry as their source. Zeros for the loopback.
    ///
    /// # Errors
    /// Those of [`mtu`](Self::mtu); `Unsupported` for links without Ethernet addresses, such as tunnels.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use softclock_linux::link::Link;
    ///
    /// let loopback = Link::named("lo")?;
    /// assert_eq!(loopback.hardware_address()?, [0; 6]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hardware_address(&self) -> io::Result<[u8; 6]> {
        // SAFETY: zero is valid for this structure of integers and pointers.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // SAFETY: this command uses no pointer.
        unsafe { self.ask(libc::SIOCGIFHWADDR, &mut request)? };
        // SAFETY: this command has filled in the address.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        match address.sa_family {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => {
                let [a, b, c, d, e, f, ..] = address.sa_data.map(|byte| byte as u8);
                Ok([a, b, c, d, e, f])
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether the link is virtual: it has no hardware device. False if that cannot be found out.
    pub fn is_virtual(&self) -> bool {
        self.sysfs().is_ok_and(|link| !link.join("device").exists())
    }

    /// Reads one of the kernel's counters of the link, such as `tx_dropped`.
    ///
    /// # Errors
    /// `NotFound`, `ENODEV` or `ENXIO` if the link was moved to another network namespace, or `/sys` shows another
    /// namespace; those of reading the file.
    pub(crate) fn statistic(&self, name: &str) -> io::Result<u64> {
        read_number(&self.sysfs()?.join("statistics").join(name))
    }

    /// The link's directory in `/sys`. Looks the current name up and compares the index: the link may have been
    /// renamed, another link may have taken its old name, and `/sys` may show another namespace.
    fn sysfs(&self) -> io::Result<PathBuf> {
        let any = any_socket()?;
        let link = Path::new("/sys/class/net").join(netdevice::index_to_name(&any, self.index)?);
        match read_number(&link.join("ifindex"))? == u64::from(self.index) {
            true => Ok(link),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Whether the link strips VLAN tags from received frames and reports them beside the frames (`rx-vlan-offload` of
    /// ethtool(8)). False if that cannot be found out.
    pub fn strips_vlan_tags(&self) -> bool {
        self.ethtool_flags()
            .is_ok_and(|flags| flags & ETH_FLAG_RXVLAN != 0)
    }

    fn ethtool_flags(&self) -> io::Result<u32> {
        let mut value = EthtoolValue {
            command: ETHTOOL_GFLAGS,
            data: 0,
        };
        // SAFETY: this command uses this structure.
        unsafe { self.ask_ethtool((&raw mut value).cast())? };
        Ok(value.data)
    }

    /// Makes a request of ethtool.
    ///
    /// # Safety
    /// `data` points to the structure that its command, its first field, uses.
    unsafe fn ask_ethtool(&self, data: *mut libc::c_char) -> io::Result<()> {
        // SAFETY: zero is valid for this structure of integers and pointers.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        request.ifr_ifru.ifru_data = data;
        // SAFETY: the caller's promise.
        unsafe { self.ask(SIOCETHTOOL, &mut request) }
    }

    /// Makes a request of netdevice(7) about this link: all but its name is already in the structure.
    ///
    /// # Safety
    /// Pointers in the structure, as the command uses them, must be valid.
    unsafe fn ask(&self, command: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        let any = any_socket()?;
        let name = netdevice::index_to_name(&any, self.index)?;
        let place = &mut request.ifr_name[..libc::IFNAMSIZ - 1];
        for (to, from) in place.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: the name ends with zero; the caller has seen to the rest.
        match unsafe { libc::ioctl(any.as_raw_fd(), command, std::ptr::from_mut(request)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The links on top of this one: its bridge or bond, VLANs and others. Empty if they cannot be listed.
    pub fn uppers(&self) -> Vec<Self> {
        let entries = self.sysfs().and_then(fs::read_dir);
        let names = entries.into_iter().flatten().filter_map(|entry| {
            let name = entry.ok()?.file_name();
            Some(name.to_str()?.strip_prefix("upper_")?.to_owned())
        });
        names.filter_map(|name| Self::named(&name).ok()).collect()
    }
}

fn read_number(file: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    text.trim().parse().map_err(io::Error::other)
}

/// `struct ethtool_value` (include/uapi/linux/ethtool.h).
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

const ETHTOOL_GFLAGS: u32 = 0x25;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
/// include/uapi/linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// A socket for requests about links, for which any kind will do.
fn any_socket() -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, NEW_SOCKET, None);
    socket.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::cable::cable;
    use super::*;

    /// The properties of a renamed link are not those of another link that has taken its name.
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
        assert!(link.is_virtual() && link.strips_vlan_tags());
    }

    #[test]
    fn a_link_has_an_mtu_and_an_ethernet_address() {
        let cable = cable!();
        let [link, other] = cable.links();
        assert_eq!(link.mtu().unwrap(), 1500);
        cable.set(0, "mtu 1280 address 02:00:5e:10:00:fe");
        assert_eq!(link.mtu().unwrap(), 1280);
        assert_eq!(
            link.hardware_address().unwrap(),
            [2, 0, 0x5e, 0x10, 0, 0xfe]
        );
        assert_eq!(other.mtu().unwrap(), 1500);
        other.set_mtu(9000).unwrap();
        assert_eq!((link.mtu().unwrap(), other.mtu().unwrap()), (1280, 9000));
        for impossible in [0, 1 << 20, u32::MAX] {
            let error = other.set_mtu(impossible).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{impossible}");
        }
        drop(cable);
        assert!(link.mtu().is_err() && link.hardware_address().is_err());
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
