//! Forwards frames between two network interfaces and decides when each frame leaves. `softclock pace` and
//! `softclock wan` are built on this crate.
//!
//! - [`Port`]: an interface opened by AF_PACKET or AF_XDP, or a TAP device created for the host. [`PortSpec`] names and
//!   claims an interface; [`Port::open_both`] opens the two ports of a bridge.
//! - [`Direction`]: the engine. It receives from one port, asks a [`Discipline`] when each frame leaves, and transmits
//!   on the other port at that time.
//! - [`Pacer`]: the discipline of paced [`Class`]es, on the byte clock of `softclock_core`.
//! - [`Emulator`]: the discipline of a wide-area link, on the model in `softclock_core::wan`.
//!
//! A bridge is two directions over the same two ports, on one thread and one [`softclock::Runtime`]. Disciplines are
//! pure: time is an argument, so their tests run in virtual time. Errors are types that name the interface and the
//! failed step; the program chooses the words for them.
//!
//! A frame stays in the buffer it was received into until it has been sent, and the buffer is then reused. Once the
//! queues have reached their size, a frame causes no allocation.
//!
//! # Example
//! A pacer in virtual time: a frame of 1000 bytes takes 1 ms of a class of 8 Mbit/s.
//! ```
//! use std::time::Duration;
//!
//! use softclock_core::Instant;
//! use softclock_link::{Discipline, Frame, Next, Pacer, PacerOptions};
//! use softclock_linux::link::Pool;
//! use softclock_wire::packet::Offload;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = PacerOptions {
//!     link: "100mbit".parse()?,
//!     tolerance: Duration::ZERO,
//!     overhead_bytes: 0,
//! };
//! let now = Instant::ORIGIN;
//! let mut pacer = Pacer::new(&["rate 8mbit default".parse()?], options, now);
//! let pool = Pool::new();
//! for _ in 0..2 {
//!     let bytes = pool.copy_of(&[0; 1000]);
//!     let offload = Offload { checksum: None, segmentation: None };
//!     pacer.on_frame(Frame { bytes, offload, arrived: now }, now);
//! }
//! assert!(matches!(pacer.next(now), Next::Send(_)));
//! let Next::Wait(next) = pacer.next(now) else {
//!     return Err("the second frame has no time".into());
//! };
//! assert_eq!(next.since(now), Duration::from_millis(1));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod direction;
mod emulator;
mod frame;
mod pacer;
mod port;
mod tolerance;

pub use direction::{Direction, DirectionReport};
pub use emulator::{Emulator, EmulatorOptions};
pub use frame::{Activity, Discipline, Frame, NamedCounts, Next, Row};
pub use pacer::{Class, ClassError, Pacer, PacerOptions};
pub use port::{MechanismChoice, Opened, Port, PortError, PortSpec};
pub use tolerance::LATE_WAIT;
