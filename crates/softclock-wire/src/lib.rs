//! Packets as bytes: parses, filters, segments and measures them.
//!
//! **Packets and times are arguments:** this crate makes no system calls, reads no clock, has no `unsafe` code, and
//! needs no operating system (`no_std` with `alloc`).
//!
//! - [`packet`]: headers of packets, filters on them, segmentation and checksums.
//! - [`capture`]: reads packets from captures in the formats pcap and pcapng, and writes pcapng.
//! - [`burstiness`]: measures how bursty traffic is: the virtual bottleneck queue (*PSPacer/HT*, section III-A),
//!   trains, gaps and peaks.
//!
//! Times, rates and histograms are types of `softclock-core`.
//!
//! # Example
//! Counts the frames of a UDP flow that wait at a bottleneck of 100 Mbit/s:
//! ```
//! use std::time::Duration;
//!
//! use softclock_core::Instant;
//! use softclock_wire::burstiness::{Burstiness, Options};
//! use softclock_wire::packet::{Filter, Headers};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let flow: Filter = "proto udp dport 5001".parse()?;
//! let mut burstiness = Burstiness::new(&Options {
//!     rate: Some("100mbit".parse()?),
//!     line: None,
//!     train_gap: Duration::from_micros(10),
//!     windows: vec![Duration::from_millis(1)],
//! });
//!
//! let mut frame = [0; 1500];
//! frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes()); // Ethernet carries IPv4,
//! frame[14] = 0x45; // with a header of 20 bytes,
//! frame[23] = 17; // and that carries UDP
//! frame[36..38].copy_from_slice(&5001_u16.to_be_bytes()); // to port 5001.
//!
//! // A frame takes 120 us to leave. The second one arrives before the first has left, the third long after.
//! for at_us in [0, 50, 1_000] {
//!     if flow.matches(&Headers::of_frame(&frame)) {
//!         burstiness.on_packet(Instant::from_ns(at_us * 1_000), frame.len() as u32);
//!     }
//! }
//! assert_eq!(burstiness.volume().packets(), 3);
//! assert_eq!(burstiness.queue().map(|queue| queue.max.packets), Some(2));
//! # Ok(())
//! # }
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod burstiness;
pub mod capture;
pub mod packet;

pub use burstiness::Burstiness;
