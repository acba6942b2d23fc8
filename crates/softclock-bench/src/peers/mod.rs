//! Programs in other languages that do what softclock does. Web servers and proxies are in [`servers`](crate::servers).

pub mod libevent;
pub mod program;
