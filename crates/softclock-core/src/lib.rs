//! Pure algorithms of softclock: no system call, no clock, no `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod time;
pub use time::{Clock, Instant};

pub mod wheel;
pub use wheel::{TimerKey, TimerWheel};
