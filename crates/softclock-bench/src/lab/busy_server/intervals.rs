//! The sequence of a busy server's trigger states, and exact statistics of the intervals between them (*Soft Timers*,
//! 5.2 to 5.4).

use std::error::Error;
use std::io;
use std::time::Duration;

use softclock::{Instant, TriggerState};

use super::Workload;
use crate::load::closed_loop::Load;
use crate::output::report::Context;

/// A configuration of the traced server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name in tables.
    pub name: &'static str,
    /// Whether connections carry more than one request.
    pub keep_alive: bool,
    /// Whether a thread that only computes shares the processor.
    pub neighbour: bool,
}

/// One request a connection, as with the paper's clients.
pub const CLOSE: Setting = Setting {
    name: "one connection a request",
    keep_alive: false,
    neighbour: false,
};

/// The same beside a computing thread, the paper's `ST-Apache-compute`.
pub const CLOSE_COMPUTE: Setting = Setting {
    name: "one connection a request, compute-bound neighbour",
    neighbour: true,
    ..CLOSE
};

/// Connections that carry request after request.
pub const KEEP: Setting = Setting {
    name: "keep-alive",
    keep_alive: true,
    neighbour: false,
};

/// The same beside a computing thread.
pub const KEEP_COMPUTE: Setting = Setting {
    name: "keep-alive, compute-bound neighbour",
    neighbour: true,
    ..KEEP
};

/// All settings.
pub const SETTINGS: [Setting; 4] = [CLOSE, CLOSE_COMPUTE, KEEP, KEEP_COMPUTE];

/// A sequence of trigger states without a gap.
pub type Trace = Vec<(TriggerState, Instant)>;

/// The trace of a server, in slices.
pub struct Traced {
    /// The slices in which the server was busy, or all if these are too few.
    pub slices: Vec<Trace>,
    /// The share of slices in which the server was busy, in percent.
    pub busy: f64,
}

/// The trace of a server without a gap.
pub struct Stretch {
    /// The trigger states.
    pub trace: Trace,
    /// The share of the time in which the server waited for its clients, in percent.
    pub waited: f64,
}

/// Traces a busy server until there are as many trigger states as in the paper, or until a time limit.
///
/// Slices in which the server waited for its clients are left out, since the paper's server was saturated.
///
/// # Errors
/// Those of the server, and [`io::ErrorKind::TimedOut`] if there are hardly any trigger states.
pub fn trace(context: &Context, setting: &Setting, load: Load) -> Result<Traced, Box<dyn Error>> {
    let workload = workload(context, setting, load);
    let plan = if context.smoke { SMOKE } else { FULL };
    Ok(super::run(&workload, || record(&plan))?)
}

/// Traces a server for as long as the paper's Figure 3, without a gap, whether it is busy or not.
///
/// # Errors
/// Those of the server.
pub fn trace_stretch(
    context: &Context,
    setting: &Setting,
    load: Load,
) -> Result<Stretch, Box<dyn Error>> {
    let workload = workload(context, setting, load);
    let length = if context.smoke {
        SMOKE.slice * 10
    } else {
        STRETCH
    };
    let (trace, waited) = super::run(&workload, || async {
        Ok(slice(length, STRETCH_CAPACITY).await)
    })?;
    Ok(Stretch { trace, waited })
}

/// Returns the notes of an experiment as those of a report, and one on the load.
pub fn notes(own: &[&str], load: Load) -> Vec<String> {
    let all = own.iter().copied().chain([load.note()]);
    all.map(str::to_owned).collect()
}

fn workload(context: &Context, setting: &Setting, load: Load) -> Workload {
    Workload {
        keep_alive: setting.keep_alive,
        neighbour: setting.neighbour,
        load,
        ..Workload::of(context.smoke)
    }
}

