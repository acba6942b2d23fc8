//! Cells of a table: each is measured once in each round, in turn, and has one row for each metric.

use std::error::Error;
use std::io;

use crate::lab::lrp::not_measured;
use crate::measure::turns::{Found, Turns};
use crate::output::chart::Chart;
use crate::output::metric::{self, Metric};
use crate::output::report::{Context, Report, Row};

/// A variant at one setting.
pub(in crate::experiments) struct Cell<C> {
    /// The name of the variant in tables.
    pub(in crate::experiments) variant: String,
    /// The setting, which is appended to the names of metrics. Cells of one setting follow each other.
    pub(in crate::experiments) setting: String,
    pub(in crate::experiments) content: C,
}

impl<C> Cell<C> {
    /// The name that `--only` selects.
    fn name(&self) -> String {
        match &self.setting[..] {
            "" => self.variant.clone(),
            setting => format!("{}; {setting}", self.variant),
        }
    }
}

/// Measures all cells in turn, each once or several times in a round, and shows the metrics. All cells are in the
/// network of the labs of [`lab::lrp`](crate::lab::lrp); returns the reason where these cannot be created.
pub(in crate::experiments) fn report<C, S>(
    context: &Context,
    (title, notes): (&'static str, &[&str]),
    (cells, rounds): (Vec<Cell<C>>, usize),
    metrics: &[Metric<S>],
    mut measure: impl FnMut(&C) -> io::Result<Vec<S>>,
    charts: impl FnOnce(&Found<Cell<C>, S>) -> Vec<Chart>,
) -> Result<Report, Box<dyn Error>> {
    if let Some(report) = not_measured(title) {
        return Ok(report);
    }
    let turns = Turns::new(context, rounds, cells, Cell::name)?;
    let found = turns.measure(|cell| measure(&cell.content))?.into_iter();
    let found = found.map(|(cell, samples)| (cell, samples.into_iter().flatten().collect()));
    let found: Found<Cell<C>, S> = found.collect();
    Ok(Report {
        title,
        notes: notes.iter().map(ToString::to_string).collect(),
        rows: rows(&found, metrics),
        charts: charts(&found),
    })
}

fn rows<C, S>(found: &Found<Cell<C>, S>, metrics: &[Metric<S>]) -> Vec<Row> {
    let mut settings: Vec<&str> = found.iter().map(|(cell, _)| &cell.setting[..]).collect();
    settings.dedup();
    let of_setting = |setting: &str| {
        let cells = found.iter().filter(|(cell, _)| cell.setting == setting);
        let variants =
            cells.map(|(cell, samples)| (cell.variant.clone(), samples.iter().collect()));
        metric::rows(metrics, setting, variants)
    };
    settings.into_iter().flat_map(of_setting).collect()
}
