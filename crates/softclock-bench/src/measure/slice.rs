//! A slice of time of a server under a closed-loop load: its responses, and its processor time.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::closed_loop::{Load, Outcome, Target, response_bytes};
use crate::measure::processors::Processors;
use crate::servers::Server;

/// A server's work in a slice of time.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Responses; the last ones count in part.
    pub requests: f64,
    /// The processor time of the server's processes.
    pub cpu: Duration,
    /// The clients' results.
    pub outcome: Outcome,
}

impl Slice {
    /// Loads the server of `target` for the time `slice`, or longer until the server's processor time can be read with
    /// enough precision.
    ///
    /// # Errors
    /// Those of the load, or the server answers no requests.
    pub fn measure(
        server: &Server,
        target: &Target<'_>,
        load: Load,
        processors: &Processors,
        slice: Duration,
    ) -> io::Result<Self> {
        let begun = Instant::now();
        loop {
            let done = Self::once(server, target, load, processors, slice)?;
            if done.requests > 0.0 && !done.cpu.is_zero() {
                return Ok(done);
            }
            // On a busy machine a slice may end before the clients run at all: try again.
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("no requests were answered"));
            }
        }
    }

    fn once(
        server: &Server,
        target: &Target<'_>,
        load: Load,
        processors: &Processors,
        slice: Duration,
    ) -> io::Result<Self> {
        // Before the slice, so that this request's cost is not in it.
        let response = response_bytes(target)?;
        let before = server.cpu_time()?;
        let outcome = processors.on(processors.clients, || {
            let start = Instant::now();
            // On a busy machine it may take longer than a slice until the server runs.
            let has_run = || {
                server
                    .cpu_time()
                    .is_ok_and(|now| now.saturating_sub(before) >= LEAST)
            };
            let over = || {
                let elapsed = start.elapsed();
                elapsed >= slice && (has_run() || elapsed >= PATIENCE)
            };
            load.run(target, over)
        })?;
        let cpu = server.cpu_time()?.saturating_sub(before);
        thread::sleep(SETTLE);
        Ok(Self {
            requests: outcome.bytes as f64 / response as f64,
            cpu,
            outcome,
        })
    }

    /// Returns the requests per second of the server's processor time, the main measure, which does not depend on the
    /// processor time that the clients use.
    pub fn requests_per_cpu_second(&self) -> f64 {
        self.requests / self.cpu.as_secs_f64()
    }

    /// Returns the processor time per request, in microseconds.
    pub fn cpu_us_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests
    }

    /// Returns the throughput in requests per second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests / self.outcome.elapsed.as_secs_f64()
    }

    /// Returns the 99th percentile of the latency, if the generator of load measures it.
    pub fn p99_ms(&self) -> Option<f64> {
        Some(self.outcome.p99?.as_secs_f64() * 1e3)
    }
}

/// The least processor time of a slice: a few of the kernel's steps.
const LEAST: Duration = Duration::from_millis(20);

const PATIENCE: Duration = Duration::from_secs(20);

/// The time in which connections are closed that were cut off at the end of a slice.
const SETTLE: Duration = Duration::from_millis(50);