async fn record(plan: &Plan) -> io::Result<Traced> {
    let (mut busy, mut other) = (Vec::new(), Vec::new());
    let until = softclock::now() + plan.patience;
    while count(&busy) < plan.samples && softclock::now() < until {
        let (trace, waited) = slice(plan.slice, SLICE_CAPACITY).await;
        let is_busy = waited < WAITING;
        // Keep slices of an idle server only as a fallback, and no more than needed.
        if is_busy || count(&other) < plan.samples {
            if is_busy { &mut busy } else { &mut other }.push(trace);
        }
    }
    let share = 100.0 * busy.len() as f64 / (busy.len() + other.len()).max(1) as f64;
    if count(&busy) < LEAST_SAMPLES {
        busy.append(&mut other);
    }
    if count(&busy) < LEAST_SAMPLES {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(Traced {
        slices: busy,
        busy: share,
    })
}

/// Traces a slice; returns also the share of it in which the server waited for work, in percent.
async fn slice(length: Duration, capacity: usize) -> (Trace, f64) {
    let before = softclock::statistics();
    let start = softclock::now();
    softclock::trace_triggers(capacity);
    softclock::sleep(length).await;
    let trace = softclock::take_trigger_trace();
    let wall = softclock::now().since(start);
    let after = softclock::statistics();
    let waited = (after.blocked + after.spun).saturating_sub(before.blocked + before.spun);
    let trace = trace.map_or_else(Vec::new, |trace| trace.iter().collect());
    (trace, 100.0 * waited.div_duration_f64(wall))
}

fn count(slices: &[Trace]) -> usize {
    slices.iter().map(Vec::len).sum()
}

/// Returns the intervals of all slices, in the order of time.
pub fn all_intervals_us(slices: &[Trace], without: Option<TriggerState>) -> Vec<f64> {
    slices
        .iter()
        .flat_map(|slice| intervals_us(slice, without))
        .collect()
}

/// Returns the microseconds from each trigger state to the next, without those of one source.
fn intervals_us(trace: &[(TriggerState, Instant)], without: Option<TriggerState>) -> Vec<f64> {
    let mut kept = trace
        .iter()
        .filter(|(state, _)| Some(*state) != without)
        .map(|(_, at)| *at);
    let Some(mut last) = kept.next() else {
        return Vec::new();
    };
    kept.map(|at| at.ns_since(std::mem::replace(&mut last, at)) as f64 / 1e3)
        .collect()
}

/// A distribution, as in Table IV.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The largest value.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// The standard deviation.
    pub deviation: f64,
    /// The share above 100, in percent.
    pub above_100: f64,
    /// The share above 150, in percent.
    pub above_150: f64,
}

impl Summary {
    /// Summarizes values in ascending order.
    ///
    /// # Panics
    /// If there are no values.
    pub fn of_sorted(sorted: &[f64]) -> Self {
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let variance = sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let above = |limit: f64| {
            let at_most = sorted.partition_point(|&x| x <= limit);
            100.0 * (sorted.len() - at_most) as f64 / count
        };
        Self {
            max: sorted[sorted.len() - 1],
            mean,
            median: sorted[sorted.len() / 2],
            deviation: variance.sqrt(),
            above_100: above(100.0),
            above_150: above(150.0),
        }
    }
}

struct Plan {
    samples: usize,
    patience: Duration,
    slice: Duration,
}

const FULL: Plan = Plan {
    // As many as in the paper.
    samples: 2_000_000,
    patience: Duration::from_secs(20),
    slice: Duration::from_millis(100),
};

const SMOKE: Plan = Plan {
    samples: 20_000,
    patience: Duration::from_millis(500),
    slice: Duration::from_millis(20),
};

/// The least number of trigger states, so that each part of a run has some.
const LEAST_SAMPLES: usize = 200;

/// The capacity of a slice's trace: more trigger states than a server passes, unless it spins.
const SLICE_CAPACITY: usize = 400_000;

/// The length of the paper's Figure 3.
const STRETCH: Duration = Duration::from_secs(10);

/// The capacity of a stretch: a trigger state per microsecond, 80 MB.
const STRETCH_CAPACITY: usize = 10_000_000;

/// The share of a slice that a busy server may wait for work, in percent.
const WAITING: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_a_source_out_joins_intervals() {
        let at = |us: u64| Instant::from_ns(us * 1000);
        let (call, task) = (TriggerState::SystemCall, TriggerState::TaskEnd);
        let trace = [(call, at(1)), (task, at(3)), (call, at(7)), (task, at(8))];
        assert_eq!(intervals_us(&trace, None), [2.0, 4.0, 1.0]);
        assert_eq!(intervals_us(&trace, Some(task)), [6.0]);
        assert!(intervals_us(&trace[..1], Some(call)).is_empty());
    }

    #[test]
    fn the_summary_is_exact() {
        let summary = Summary::of_sorted(&[1.0, 100.0, 101.0, 150.0, 151.0]);
        assert_eq!((summary.median, summary.max), (101.0, 151.0));
        assert_eq!((summary.above_100, summary.above_150), (60.0, 20.0));
        assert!((summary.mean - 100.6).abs() < 1e-9);
        assert!((summary.deviation - 54.592).abs() < 1e-2);
    }
}
