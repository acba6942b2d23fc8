//! Pages of measurements in Markdown, written from the JSON of runs, so that no figure is copied by hand.
//!
//! A directory holds the results that `softclock-bench run NAME --json results/NAME.json` wrote. From them [`pages`]
//! makes one page for each group of experiments, and an index. The pages show medians and spreads; the charts stay in
//! the JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::experiments;
use crate::output::report::{Report, Row};
use crate::output::svg;
use crate::output::table::number;

/// The result of one experiment, read back from JSON.
#[derive(Clone, Debug, Deserialize)]
pub struct Saved {
    experiment: String,
    title: String,
    date: String,
    rounds: Option<usize>,
    only: Option<String>,
    environment: Machine,
    notes: Vec<String>,
    rows: Vec<SavedRow>,
}

#[derive(Clone, Debug, Deserialize)]
struct Machine {
    kernel: String,
    cpu: String,
    cores: usize,
    hz: String,
    clock_source: String,
    rustc: String,
}

#[derive(Clone, Debug, Deserialize)]
struct SavedRow {
    variant: String,
    metric: String,
    unit: String,
    value: f64,
    low: f64,
    high: f64,
    paper: Option<f64>,
}

/// Reads the results in `directory`, in the order in which `softclock-bench list` shows the experiments.
///
/// # Errors
/// Those of reading the directory and its files, and [`io::ErrorKind::InvalidData`] for a file that is not a result.
pub fn read(directory: &Path) -> io::Result<Vec<Saved>> {
    let mut results = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let text = fs::read_to_string(&path)?;
            let result: Saved = serde_json::from_str(&text).map_err(|error| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{}: {error}", path.display()),
                )
            })?;
            results.push(result);
        }
    }
    // The newest result of an experiment first.
    results.sort_by_key(|result| {
        let name = result.experiment.clone();
        (place(&name), name, Reverse(result.date.clone()))
    });
    Ok(results)
}

/// Returns the pages by file name.
pub fn pages(results: &[Saved]) -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut index = String::from(INDEX);
    for result in results {
        let (group, _) = (result.experiment.split_once('/')).unwrap_or((&result.experiment, ""));
        let page = pages.entry(format!("{group}.md")).or_insert_with(|| {
            let _ = writeln!(index, "\n[{group}]({group}.md):");
            format!("# Measured: {group}\n\n{INTRODUCTION}")
        });
        page.push_str(&section(result));
        let name = &result.experiment;
        let entry = format!("- `{name}`: {}\n", about(name));
        // An experiment may have several results, such as of another machine.
        if !index.ends_with(&entry) {
            index.push_str(&entry);
        }
    }
    pages.insert("README.md".to_owned(), index);
    let busy_server = (results.iter()).find(|result| result.experiment == "soft-timers/table-1");
    pages.extend(busy_server.map(|result| ("cost.svg".to_owned(), cost_chart(result))));
    pages
}

/// Draws the throughput that a busy server loses to events, by the means that fires them.
fn cost_chart(result: &Saved) -> String {
    let wanted =
        |variant: &&str, row: &&SavedRow| row.variant == **variant && row.metric == COST_METRIC;
    let rows = COST_VARIANTS.iter().filter_map(|variant| {
        let row = result.rows.iter().find(|row| wanted(variant, row))?;
        Some(Row {
            variant: row.variant.clone(),
            metric: row.metric.clone(),
            unit: "%",
            value: row.value,
            low: row.low,
            high: row.high,
            paper: None,
            samples: Vec::new(),
        })
    });
    let report = Report {
        title: "cost of an event in a busy web server",
        notes: Vec::new(),
        rows: rows.collect(),
        charts: Vec::new(),
    };
    svg::document(&[(&result.experiment, &report)])
}

const COST_METRIC: &str = "throughput lost";

const COST_VARIANTS: [&str; 6] = [
    "soft event, each 10 us, none left out",
    "soft event, 20 us after the last",
    "timerfd, each 20 us",
    "signal, each 20 us",
    "signal, each 100 us",
    "signal, each 1000 us",
];

fn section(result: &Saved) -> String {
    let Machine {
        kernel,
        cpu,
        cores,
        hz,
        clock_source,
        rustc,
    } = &result.environment;
    let compiler = rustc.split(' ').next().unwrap_or(rustc);
    let mut command = format!("cargo xtask bench {}", result.experiment);
    if let Some(rounds) = result.rounds {
        let _ = write!(command, " --rounds {rounds}");
    }
    if let Some(only) = &result.only {
        let _ = write!(command, " --only '{only}'");
    }
    let mut out = format!(
        "\n## {name}\n\n{title}. Measured on {date} by `{command}`: {kernel}, {cpu}, {cores} processors, \
         HZ {hz}, clock source {clock_source}, rustc {compiler}.\n",
        name = result.experiment,
        title = capitalized(&result.title),
        date = result.date,
    );
    for metrics in metrics_of_same_variants(&result.rows) {
        out.push('\n');
        out.push_str(&table(&metrics));
    }
    out.push('\n');
    for note in &result.notes {
        let _ = writeln!(out, "- {}", escaped(note));
    }
    out
}

/// The rows of one metric.
type Metric<'a> = Vec<&'a SavedRow>;

