//! Observing a server: limits reached, logs and metrics.
//!
//! | subject | file |
//! |---|---|
//! | the limits that clients and upstreams can reach: counters and log lines | `limit.rs` |
//! | counters and reports of a thread | `telemetry.rs` |
//! | the access log: fields and formats of a line | `access_log/` |
//! | logs written by their own thread: the access log and the program's log | `line_log/` |
//! | the metrics endpoint, and the connections that it keeps | `metrics/` |

pub(crate) mod access_log;
pub(crate) mod limit;
pub(crate) mod line_log;
pub(crate) mod metrics;
pub(crate) mod telemetry;
