//! Private network namespaces and links for tests and experiments. They need root.
//!
//! All of them are removed on drop, and so also when a test fails. A [`Namespace`] has no name; the kernel removes it
//! with everything in it even if the process is killed. A [`VethPair`] is in the namespace of the process, under names
//! that no other process uses.

mod namespace;
mod veth;

pub use namespace::{Entry, Namespace, connect};
pub use veth::VethPair;
