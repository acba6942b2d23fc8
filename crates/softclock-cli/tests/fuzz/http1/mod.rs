//! Clients of HTTP/1.

mod incoming;
mod malformed;
mod plan;
mod session;

pub(crate) use session::{describe, run};
