//! Cells of a table: each is measured once in each round, in turn, and has one row for each metric.

use std::error::Error;
use std::io;

use crate::lab::lrp::{NOTES, not_measured};
use crate::output::chart::Chart;
use crate::output::report::{Context, Report, Row};

/// The name of a metric, its unit, and its value in a sample; `None` leaves the sample out.
pub(in crate::experiments) type Metric<S> = (&'static str, &'static str, fn(&S) -> Option<f64>);

/// A variant at one setting.
pub(in crate::experiments) struct Cell<C> {
    /// The name of the variant in tables.
    pub(in crate::experiments) variant: String,
    /// The setting, which is appended to the names of metrics. Cells of one setting follow each other.
    pub(in crate::experiments) setting: String,
    pub(in crate::experiments) content: C,
}

/// The samples of a cell, of all rounds.
pub(in crate::experiments) type Found<C, S> = Vec<(Cell<C>, Vec<S>)>;

/// Measures all cells in turn, each once or several times in a round, and shows the metrics, with the notes of the lab;
/// returns the reason where labs cannot be created.
pub(in crate::experiments) fn report<C, S>(
    context: &Context,
    (title, notes): (&'static str, &[&str]),
    cells: (Vec<Cell<C>>, usize),
    metrics: &[Metric<S>],
    measure: impl FnMut(&C) -> io::Result<Vec<S>>,
    charts: impl FnOnce(&Found<C, S>) -> Vec<Chart>,
) -> Result<Report, Box<dyn Error>> {
    let notes: Vec<&str> = NOTES.iter().chain(notes).copied().collect();
    report_of_lab(context, (title, &notes), cells, metrics, measure, charts)
}

/// Like [`report`], with these notes only.
pub(in crate::experiments) fn report_of_lab<C, S>(
    context: &Context,
    (title, notes): (&'static str, &[&str]),
    (cells, rounds): (Vec<Cell<C>>, usize),
    metrics: &[Metric<S>],
    mut measure: impl FnMut(&C) -> io::Result<Vec<S>>,
    charts: impl FnOnce(&Found<C, S>) -> Vec<Chart>,
) -> Result<Report, Box<dyn Error>> {
    if let Some(report) = not_measured(title) {
        return Ok(report);
    }
    let cells = chosen(cells, context.only.as_deref())?;
    let rounds = context.rounds.unwrap_or(rounds).max(1);
    let total = cells.len() * rounds;
    let mut found: Found<C, S> = cells.into_iter().map(|cell| (cell, Vec::new())).collect();
    for round in 0..rounds {
        let cells = found.len();
        for (index, (cell, samples)) in found.iter_mut().enumerate() {
            let done = round * cells + index;
            let measured = context.round(done, total, &cell.variant, || measure(&cell.content));
            samples.extend(measured.map_err(|error| format!("{}: {error}", cell.variant))?);
        }
    }
    context.progress(total, total, "");
    Ok(Report {
        title,
        notes: notes.iter().map(ToString::to_string).collect(),
        rows: rows(&found, metrics),
        charts: charts(&found),
    })
}

/// The cells whose names contain `only`.
fn chosen<C>(cells: Vec<Cell<C>>, only: Option<&str>) -> Result<Vec<Cell<C>>, String> {
    let Some(only) = only else {
        return Ok(cells);
    };
    let name = |cell: &Cell<C>| format!("{}; {}", cell.variant, cell.setting);
    let names: Vec<String> = cells.iter().map(name).collect();
    let chosen = cells.into_iter().filter(|cell| name(cell).contains(only));
    let chosen: Vec<_> = chosen.collect();
    match chosen.is_empty() {
        false => Ok(chosen),
        true => Err(format!(
            "no cell contains '{only}'; there are: {}",
            names.join(", ")
        )),
    }
}

fn rows<C, S>(found: &Found<C, S>, metrics: &[Metric<S>]) -> Vec<Row> {
    let mut settings: Vec<&str> = found.iter().map(|(cell, _)| &cell.setting[..]).collect();
    settings.dedup();
    let mut rows = Vec::new();
    for setting in settings {
        for &(metric, unit, of) in metrics {
            for (cell, samples) in found.iter().filter(|(cell, _)| cell.setting == setting) {
                let values: Vec<f64> = samples.iter().filter_map(of).collect();
                let metric = match setting {
                    "" => metric.to_owned(),
                    setting => format!("{metric}; {setting}"),
                };
                if !values.is_empty() {
                    rows.push(Row::of_samples(&*cell.variant, metric, unit, &values));
                }
            }
        }
    }
    rows
}
