//! `soft-timers/table-4`: the time between trigger states of a busy web server (*Soft Timers*, section 5.2, Table IV
//! and Figure 2).
//!
//! The paper's trigger states are a kernel's, which occur while any process runs. These are the server thread's, and
//! none occur while a neighbour has the processor.

use std::error::Error;

use crate::lab::busy_server::intervals::{
    self, CLOSE, CLOSE_COMPUTE, KEEP, KEEP_COMPUTE, Setting, Summary, all_intervals_us, trace,
};
use crate::load::closed_loop::Load;
use crate::output::chart::{Axis, Chart, Series};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/table-4",
    about: "Table IV, Figure 2: time between trigger states of a busy web server",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    let load = Load::detect();
    for (index, (setting, paper)) in SETTINGS.iter().enumerate() {
        let traced = context.round(index, SETTINGS.len(), setting.name, || {
            trace(context, setting, load)
        })?;
        let mut intervals = all_intervals_us(&traced.slices, None);
        // The parts need the order of time, which sorting destroys.
        let parts = parts(&intervals);
        intervals.sort_by(f64::total_cmp);
        let whole = Summary::of_sorted(&intervals);
        rows.extend(setting_rows(setting.name, &whole, &parts, paper.as_ref()));
        rows.push(Row::of_samples(setting.name, BUSY, "%", &[traced.busy]));
        series.push(Series::cdf(setting.name, &AXIS, &intervals));
    }
    context.progress(1, 1, "");
    series.extend(PAPER.iter().take(3).map(Workload::series));
    Ok(Report {
        title: "time between trigger states of a busy web server",
        notes: notes(load),
        rows,
        charts: vec![Chart {
            title: "Figure 2: time between trigger states, cumulative distribution".to_owned(),
            x: AXIS,
            y: Axis::linear("share of intervals", 0.0, 1.0),
            series,
        }],
    })
}

/// Returns a summary of each of [`PARTS`] parts of the run.
fn parts(intervals: &[f64]) -> Vec<Summary> {
    intervals
        .chunks_exact((intervals.len() / PARTS).max(1))
        .map(|part| {
            let mut sorted = part.to_vec();
            sorted.sort_by(f64::total_cmp);
            Summary::of_sorted(&sorted)
        })
        .collect()
}

fn setting_rows(
    name: &str,
    whole: &Summary,
    parts: &[Summary],
    paper: Option<&Workload>,
) -> Vec<Row> {
    COLUMNS
        .iter()
        .map(|(metric, unit, column)| {
            let samples: Vec<f64> = parts.iter().map(column).collect();
            let value = column(whole);
            let spread = Row::of_samples(name, *metric, unit, &samples);
            Row {
                value,
                low: spread.low.min(value),
                high: spread.high.max(value),
                paper: paper.map(|workload| column(&workload.summary)),
                ..spread
            }
        })
        .collect()
}

fn notes(load: Load) -> Vec<String> {
    let mut notes = intervals::notes(&NOTES, load);
    notes.extend(PAPER.iter().map(|workload| {
        let s = &workload.summary;
        format!(
            "the paper's {}: max {} us, mean {}, median {}, deviation {}, above 100 us {} %, above 150 us {} %",
            workload.name, s.max, s.mean, s.median, s.deviation, s.above_100, s.above_150
        )
    }));
    notes
}

/// A row of the paper's table.
pub(super) struct Workload {
    name: &'static str,
    summary: Summary,
}

impl Workload {
    /// Returns the points of the cumulative distribution that the paper's table implies.
    pub(super) fn series(&self) -> Series {
        let Summary {
            median,
            above_100,
            above_150,
            ..
        } = self.summary;
        let below = |above: f64| 1.0 - above / 100.0;
        let points = [
            (median, 0.5),
            (100.0, below(above_100)),
            (150.0, below(above_150)),
        ];
        Series::paper(format!("the paper's {} (300 MHz)", self.name), &points)
    }
}

const fn workload(name: &'static str, values: [f64; 6]) -> Workload {
    let [max, mean, median, deviation, above_100, above_150] = values;
    Workload {
        name,
        summary: Summary {
            max,
            mean,
            median,
            deviation,
            above_100,
            above_150,
        },
    }
}

type Column = (&'static str, &'static str, fn(&Summary) -> f64);

const COLUMNS: [Column; 6] = [
    ("interval, mean", "us", |s| s.mean),
    ("interval, median", "us", |s| s.median),
    ("interval, standard deviation", "us", |s| s.deviation),
    ("interval, longest", "us", |s| s.max),
    ("share of intervals above 100 us", "%", |s| s.above_100),
    ("share of intervals above 150 us", "%", |s| s.above_150),
];

/// The workload of Table V and Figure 4.
pub(super) const APACHE: Workload = workload("ST-Apache", [476.0, 31.52, 18.0, 32.0, 5.3, 0.39]);
const COMPUTE: Workload = workload("ST-Apache-compute", [585.0, 31.59, 18.0, 32.1, 5.3, 0.43]);
const FLASH: Workload = workload("ST-Flash", [1000.0, 22.53, 17.0, 20.8, 1.09, 0.013]);

const PAPER: [Workload; 8] = [
    APACHE,
    COMPUTE,
    FLASH,
    workload("ST-real-audio", [1000.0, 8.47, 6.0, 13.2, 0.025, 0.013]),
    workload("ST-nfs", [910.0, 2.13, 2.0, 3.3, 0.021, 0.011]),
    workload("ST-kernel-build", [1000.0, 5.63, 2.0, 47.9, 0.038, 0.033]),
    workload(
        "ST-Apache (PIII-500)",
        [1000.0, 19.41, 11.0, 23.0, 0.44, 0.13],
    ),
    workload(
        "ST-Flash (PIII-500)",
        [1000.0, 12.45, 9.0, 12.0, 0.02, 0.01],
    ),
];

/// The measured settings, each with the most similar workload of the paper: Flash is one process with an event loop,
/// and its clients open a connection for each request.
const SETTINGS: [(Setting, Option<Workload>); 4] = [
    (CLOSE, Some(FLASH)),
    (CLOSE_COMPUTE, Some(COMPUTE)),
    (KEEP, None),
    (KEEP_COMPUTE, None),
];

/// The metric of busy slices, from which the other rows are computed.
const BUSY: &str = "slices of time with a busy server";

const AXIS: Axis = Axis::decades("us between trigger states", 0.1, 10_000.0);

/// The number of parts of a run over which the spread is taken.
const PARTS: usize = 20;

const NOTES: [&str; 4] = [
    "two million trigger states in each row, or what 20 s have, in slices of 100 ms; those in which the server waited for \
     its clients for more than 2 % of the time are left out; the spread is that over twenty parts of the run, widened to \
     the figure of the whole",
    "one connection a request stands beside ST-Flash, with a neighbour beside ST-Apache-compute; the paper has no \
     keep-alive here",
    "the neighbour is a thread that spins on the server's processor with equal priority: while it runs the server's \
     thread has no trigger states, where the paper's kernel has those of its interrupts; so only the tail differs, and \
     the mean with it",
    "the longest intervals are those in which the thread, or this whole virtual machine, did not run",
];
