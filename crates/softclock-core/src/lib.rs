//! The algorithms of softclock as pure state machines: no system call, no clock, no `unsafe`, no
//! operating system. **Time is an argument.**
//!
//! - [`time`]: points in time and the measurement clock's tick.
//! - [`wheel`]: the timing wheel that holds pending events.
//! - [`soft_timers`]: the soft-timer facility: events fired at trigger states (*Soft Timers*, 3).
//! - [`trigger`]: the trigger states and what each kind of them contributes (5.2, 5.4).
//! - [`trace`]: the sequence of trigger states (5.3, 5.4).
//! - [`events`]: explicit event delivery: `declare_interest`, `get_next_event` (*Event Delivery*, 4 and 6).
//! - [`idle`]: what an idle thread does: halt, block or spin (5.1).
//! - [`pacing`]: rate-based clocking (4.1, 5.6) and the byte clock (*PSPacer/HT*, II-B); [`units`]: rates as `tc` writes them.
//! - [`wan`]: a wide-area link as a model: delay, loss and the like, by a seed.
//! - [`histogram`]: fixed-memory histograms of nanoseconds.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod events;
pub mod histogram;
pub mod idle;
pub mod pacing;
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
