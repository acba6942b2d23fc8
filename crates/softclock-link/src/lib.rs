//! Frames between two links, each leaving when it should: what `softclock pace` and `softclock wan` run on.
//!
//! - [`Port`]: a link taken over, or a TAP device made for the host, by AF_PACKET or AF_XDP. [`PortSpec`] names it and
//!   claims it; [`Port::open_both`] opens the two ports of a bridge.
//! - [`Direction`]: the engine. It receives from one port, asks a [`Discipline`] when each frame leaves, and transmits
//!   on the other on time.
//! - [`Pacer`]: the discipline of paced [`Class`]es, on the byte clock of `softclock_core`.
//! - [`Emulator`]: the discipline of a wide-area link, by the model of `softclock_core::wan`.
//!
//! A bridge is two directions over the same two ports, on one thread and one [`softclock::Runtime`]. Disciplines are
//! pure: time is an argument, so that their tests run in virtual time. Errors are types that name the interface and
//! what failed; the words for them are the program's.
//!
//! A frame stays in the memory that it was received into until it has been sent, and that memory is used again; once
//! queues have grown to what they hold, nothing is allocated for a frame.
#![forbid(unsafe_code)]

mod direction;
mod emulator;
mod frame;
mod pacer;
mod port;

pub use direction::{Direction, DirectionReport};
pub use emulator::Emulator;
pub use frame::{Activity, Counts, Discipline, Frame, Next, Row};
pub use pacer::{Class, ClassError, Pacer, PacerOptions};
pub use port::{MechanismChoice, Opened, Port, PortError, PortSpec};
