//! Network namespaces and links of a test's or an experiment's own, which need root.
//!
//! What a test makes here goes when it is dropped, and so also when the test fails. A [`Namespace`] has no name and goes
//! even if the process is killed; everything in it goes with it. A [`VethPair`] is in the namespace of its process and has
//! names that no other process uses.

mod namespace;
mod veth;

pub use namespace::{Namespace, connect};
pub use veth::VethPair;
