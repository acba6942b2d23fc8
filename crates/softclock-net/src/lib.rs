//! A network stack whose receive side is lazy (*Lazy Receiver Processing*, Druschel and Banga, OSDI 1996).
//!
//! **Frames, times, keys and random numbers are arguments, and effects are return values:** this crate makes no system
//! calls, reads no clock, has no `unsafe` code, and needs no operating system (`no_std` with `alloc`). Malformed input
//! of any kind is a counted drop, never a panic.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod checksum;
pub mod drops;
pub mod ip;
pub mod link;
pub mod neighbors;
pub mod routes;
