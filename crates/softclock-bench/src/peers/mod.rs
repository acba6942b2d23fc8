//! Programs in other languages with the same workloads as softclock. Web servers and proxies are in
//! [`servers`](crate::servers).

pub mod libevent;
pub mod lock;
pub mod media;
pub mod program;
pub mod quic;
pub mod runtimes;
