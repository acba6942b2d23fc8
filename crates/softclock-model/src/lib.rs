//! TCP of `softclock-net` under a model checker, and against other implementations.
//!
//! - [`connection`]: a model for `stateright`. Two stacks with one connection, a network that delivers, loses, repeats
//!   and reorders segments, and owners that open, write, close and reset: all sequences of such steps up to a bound.
//! - [`host`]: a stack of softclock in virtual time.
//!
//! The crate is not published: its dependencies are those of tests. The tests are in `tests/`: `connection` searches
//! the model, `peers` exchanges streams with smoltcp and with the kernel.

#![forbid(unsafe_code)]

pub mod connection;
pub mod host;
