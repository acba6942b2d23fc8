//! Microsecond timers and paced UDP sockets for programs on tokio.
//!
//! tokio's timers have a resolution of a millisecond. This crate brings two things of softclock into a program that
//! stays on tokio:
//!
//! - [`sleep`], [`sleep_until`] and [`interval`] end some microseconds after their time, not at the next millisecond.
//! - [`UdpSocket`] sends datagrams at an even rate. They wait in a bounded queue; [`Pacing`] and [`Limits`] state the
//!   rate, the burst and the length of the queue.
//!
//! # Example
//! ```
//! use softclock_tokio::{Pacing, UdpSocket};
//! use std::time::{Duration, Instant};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let start = Instant::now();
//! softclock_tokio::sleep(Duration::from_micros(100)).await;
//! assert!(start.elapsed() >= Duration::from_micros(100));
//!
//! // A frame of 30 datagrams, which leave over 15 ms.
//! let receiver = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
//! let pacing = Pacing::of_rate("20mbit".parse().expect("a rate"));
//! let sender = UdpSocket::bind("127.0.0.1:0", pacing).await?;
//! for _ in 0..30 {
//!     sender.send_to(&[0; 1200], receiver.local_addr()?).await?;
//! }
//! sender.flush().await;
//! assert_eq!(sender.counts().sent, 30);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//! One thread of the process ([`Timers::global`]) owns softclock's timing wheel, and waits for a kernel timer that is
//! set to the earliest event. It starts with the first timer. Tasks of any thread register and cancel timers under a
//! lock, in O(1); only a timer that is earlier than all others sets the kernel timer, which is one system call. When an
//! event is due, the thread wakes its task, or sends the datagrams that are due, without holding the lock. It sleeps
//! while nothing is due, and takes no time at all while no timer is pending.
//!
//! # Lateness
//! A sleep never ends early. How late it ends is the time that the kernel takes to wake two threads, that of the timers
//! and that of the task. On two virtual processors (Intel Xeon, Linux 6.18) that ten other processes kept busy, in
//! microseconds at the median of 2000 sleeps in a runtime of one thread:
//!
//! | sleep | late | tokio's sleep late | processor time of a sleep | of tokio's |
//! |---:|---:|---:|---:|---:|
//! | 50 us | 22 | 1070 | 21 | 34 |
//! | 100 us | 24 | 1021 | 21 | 32 |
//! | 250 us | 30 | 881 | 26 | 34 |
//! | 1 ms | 68 | 1125 | 38 | 34 |
//! | 3 ms | 84 | 1123 | 40 | 33 |
//!
//! At p99 all are late by a turn of the other processes, 4 ms and more. To measure your machine:
//! `cargo run --release -p softclock-tokio --example lateness`.
//!
//! # Cost
//! A sleep costs two wake-ups, one more than a sleep of tokio that is alone; many that end together share the first.
//! Registering one takes the lock, and a system call to set the kernel timer if no earlier one is pending. So use these
//! timers for waits that need microseconds, and tokio's for timeouts.
#![forbid(unsafe_code)]

pub mod pacing;
mod time;
mod timers;
mod udp;

pub use pacing::{Counts, Limits, PacedSender, Pacing};
pub use softclock_core::Rate;
pub use softclock_core::units::UnitError;
pub use time::{Interval, Sleep, interval, sleep, sleep_until};
pub use timers::Timers;
pub use udp::UdpSocket;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
pub struct Readme;
