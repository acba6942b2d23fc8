//! The counts of a sleeper. They are thread-local, because one thread sleeps and counts.

use std::cell::RefCell;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use super::Finding;

thread_local! {
    static TALLY: RefCell<Tally> = RefCell::new(Tally::default());
}

#[derive(Default)]
struct Tally {
    begun: Option<(Instant, u64)>,
    finding: Finding,
}

/// Starts the measurement; discards the counts of the warm-up.
pub(super) fn begin() {
    TALLY.with_borrow_mut(|tally| {
        tally.finding = Finding::default();
        tally.begun = Some((Instant::now(), process_cpu_ns()));
    });
}

/// Ends the measurement.
pub(super) fn end() {
    TALLY.with_borrow_mut(|tally| {
        if let Some((start, cpu_ns)) = tally.begun.take() {
            tally.finding.elapsed_ns = start.elapsed().as_nanos() as u64;
            tally.finding.cpu_ns = process_cpu_ns() - cpu_ns;
        }
    });
}

/// Counts a sleep that was due at `due` and ends now.
pub(super) fn count(due: Instant) {
    let now = Instant::now();
    TALLY.with_borrow_mut(|tally| {
        let Finding {
            lateness, early, ..
        } = &mut tally.finding;
        lateness.record(now.saturating_duration_since(due).as_nanos() as u64);
        *early += u64::from(now < due);
    });
}

/// Counts a burst of work that took `cpu_ns`.
pub(super) fn count_burst(cpu_ns: u64) {
    TALLY.with_borrow_mut(|tally| {
        tally.finding.bursts += 1;
        tally.finding.burst_ns += cpu_ns;
    });
}

/// Returns the counts.
pub(in crate::lab) fn finding() -> Finding {
    TALLY.take().finding
}

/// Returns the processor time of all threads.
fn process_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
