//! The network layer: IPv4 and IPv6 with the protocols that belong to them.

pub mod arp;
pub mod ndisc;
