//! The counters of a serving thread, and its reports.

use std::cell::{Cell, RefCell};

use http::{Method, StatusCode};
use softclock::{Histogram, Statistics};

/// The counters of one thread.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    counts: RefCell<Counts>,
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Responses by method and by the class of their status.
    pub(crate) responses: [[u64; CLASSES.len()]; METHODS.len()],
    /// Bytes of bodies handed to connections.
    pub(crate) body_bytes: u64,
    /// Connections accepted.
    pub(crate) accepted: u64,
    /// TLS handshakes that failed or took too long.
    pub(crate) handshakes_failed: u64,
}

/// The state of a thread and its totals since the start.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) counts: Counts,
    pub(crate) open: usize,
    pub(crate) limit: usize,
    pub(crate) upstreams: Vec<UpstreamReport>,
    pub(crate) statistics: Statistics,
}

/// Totals of an upstream since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamCounts {
    /// Requests sent to it; each try counts.
    pub(crate) requests: u64,
    /// Requests that the upstream failed to answer.
    pub(crate) failures: u64,
    /// Requests that were tried again, there or elsewhere.
    pub(crate) retries: u64,
    /// Connections made.
    pub(crate) connections: u64,
}

/// The state of an upstream as one thread sees it, and its totals.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamReport {
    pub(crate) name: String,
    pub(crate) counts: UpstreamCounts,
    pub(crate) active: usize,
    pub(crate) idle: usize,
    pub(crate) is_up: bool,
    /// The time from the beginning of each attempt to the head of its response.
    pub(crate) response_times: Histogram,
}

impl Telemetry {
    pub(crate) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    pub(crate) fn on_response(&self, method: &Method, status: StatusCode, bytes: u64) {
        let mut counts = self.counts.borrow_mut();
        counts.responses[method_index(method)][class_index(status)] += 1;
        counts.body_bytes += bytes;
    }

    /// Counts the response to a request whose method is unknown because it could not be parsed.
    pub(crate) fn on_refused(&self, status: StatusCode) {
        self.counts.borrow_mut().responses[METHODS.len() - 1][class_index(status)] += 1;
    }

    pub(crate) fn on_accepted(&self) {
        self.counts.borrow_mut().accepted += 1;
    }

    pub(crate) fn on_handshake_failed(&self) {
        self.counts.borrow_mut().handshakes_failed += 1;
    }
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        let mine = self.responses.as_flattened_mut().iter_mut();
        mine.zip(other.responses.as_flattened())
            .for_each(|(mine, theirs)| *mine += theirs);
        self.body_bytes += other.body_bytes;
        self.accepted += other.accepted;
        self.handshakes_failed += other.handshakes_failed;
    }
}

/// Counts a request that this thread answers.
pub(crate) fn on_request() {
    REQUESTS.set(REQUESTS.get() + 1);
}

/// Returns the number of requests that this thread has answered, over all servers on it.
pub fn requests_answered() -> u64 {
    REQUESTS.get()
}

/// The methods that are counted separately. All others count as the last, since clients can invent any number of
/// methods.
pub(crate) const METHODS: [&str; 8] = [
    "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "other",
];

/// Classes of statuses.
pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

fn method_index(method: &Method) -> usize {
    let known = METHODS.iter().position(|name| *name == method.as_str());
    known.unwrap_or(METHODS.len() - 1)
}

fn class_index(status: StatusCode) -> usize {
    usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1
}

thread_local! {
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_method_and_class() {
        let telemetry = Telemetry::default();
        let invented = Method::from_bytes(b"other2").unwrap();
        telemetry.on_response(&Method::GET, StatusCode::OK, 5);
        telemetry.on_response(&invented, StatusCode::NOT_IMPLEMENTED, 0);
        let mut counts = telemetry.counts();
        assert_eq!((counts.responses[0][1], counts.responses[7][4]), (1, 1));
        counts.add(&telemetry.counts());
        assert_eq!((counts.responses[0][1], counts.body_bytes), (2, 10));
    }
}
