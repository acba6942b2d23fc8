//! Metrics in the text format of Prometheus, version 0.0.4, on listeners of their own.
//!
//! - [`endpoint`]: `GET /metrics` over HTTP.
//! - [`families`]: which metrics there are, and what they mean.
//! - [`places`]: which connections the endpoint keeps when there are too many.
//! - [`text`]: the format.

pub(crate) mod endpoint;
mod families;
mod places;
mod text;
