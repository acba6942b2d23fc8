//! The definition of an experiment and its report.

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::measure::steal::{Steal, Watch};
use crate::output::chart::Chart;

/// One measured number with its spread and, if it has one, the paper's number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The subject: an implementation, a peer or a setting.
    pub variant: String,
    /// The quantity, in the same words for every variant with which it is compared.
    pub metric: String,
    /// The unit of `value`, `low`, `high` and `paper`.
    pub unit: &'static str,
    /// The median of the samples.
    pub value: f64,
    /// The samples' 10th percentile.
    pub low: f64,
    /// The samples' 90th percentile.
    pub high: f64,
    /// The paper's number, in the same unit.
    pub paper: Option<f64>,
    /// The samples behind `value`, in the order of rounds.
    #[serde(skip)]
    pub(crate) samples: Vec<f64>,
}

impl Row {
    /// Creates a row with the median of `samples` and their 10th and 90th percentile.
    ///
    /// # Panics
    /// If `samples` is empty.
    pub fn of_samples(
        variant: impl Into<String>,
        metric: impl Into<String>,
        unit: &'static str,
        samples: &[f64],
    ) -> Row {
        assert!(!samples.is_empty(), "a row needs at least one sample");
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Row {
            variant: variant.into(),
            metric: metric.into(),
            unit,
            value: quantile(&sorted, 0.5),
            low: quantile(&sorted, 0.1),
            high: quantile(&sorted, 0.9),
            paper: None,
            samples: samples.to_vec(),
        }
    }

    /// Creates a row with the median of `samples` and the bounds that contain the true median with a confidence of 95 %
    /// (sign test). If 0 is outside them, the effect is more than noise.
    ///
    /// # Panics
    /// If `samples` is empty.
    pub fn median_bounds(
        variant: impl Into<String>,
        metric: impl Into<String>,
        unit: &'static str,
        samples: &[f64],
    ) -> Row {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        // The number of n samples below the median is nearly normal, with a standard deviation of half the root of n.
        let outside = ((n - 1.96 * n.sqrt()) / 2.0).max(0.0) as usize;
        let row = Row::of_samples(variant, metric, unit, samples);
        Row {
            low: sorted[outside],
            high: sorted[sorted.len() - 1 - outside],
            ..row
        }
    }

    /// Returns the row with the paper's number.
    pub fn paper(self, paper: f64) -> Row {
        Row {
            paper: Some(paper),
            ..self
        }
    }
}

/// The results of an experiment.
#[derive(Clone, Debug)]
pub struct Report {
    /// The table's heading.
    pub title: &'static str,
    /// Remarks that the reader needs to interpret the numbers: differences from the paper, missing measurements and
    /// their reasons.
    pub notes: Vec<String>,
    /// The numbers, in the order in which they are shown.
    pub rows: Vec<Row>,
    /// The charts.
    pub charts: Vec<Chart>,
}

impl Report {
    /// Returns a report without rows, for an experiment that cannot run here, with the reason.
    pub fn not_measured(title: &'static str, reason: &str) -> Self {
        Self {
            title,
            notes: vec![format!("not measured: {reason}")],
            rows: Vec::new(),
            charts: Vec::new(),
        }
    }
}

/// What of an experiment the user can choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Nothing: it has a plan of its own.
    Nothing,
    /// The number of rounds.
    Rounds,
    /// The number of rounds, and the subjects that are measured.
    RoundsAndSubjects,
}

/// A table or figure: its name on the command line, and the function that measures it.
#[derive(Debug)]
pub struct Experiment {
    /// `group/name`, as typed on the command line.
    pub name: &'static str,
    /// One line for `list`.
    pub about: &'static str,
    /// What of it the user can choose.
    pub takes: Takes,
    /// Measures. Takes seconds to minutes, with [`Context::smoke`] about a second.
    pub run: fn(&Context) -> Result<Report, Box<dyn Error>>,
}

impl Experiment {
    /// Runs the experiment; adds the steal time of its rounds to the report's notes, unless nothing was measured.
    ///
    /// # Errors
    /// Those of the experiment.
    pub fn measure(&self, context: &Context) -> Result<(Report, Option<Steal>), Box<dyn Error>> {
        context.steal.begin();
        let mut report = (self.run)(context)?;
        let steal = context.steal.end();
        if !report.rows.is_empty() {
            report.notes.push(match &steal {
                Some(steal) => steal.note(),
                None => "steal time: not known here, as /proc/stat does not tell".to_owned(),
            });
        }
        Ok((report, steal))
    }
}

/// The parameters of a run of experiments.
#[derive(Debug)]
pub struct Context {
    /// Whether to run the smallest size that still executes every line; its numbers mean nothing.
    pub smoke: bool,
    /// The user's number of rounds, for experiments that support it; `None` for their default.
    pub rounds: Option<usize>,
    /// Measures only the subjects whose names contain this, in experiments that support it.
    pub only: Option<String>,
    terminal: bool,
    /// The time of the last progress line outside a terminal.
    told: Mutex<Option<Instant>>,
    /// The steal time of the running experiment.
    steal: Watch,
}

