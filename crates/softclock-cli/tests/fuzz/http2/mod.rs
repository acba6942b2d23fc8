//! Clients of HTTP/2.

mod frames;
mod incoming;
mod malformed;
mod plan;
mod received;
mod session;
mod smuggling;

pub(crate) use session::{describe, run};
