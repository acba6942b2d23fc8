//! A stack of softclock as a host with two addresses, 10.0.0.`number` and fd00::`number`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use softclock_net::demux::HashKey;
use softclock_net::link::LinkAddress;
use softclock_net::routes::Routes;
use softclock_net::stack::{Settings, Stack};

/// A stack whose frames are vectors.
pub type Host = Stack<Vec<u8>>;

/// A host with the defaults, changed by `change`.
///
/// ```
/// let host = softclock_model::host::host(1, 7, |settings| settings.mtu = 576);
/// assert_eq!(host.tcp_memory(), 0);
/// ```
///
/// # Panics
/// If `change` makes settings that contradict each other.
pub fn host(number: u8, key: u64, change: impl FnOnce(&mut Settings)) -> Host {
    let mut settings = Settings::new(link_address(number), 1500);
    change(&mut settings);
    let prefixes = [
        format!("10.0.0.{number}/24"),
        format!("fd00::{number:x}/64"),
    ];
    let prefixes = prefixes.map(|prefix| prefix.parse().expect("a prefix"));
    let routes = Routes::new(prefixes.into(), vec![]).expect("routes");
    Stack::new(settings, routes, HashKey([number.into(), key]))
}

/// The link address of a host.
pub const fn link_address(number: u8) -> LinkAddress {
    LinkAddress([2, 0, 0, 0, 0, number])
}

/// The version of IP that two hosts use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl Version {
    /// The address of a host.
    pub fn address(self, number: u8) -> IpAddr {
        match self {
            Self::V4 => address_v4(number).into(),
            Self::V6 => address_v6(number).into(),
        }
    }

    /// A port of a host.
    pub fn socket(self, number: u8, port: u16) -> SocketAddr {
        (self.address(number), port).into()
    }
}

/// The address of a host in IPv4.
pub const fn address_v4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

/// The address of a host in IPv6.
pub const fn address_v6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number as u16)
}