/// Groups the rows by metric, in order of first appearance, and adjacent metrics that have the same variants into one
/// table.
fn metrics_of_same_variants(rows: &[SavedRow]) -> Vec<Vec<Metric<'_>>> {
    let mut metrics: Vec<Metric<'_>> = Vec::new();
    for row in rows {
        match metrics.iter_mut().find(|rows| rows[0].metric == row.metric) {
            Some(metric) => metric.push(row),
            None => metrics.push(vec![row]),
        }
    }
    let same = |a: &Metric<'_>, b: &Metric<'_>| {
        let variants = |metric: &Metric<'_>| metric.iter().map(|row| row.variant.clone()).collect();
        let (a, b): (Vec<String>, Vec<String>) = (variants(a), variants(b));
        a == b
    };
    let groups = metrics.chunk_by(same);
    groups.map(<[Metric<'_>]>::to_vec).collect()
}

/// Returns a table with a column for each variant, or, with more variants than fit on a page, a line for each.
fn table(metrics: &[Metric<'_>]) -> String {
    let variants = &metrics[0];
    let mut out = String::new();
    // Few variants are columns, so that a metric reads along its line.
    if variants.len() <= MOST_COLUMNS {
        let names: Vec<String> = variants.iter().map(|row| escaped(&row.variant)).collect();
        let _ = writeln!(out, "| | {} |", names.join(" | "));
        let _ = writeln!(out, "|---|{}", "---:|".repeat(names.len()));
        for metric in metrics {
            let cells: Vec<String> = metric.iter().map(|row| cell(row)).collect();
            let _ = writeln!(out, "| {} | {} |", heading(metric[0]), cells.join(" | "));
        }
        return out;
    }
    for (index, columns) in metrics.chunks(MOST_COLUMNS).enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let names: Vec<String> = columns.iter().map(|metric| heading(metric[0])).collect();
        let _ = writeln!(out, "| | {} |", names.join(" | "));
        let _ = writeln!(out, "|---|{}", "---:|".repeat(names.len()));
        for (line, row) in variants.iter().enumerate() {
            let cells: Vec<String> = columns.iter().map(|metric| cell(metric[line])).collect();
            let _ = writeln!(out, "| {} | {} |", escaped(&row.variant), cells.join(" | "));
        }
    }
    out
}

fn heading(row: &SavedRow) -> String {
    format!("{}, {}", escaped(&row.metric), escaped(&row.unit))
}

fn cell(row: &SavedRow) -> String {
    let (value, low, high) = (number(row.value), number(row.low), number(row.high));
    let paper = row.paper.map(|paper| format!("; paper {}", number(paper)));
    match low == value && high == value {
        true => format!("**{value}**{}", paper.unwrap_or_default()),
        false => format!("**{value}** ({low} .. {high}){}", paper.unwrap_or_default()),
    }
}

/// Escapes the characters that have a meaning in Markdown tables.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '|' | '*' | '_' | '<' | '>' | '`' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(|c| c.to_uppercase().collect::<String>());
    first.unwrap_or_default() + rest.as_str()
}

fn place(name: &str) -> usize {
    let all = experiments::ALL.iter();
    all.take_while(|experiment| experiment.name != name).count()
}

fn about(name: &str) -> &'static str {
    let mut all = experiments::ALL.iter();
    let experiment = all.find(|experiment| experiment.name == name);
    experiment.map_or("no longer among the experiments", |experiment| {
        experiment.about
    })
}

/// The most columns of a table, besides its first.
const MOST_COLUMNS: usize = 6;

const INDEX: &str = "# Measurements

Each page is written from the JSON of runs, which is in `results/`, by
`cargo run --release -p softclock-bench -- pages docs/measurements`. To repeat one, run `cargo xtask bench NAME`; to replace
it, add `--json docs/measurements/results/GROUP-NAME.json`. Absolute numbers are those of one machine; ratios carry over
better.
";

const INTRODUCTION: &str = "Medians, with the 10th and the 90th percentile in parentheses unless a line says otherwise; a value \
without them is of one round, or the same in all. Written by `softclock-bench pages` from the JSON of runs; see [the index](README.md).\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(variant: &str, metric: &str, paper: Option<f64>) -> SavedRow {
        SavedRow {
            variant: variant.to_owned(),
            metric: metric.to_owned(),
            unit: "ns".to_owned(),
            value: 2.0,
            low: 1.0,
            high: 3.0,
            paper,
        }
    }

    #[test]
    fn metrics_of_the_same_variants_share_a_table() {
        let rows = [
            row("ours", "cost", None),
            row("a|peer", "cost", Some(4.0)),
            row("ours", "delay", None),
            row("a|peer", "delay", None),
            row("ours", "ratio", None),
        ];
        let groups = metrics_of_same_variants(&rows);
        assert_eq!(groups.len(), 2);
        let expected = "| | ours | a\\|peer |\n|---|---:|---:|\n\
            | cost, ns | **2.00** (1.00 .. 3.00) | **2.00** (1.00 .. 3.00); paper 4.00 |\n\
            | delay, ns | **2.00** (1.00 .. 3.00) | **2.00** (1.00 .. 3.00) |\n";
        assert_eq!(table(&groups[0]), expected);
    }

    #[test]
    fn many_variants_are_lines() {
        let names: Vec<String> = (0..MOST_COLUMNS + 1).map(|n| n.to_string()).collect();
        let rows: Vec<SavedRow> = names.iter().map(|name| row(name, "cost", None)).collect();
        let shown = table(&metrics_of_same_variants(&rows)[0]);
        assert!(shown.starts_with("| | cost, ns |\n|---|---:|\n| 0 | **2.00** (1.00 .. 3.00) |\n"));
        assert_eq!(shown.lines().count(), 2 + names.len());
    }

    #[test]
    fn the_pages_in_docs_are_those_of_their_results() {
        let directory = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/measurements"
        ));
        let results = read(&directory.join("results")).expect("results are there and whole");
        for (name, page) in pages(&results) {
            let there = fs::read_to_string(directory.join(&name)).unwrap_or_default();
            assert!(
                there == page,
                "{name} does not match the results; run: cargo run -p softclock-bench -- pages docs/measurements"
            );
        }
    }
}
