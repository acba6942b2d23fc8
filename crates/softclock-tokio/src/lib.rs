//! Microsecond timers and paced UDP sockets for programs on tokio.
//!
//! tokio's timers have a resolution of a millisecond. This crate brings two things of softclock into a program that
//! stays on tokio:
//!
//! - [`sleep`], [`sleep_until`] and [`interval`] end tens of microseconds after their time, not at the next
//!   millisecond.
//! - [`UdpSocket`] sends datagrams at an even rate. They wait in a bounded queue; [`Pacing`] and [`Limits`] state the
//!   rate, the burst and the length of the queue. The rate may [change](UdpSocket::set_pacing) at any time.
//! - [`pacing`] has what that socket is made of, for sockets of other kinds, such as those of softclock-quinn.
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
//! and that of the task. With ten timers in a runtime of one thread, in microseconds at p50 and p99, and processor time
//! of an event (2 virtual processors, Linux 6.18; idle, and busy with messages in the same thread; `embed/timers` of
//! the measurements):
//!
//! | sleep | late | tokio's sleep late | processor time | of tokio's |
//! |---:|---:|---:|---:|---:|
//! | 100 us, idle | 33, 78 | 950, 1970 | 5.3 | 2.7 |
//! | 1 ms, idle | 37, 90 | 1050, 1110 | 7.9 | 3.0 |
//! | 100 us, busy | 61, 180 | 918, 1020 | 3.6 | 0.1 |
//! | 1 ms, busy | 90, 205 | 1020, 1180 | 8.4 | 0.5 |
//!
//! To measure your machine: `cargo run --release -p softclock-tokio --example lateness`.
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
