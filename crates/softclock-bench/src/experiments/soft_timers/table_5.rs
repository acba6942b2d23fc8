//! `soft-timers/table-5`: the sources of trigger states, and the intervals without each source (*Soft Timers*, section
//! 5.4, Table V and Figure 4).

use std::error::Error;

use softclock::TriggerState;

use crate::experiments::soft_timers::table_4::APACHE;
use crate::lab::busy_server::intervals::{CLOSE, SETTINGS, Trace, all_intervals_us, notes, trace};
use crate::load::closed_loop::Load;
use crate::output::chart::{Axis, Chart, Series};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/table-5",
    about: "Table V, Figure 4: trigger states by source, and intervals with each source left out",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let mut rows = Vec::new();
    let mut charts = Vec::new();
    let load = Load::detect();
    for (index, setting) in SETTINGS.iter().enumerate() {
        let traced = context.round(index, SETTINGS.len(), setting.name, || {
            trace(context, setting, load)
        })?;
        let slices = traced.slices;
        rows.extend(source_rows(setting.name, &slices, *setting == CLOSE));
        let (more, mut series) = without_each(setting.name, &slices);
        rows.extend(more);
        series.push(APACHE.series());
        charts.push(Chart {
            title: format!("Figure 4: each source left out; {}", setting.name),
            x: AXIS,
            y: Axis::linear("share of intervals", 0.0, 1.0),
            series,
        });
    }
    context.progress(1, 1, "");
    Ok(Report {
        title: "trigger states of a busy web server by source",
        notes: notes(&NOTES, load),
        rows,
        charts,
    })
}

/// Returns the share of each source, with its spread over parts of the run.
fn source_rows(setting: &str, slices: &[Trace], like_the_paper: bool) -> Vec<Row> {
    let metric = format!("share of trigger states, {setting}");
    let trace: Trace = slices.concat();
    sources(&trace)
        .map(|source| {
            let parts = trace.chunks_exact((trace.len() / PARTS).max(1));
            let share = |part: &[(TriggerState, _)]| {
                let of_source = part.iter().filter(|(state, _)| *state == source).count();
                100.0 * of_source as f64 / part.len() as f64
            };
            let shares: Vec<f64> = parts.map(share).collect();
            let row = Row::of_samples(source.name(), &metric, "%", &shares);
            let value = share(&trace);
            Row {
                value,
                low: row.low.min(value),
                high: row.high.max(value),
                paper: like_the_paper.then(|| paper(source)).flatten(),
                ..row
            }
        })
        .collect()
}

fn without_each(setting: &str, slices: &[Trace]) -> (Vec<Row>, Vec<Series>) {
    let trace = slices.concat();
    let all = std::iter::once(None).chain(sources(&trace).map(Some));
    all.filter_map(|without| {
        let name = without.map_or_else(
            || "all".to_owned(),
            |source| format!("no {}", source.name()),
        );
        let mut intervals = all_intervals_us(slices, without);
        if intervals.is_empty() {
            return None;
        }
        // Quantiles and the curve need sorted values.
        intervals.sort_by(f64::total_cmp);
        let quantile =
            |share: f64| intervals[(intervals.len() - 1) * (share * 100.0) as usize / 100];
        let row = Row {
            value: quantile(0.5),
            low: quantile(0.1),
            high: quantile(0.9),
            ..Row::of_samples(
                name.clone(),
                format!("time between trigger states, {setting}"),
                "us",
                &[0.0],
            )
        };
        Some((row, Series::cdf(name, &AXIS, &intervals)))
    })
    .unzip()
}

/// Returns the sources that occur in a trace.
fn sources(trace: &Trace) -> impl Iterator<Item = TriggerState> {
    let occurs = |source: &TriggerState| trace.iter().any(|(state, _)| state == source);
    TriggerState::ALL.into_iter().filter(occurs)
}

/// Returns the share in Table V, in percent.
fn paper(source: TriggerState) -> Option<f64> {
    match source {
        TriggerState::SystemCall => Some(47.7),
        TriggerState::Send => Some(28.0),
        TriggerState::Receive => Some(16.4),
        TriggerState::Turn => Some(5.4),
        TriggerState::Fault => Some(2.5),
        _ => None,
    }
}

const AXIS: Axis = Axis::decades("us between trigger states", 0.1, 10_000.0);

/// The number of parts of a run over which the spread is taken.
const PARTS: usize = 20;

const NOTES: [&str; 5] = [
    "the paper's sources beside ours: syscalls 47.7 % (syscall), ip-output 28 % (send: the ends of send-type calls), \
     ip-intr 16.4 % (receive: those of receives and accepts), tcpip-others 5.4 % (turn: turns of the runtime's loop), \
     traps 2.5 % (a program does not see its faults)",
    "task-end and idle are sources that only a runtime has: the end of a task's poll, and the idle loop",
    "the spread of the shares is that over twenty parts of the run; that of the times is of the intervals themselves, \
     10th to 90th percentile around the median",
    "\"no syscall\" is the distribution that the same run would have had without the trigger states at the end of \
     system calls",
    "the paper's Figure 4 is of ST-Apache, whose distribution with all sources is known from Table IV; what it becomes \
     without each source is told by the figure alone",
];
