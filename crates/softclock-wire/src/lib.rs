//! Packets as bytes, read and written without a system call, a clock or `unsafe`.
//!
//! - [`packet`]: headers of packets, filters on them, segmentation and checksums.
//! - [`capture`]: packets of captures in the formats pcap and pcapng.
//! - [`burstiness`]: how bursty traffic is: the virtual bottleneck queue (*PSPacer/HT*, III-A), trains, gaps, peaks.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod burstiness;
pub mod capture;
pub mod packet;

pub use burstiness::Burstiness;