impl Context {
    /// Creates a context that shows progress on standard error.
    pub fn new(smoke: bool) -> Self {
        Self {
            smoke,
            rounds: None,
            only: None,
            terminal: std::io::stderr().is_terminal(),
            told: Mutex::new(None),
            steal: Watch::new(!smoke),
        }
    }

    /// Measures a round, which is step `done` of `total` as in [`progress`](Self::progress). If the hypervisor took too
    /// much of the processors' time, calls `measure` again, at most twice, and returns the result with the least steal
    /// time; see [`crate::measure::steal`]. Never repeats in a smoke run.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn round<T, E>(
        &self,
        done: usize,
        total: usize,
        what: &str,
        mut measure: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        self.progress(done, total, what);
        let mut round = self.steal.round();
        loop {
            if let Some(kept) = round.keep(measure()?) {
                return Ok(kept);
            }
        }
    }

    /// Like [`round`](Self::round), for an asynchronous measurement.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub async fn round_of_task<T, E>(
        &self,
        done: usize,
        total: usize,
        what: &str,
        mut measure: impl AsyncFnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        self.progress(done, total, what);
        let mut round = self.steal.round();
        loop {
            if let Some(kept) = round.keep(measure().await?) {
                return Ok(kept);
            }
        }
    }

    /// Shows that `done` of `total` steps are over and that `what` is next. On a terminal the line vanishes when `done`
    /// reaches `total`; otherwise it prints a line every ten seconds. Call it between measurements, never inside one.
    pub fn progress(&self, done: usize, total: usize, what: &str) {
        if !self.terminal {
            return self.tell(done, total, what);
        }
        let mut stderr = std::io::stderr().lock();
        // A failure to show progress must not end the measurement.
        let _ = write!(stderr, "\r\x1b[2K{}", progress_line(done, total, what));
        let _ = stderr.flush();
    }

    fn tell(&self, done: usize, total: usize, what: &str) {
        let Ok(mut told) = self.told.lock() else {
            return;
        };
        if self.smoke || done >= total || told.is_some_and(|told| told.elapsed() < TELL_EACH) {
            return;
        }
        *told = Some(Instant::now());
        let _ = writeln!(std::io::stderr(), "softclock-bench: {done}/{total} {what}");
    }
}

/// The interval of progress lines outside a terminal.
const TELL_EACH: Duration = Duration::from_secs(10);

fn progress_line(done: usize, total: usize, what: &str) -> String {
    const WIDTH: usize = 24;
    if done >= total {
        return String::new();
    }
    let filled = done * WIDTH / total;
    format!(
        "[{}{}] {done}/{total} {what}",
        "#".repeat(filled),
        ".".repeat(WIDTH - filled)
    )
}

/// Returns the median.
///
/// # Panics
/// If `samples` is empty.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// Returns the `q`-quantile of `sorted`, interpolated between neighbours.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_summarise_samples() {
        let samples: Vec<f64> = (0..=10).rev().map(f64::from).collect();
        let row = Row::of_samples("v", "m", "ns", &samples).paper(4.5);
        assert_eq!((row.low, row.value, row.high), (1.0, 5.0, 9.0));
        assert_eq!(row.paper, Some(4.5));
    }

    #[test]
    fn the_medians_bounds_close_in_on_it() {
        let samples: Vec<f64> = (0..=100).map(f64::from).collect();
        let row = Row::median_bounds("v", "m", "%", &samples);
        assert_eq!((row.low, row.value, row.high), (40.0, 50.0, 60.0));
        let few = Row::median_bounds("v", "m", "%", &samples[..3]);
        assert_eq!((few.low, few.value, few.high), (0.0, 1.0, 2.0));
    }

    #[test]
    fn one_sample_is_enough() {
        let row = Row::of_samples("v", "m", "ns", &[7.0]);
        assert_eq!((row.low, row.value, row.high), (7.0, 7.0, 7.0));
    }

    #[test]
    fn a_report_tells_the_steal_time_of_its_rounds() {
        fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
            let value = context.round(0, 1, "", || Ok::<_, Box<dyn Error>>(1.0))?;
            Ok(Report {
                title: "",
                notes: Vec::new(),
                rows: vec![Row::of_samples("v", "m", "ns", &[value])],
                charts: Vec::new(),
            })
        }
        let experiment = Experiment {
            name: "group/name",
            about: "",
            takes: Takes::Nothing,
            run,
        };
        let (report, steal) = experiment.measure(&Context::new(true)).unwrap();
        assert_eq!(steal.map(|steal| steal.rounds), Some(1));
        assert!(
            report.notes[0].starts_with("steal time: "),
            "{:?}",
            report.notes
        );
    }

    #[test]
    fn progress_ends_with_an_empty_line() {
        assert_eq!(progress_line(1, 2, "x"), "[############............] 1/2 x");
        assert_eq!(progress_line(2, 2, "x"), "");
        assert_eq!(progress_line(0, 0, "x"), "");
    }
}
