//! Another client of an attacked server: it sends requests on kept and on new connections, in an open loop.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::load::{self, HotOptions, HotResult};
use crate::measure::processors::pin;

/// The victim's requests and their rates.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// The server's address.
    pub address: SocketAddr,
    /// The path to request.
    pub path: &'static str,
    /// Requests a second on kept connections.
    pub kept: f64,
    /// Requests a second, each on a new connection.
    pub new: f64,
    /// The time after which a request has failed.
    pub patience: Duration,
}

/// The service in a phase.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// On kept connections.
    pub kept: Latency,
    /// On new ones.
    pub new: Latency,
}

/// Latencies in milliseconds. A failed request counts as the client's patience.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// The median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// Share of the requests that were not answered with status 200, from 0 to 1.
    pub failed: f64,
}

impl Victim {
    /// Sends requests for `duration` from `processor`, and calls `beside` meanwhile.
    ///
    /// # Errors
    /// A runtime or the first connections cannot be created.
    pub fn watch(
        &self,
        duration: Duration,
        processor: Option<usize>,
        beside: impl FnOnce(),
    ) -> io::Result<Seen> {
        let ask = |rate, keep_alive| {
            pin(processor);
            let options = HotOptions {
                duration,
                keep_alive,
                connections: KEPT,
                patience: self.patience,
                ..HotOptions::new(load::Target::new(self.address, self.path), rate)
            };
            load::hot::run(&options, |_, _| {})
        };
        let (kept, new) = thread::scope(|scope| {
            let kept = scope.spawn(|| ask(self.kept, true));
            let new = scope.spawn(|| ask(self.new, false));
            // On this thread, so that the caller decides when the attack starts.
            beside();
            (kept.join(), new.join())
        });
        let latency = |joined: thread::Result<io::Result<HotResult>>| {
            let result = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok::<_, io::Error>(Latency::of(&result, self.patience))
        };
        Ok(Seen {
            kept: latency(kept)?,
            new: latency(new)?,
        })
    }
}

impl Seen {
    /// Returns the share of all requests that failed.
    pub fn failed(&self, victim: &Victim) -> f64 {
        let (kept, new) = (victim.kept, victim.new);
        (self.kept.failed * kept + self.new.failed * new) / (kept + new)
    }

    /// Returns whether both kinds of requests are served as without an attack.
    pub fn is_normal(&self, without: &Seen) -> bool {
        self.kept.is_normal(without.kept) && self.new.is_normal(without.new)
    }
}

impl Latency {
    fn of(result: &HotResult, patience: Duration) -> Self {
        let patience_us = patience.as_micros() as u64;
        let failed = result.refused_us.len() + result.failed();
        let mut latency = result.latency_us.clone();
        // A refusal is mostly quick. It counts as a failure, too.
        let _ = latency.subtract(&result.refused_us);
        let _ = latency.record_n(patience_us, failed);
        let ms = |share| latency.value_at_quantile(share) as f64 / 1e3;
        Self {
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            failed: failed as f64 / result.intended.max(1) as f64,
        }
    }

    fn is_normal(self, without: Self) -> bool {
        let most = (NORMAL * without.p99_ms).max(ALWAYS_NORMAL_MS);
        self.p99_ms <= most && self.failed == 0.0
    }
}

/// Connections that are kept, and opened before the attack.
const KEPT: usize = 4;

/// The largest normal p99, as a multiple of that without an attack.
const NORMAL: f64 = 3.0;

/// A p99 in milliseconds that is always normal: with few requests it is close to their maximum, which the scheduler
/// alone can raise this far.
const ALWAYS_NORMAL_MS: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(p99_ms: f64, failed: f64) -> Latency {
        Latency {
            p50_ms: 1.0,
            p99_ms,
            failed,
        }
    }

    #[test]
    fn normal_is_three_times_the_usual_without_failures() {
        let usual = latency(4.0, 0.0);
        assert!(latency(12.0, 0.0).is_normal(usual));
        assert!(!latency(12.1, 0.0).is_normal(usual));
        assert!(!latency(1.0, 0.01).is_normal(usual));
        assert!(latency(ALWAYS_NORMAL_MS, 0.0).is_normal(latency(0.1, 0.0)));
    }
}
