//! The algorithms of softclock as pure state machines: no system call, no clock, no `unsafe`, no operating system.
//! **Time is an argument** of every method that needs it, so that tests and simulations run in virtual time.
//!
//! - [`time`]: points in time and the measurement clock's tick.
//! - [`wheel`]: the timing wheel that holds pending events.
//! - [`soft_timers`]: the soft-timer facility, which fires events at trigger states (*Soft Timers*, section 3).
//! - [`trigger`]: the kinds of trigger states, with statistics for each kind (sections 5.2 and 5.4).
//! - [`trace`]: a recording of the latest trigger states (sections 5.3 and 5.4).
//! - [`events`]: explicit event delivery: `declare_interest`, `get_next_event` (*Event Delivery*, sections 4 and 6).
//! - [`idle`]: whether an idle thread halts, blocks or spins (section 5.1).
//! - [`rhythm`]: when the next wait of a thread with regular waits ends.
//! - [`signalling`]: how a thread learns that a device has work: interrupts, polling, clocked looks and soft polls
//!   (section 4.2; *Clocked Interrupts*).
//! - [`pacing`]: rate-based clocking (sections 4.1 and 5.6) and the byte clock (*PSPacer/HT*, section II-B).
//! - [`units`]: rates, sizes and times in the notation of `tc`.
//! - [`wan`]: a model of a wide-area link with delay, jitter, rate and loss, reproducible from a seed.
//! - [`histogram`]: fixed-memory histograms of nanoseconds.
//!
//! The papers are *Soft Timers* (Aron and Druschel, TOCS 2000), *Event Delivery* (Banga, Mogul and Druschel: *A
//! Scalable and Explicit Event Delivery Mechanism for UNIX*, USENIX 1999), *Clocked Interrupts* (Chung, Traw and Smith:
//! *Event-signaling within Higher Performance Network Subsystems*, 1995) and *PSPacer/HT* (Takano et al., 2010).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod events;
pub mod histogram;
pub mod idle;
pub mod pacing;
pub mod rhythm;
pub mod signalling;
pub mod soft_timers;
pub mod time;
pub mod trace;
pub mod trigger;
pub mod units;
pub mod wan;
pub mod wheel;

pub use events::{Delivery, EventQueues, QueueId, Readiness, SourceEvent, SourceId};
pub use histogram::Histogram;
pub use idle::{IdleRule, IdleStep};
pub use soft_timers::{Due, EventCounts, FireWindow, SoftTimers};
pub use time::{Clock, Instant};
pub use trace::TriggerTrace;
pub use trigger::{StateStatistics, TriggerState, TriggerStatistics};
pub use units::Rate;
pub use wheel::{TimerKey, TimerWheel};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
pub struct Readme;
