//! A stack of softclock as a host with one address, 10.0.0.`number`.

use core::net::SocketAddr;

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
    let prefix = format!("10.0.0.{number}/24").parse().expect("a prefix");
    let routes = Routes::new(vec![prefix], vec![]).expect("a route");
    Stack::new(settings, routes, HashKey([number.into(), key]))
}

/// The link address of a host.
pub const fn link_address(number: u8) -> LinkAddress {
    LinkAddress([2, 0, 0, 0, 0, number])
}

/// A port of a host.
pub fn socket(number: u8, port: u16) -> SocketAddr {
    ([10, 0, 0, number], port).into()
}
