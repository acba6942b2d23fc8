//! A server under a closed loop's load for a slice of time: what it did, and the processor time that it took.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::closed_loop::{Load, Outcome, Target, response_bytes};
use crate::measure::processors::Processors;
use crate::servers::Server;

/// What a server did in a slice of time.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Responses, the last ones in part.
    pub requests: f64,
    /// The processor time of the server's processes.
    pub cpu: Duration,
    /// What the clients saw.
    pub outcome: Outcome,
}

impl Slice {
    /// Loads the server of `target` for so long, or until it has run long enough for its processor time to be known.
    ///
    /// # Errors
    /// Those of the load, and a server that answered nothing.
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
            // On a crowded machine a slice may pass before the clients run at all.
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
        let response = response_bytes(target)?;
        let before = server.cpu_time()?;
        let outcome = processors.on(processors.clients, || {
            let start = Instant::now();
            // On a crowded machine it may take longer than a slice for the server to run at all.
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

    /// What is compared: it does not depend on what the clients leave of the machine.
    pub fn requests_per_cpu_second(&self) -> f64 {
        self.requests / self.cpu.as_secs_f64()
    }

    /// The inverse, in microseconds.
    pub fn cpu_us_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests
    }

    /// The throughput.
    pub fn requests_per_second(&self) -> f64 {
        self.requests / self.outcome.elapsed.as_secs_f64()
    }

    /// If the load measures it.
    pub fn p99_ms(&self) -> Option<f64> {
        Some(self.outcome.p99?.as_secs_f64() * 1e3)
    }
}

/// Some of the kernel's steps of processor time.
const LEAST: Duration = Duration::from_millis(20);

const PATIENCE: Duration = Duration::from_secs(20);

/// For connections that were cut at the end of a slice to be closed.
const SETTLE: Duration = Duration::from_millis(50);
