//! Metrics in the Prometheus text format, version 0.0.4, on separate listeners.
//!
//! - [`endpoint`]: `GET /metrics` over HTTP.
//! - [`families`]: the metrics and their meanings.
//! - [`places`]: the connections that the endpoint keeps when there are too many.
//! - [`text`]: the format.

pub(crate) mod endpoint;
mod families;
mod places;
mod text;
