//! What a server tells of itself: limits that were reached, logs and metrics.
//!
//! | what | file |
//! |---|---|
//! | the limits that clients and upstreams can reach: counters and log lines | `limit.rs` |
//! | counters of a thread, and what it reports | `telemetry.rs` |
//! | the access log: fields and format of a line | `access_log/` |
//! | lines written by a thread of their own, for the access log and the program's log | `line_log/` |
//! | the metrics endpoint, and the connections that it keeps | `metrics/` |

pub(crate) mod access_log;
pub(crate) mod limit;
pub(crate) mod line_log;
pub(crate) mod metrics;
pub(crate) mod telemetry;
