//! `soft-timers/figure-3`: the distribution of trigger intervals over time (*Soft Timers*, section 5.3): medians over
//! windows of 1 ms and 10 ms, for 10 s without a gap.

use std::error::Error;

use softclock::{Instant, TriggerState};

use crate::lab::busy_server::intervals::{CLOSE_COMPUTE, SETTINGS, Trace, notes, trace_stretch};
use crate::load::closed_loop::Load;
use crate::output::chart::{Axis, Chart, Mark, Series};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/figure-3",
    about: "Figure 3: medians of trigger intervals over 1 ms and 10 ms, with and without a compute-bound neighbour",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let mut rows = Vec::new();
    let mut charts = Vec::new();
    let load = Load::detect();
    for (index, setting) in SETTINGS.iter().enumerate() {
        let stretch = context.round(index, SETTINGS.len(), setting.name, || {
            trace_stretch(context, setting, load)
        })?;
        let series = WINDOWS.map(|window| {
            let medians = medians(&stretch.trace, window.ms);
            rows.extend(window_rows(
                setting.name,
                &window,
                &medians,
                *setting == CLOSE_COMPUTE,
            ));
            Series {
                name: format!("{} ms", window.ms),
                mark: Mark::Dots,
                points: medians,
            }
        });
        rows.push(Row::of_samples(
            setting.name,
            WAITED,
            "%",
            &[stretch.waited],
        ));
        charts.push(chart(setting.name, series));
    }
    context.progress(1, 1, "");
    Ok(Report {
        title: "medians of trigger intervals over short windows of time",
        notes: notes(&NOTES, load),
        rows,
        charts,
    })
}

/// Returns, for each window in which intervals end, its start in seconds and their median in microseconds.
fn medians(trace: &Trace, window_ms: u64) -> Vec<(f64, f64)> {
    let Some(&(_, start)) = trace.first() else {
        return Vec::new();
    };
    let window_ns = window_ms * 1_000_000;
    let ends_in = |interval: &[(TriggerState, Instant)]| interval[1].1.ns_since(start) / window_ns;
    let intervals: Vec<_> = trace.windows(2).collect();
    intervals
        .chunk_by(|a, b| ends_in(a) == ends_in(b))
        .map(|window| {
            let length =
                |interval: &&[(TriggerState, Instant)]| interval[1].1.ns_since(interval[0].1);
            let mut lengths: Vec<u64> = window.iter().map(length).collect();
            lengths.sort_unstable();
            // Windows without an interval do not appear, so compute the start from the index.
            let since_ns = ends_in(window[0]) * window_ns;
            let median_ns = lengths[lengths.len() / 2];
            (since_ns as f64 / 1e9, median_ns as f64 / 1e3)
        })
        .collect()
}

fn window_rows(
    setting: &str,
    window: &Window,
    medians: &[(f64, f64)],
    like_the_paper: bool,
) -> Vec<Row> {
    let values: Vec<f64> = medians.iter().map(|&(_, median)| median).collect();
    let above = values.iter().filter(|&&median| median > 40.0).count();
    let share = 100.0 * above as f64 / values.len() as f64;
    let name = format!("{} ms, {setting}", window.ms);
    let with_paper = |row: Row, paper: Option<f64>| Row {
        paper: paper.filter(|_| like_the_paper),
        ..row
    };
    let median = Row::of_samples(&name, "median of the intervals in a window", "us", &values);
    let above = Row::of_samples(
        &name,
        "share of windows with a median above 40 us",
        "%",
        &[share],
    );
    vec![
        with_paper(median, Some(18.0)),
        with_paper(above, window.paper_above_40),
    ]
}

fn chart(setting: &str, series: [Series; 2]) -> Chart {
    let points = || series.iter().flat_map(|series| &series.points);
    let end = points().map(|point| point.0).fold(0.0, f64::max);
    let mut series = Vec::from(series);
    series.push(Series::paper(
        "the paper's bands: 14 to 26 us (1 ms), 17 to 19 us (10 ms)",
        &[14.0, 17.0, 19.0, 26.0].map(|us| (0.0, us)),
    ));
    Chart {
        title: format!("Figure 3: median of the trigger intervals in windows of time; {setting}"),
        x: Axis::linear("s", 0.0, end.round().max(1.0)),
        y: Axis::decades("us", 0.1, 10_000.0),
        series,
    }
}

/// A window length, and the paper's share of windows with a median above 40 us.
struct Window {
    ms: u64,
    paper_above_40: Option<f64>,
}

const WINDOWS: [Window; 2] = [
    Window {
        ms: 1,
        paper_above_40: Some(1.13),
    },
    Window {
        ms: 10,
        paper_above_40: None,
    },
];

/// The metric of idle time: the clients, or threads on their processor, left the server without requests.
const WAITED: &str = "share of the time that the server waited for its clients";

const NOTES: [&str; 4] = [
    "the paper's workload is ST-Apache-compute: medians over 1 ms mostly between 14 and 26 us, less than 1.13 % above \
     40 us; over 10 ms nearly all between 17 and 19 us",
    "the spread is that of the windows: 10th and 90th percentile of their medians",
    "the server is traced for 10 s without a gap, as in the paper; an interval belongs to the window in which it ends; \
     windows in which none ends, because the neighbour or another had the processor throughout, have no median and are \
     left out",
    "a window right after one in which the thread did not run may consist of one long interval",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_without_an_interval_have_no_median() {
        let trace: Trace = [0, 100, 300, 2_500, 2_600]
            .map(|us| (TriggerState::Idle, Instant::from_ns(us * 1000)))
            .to_vec();
        assert_eq!(medians(&trace, 1), [(0.0, 200.0), (0.002, 2_200.0)]);
        assert!(medians(&Trace::new(), 1).is_empty());
    }
}
