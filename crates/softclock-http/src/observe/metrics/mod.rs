//! Metrics in the Prometheus text format, version 0.0.4, on separate listeners.
//!
//! - [`endpoint`]: `GET /metrics` over HTTP.
//! - [`families`]: the metrics of a server of HTTP, and their meanings.
//! - [`places`]: the connections that the endpoint keeps when there are too many.
//! - [`runtimes`]: the metrics that all programs have.
//! - [`signalling`]: the metrics of how threads learn of frames, and of the events of the kernel's sockets.
//! - [`stack`]: the metrics of a network stack of the program's own.
//! - [`text`]: the format.

pub(crate) mod endpoint;
pub(crate) mod families;
mod places;
mod runtimes;
mod signalling;
mod stack;
pub(crate) mod text;
