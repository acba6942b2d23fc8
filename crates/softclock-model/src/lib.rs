//! TCP of `softclock-net` under a model checker, and against other implementations.
//!
//! - [`connection`]: a model for `stateright`. Two stacks with one connection, a network that delivers, loses, repeats
//!   and reorders segments, and owners that open, write, close and reset: all sequences of such steps up to a bound.
//! - [`smoltcp_peer`]: smoltcp as a host in virtual time, for differential fuzzing.
//! - [`end`]: two ends, softclock or not, and a path with faults between them.
//! - [`host`]: a stack of softclock as such a host.
//! - [`random`]: random numbers that a seed determines.
//!
//! The crate is not published: its dependencies are those of tests. The tests are in `tests/`.

#![forbid(unsafe_code)]

pub mod connection;
pub mod end;
pub mod host;
pub mod random;
pub mod smoltcp_peer;
