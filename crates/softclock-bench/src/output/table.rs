//! Reports as tables for the terminal.

use crate::measure::environment::Environment;
use crate::output::report::{Report, Row};

/// Returns the environment, one aligned line per field.
pub fn environment(environment: &Environment) -> String {
    let lines = environment.lines();
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}\n"))
        .collect()
}

/// Returns the report: under each metric its variants, with the paper's number first.
pub fn report(name: &str, report: &Report) -> String {
    let mut out = format!("\n{name}: {}\n", report.title);
    let width = label_width(report);
    for metric in metrics(&report.rows) {
        out.push_str(&heading(metric, width));
        for row in report.rows.iter().filter(|row| row.metric == metric) {
            out.push_str(&line(row, width));
        }
    }
    for note in &report.notes {
        out.push_str(&format!("\nnote: {note}"));
    }
    if !report.notes.is_empty() {
        out.push('\n');
    }
    out
}

/// Returns the metrics in order of first appearance.
pub(crate) fn metrics(rows: &[Row]) -> Vec<&str> {
    let mut seen: Vec<&str> = Vec::new();
    for row in rows {
        if !seen.contains(&row.metric.as_str()) {
            seen.push(&row.metric);
        }
    }
    seen
}

/// Formats `value` with three significant digits, or more if needed for all digits before the point.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        _ if magnitude == 0.0 || magnitude >= 100.0 => 0,
        _ if magnitude >= 10.0 => 1,
        _ if magnitude >= 1.0 => 2,
        _ => (2 - magnitude.log10().floor() as i32).clamp(3, 9) as usize,
    };
    format!("{value:.decimals$}")
}

fn label_width(report: &Report) -> usize {
    let labels = report
        .rows
        .iter()
        .map(|row| (row.variant.chars().count() + 2).max(row.metric.chars().count()));
    labels.max().unwrap_or(0)
}

fn heading(metric: &str, width: usize) -> String {
    format!(
        "\n{metric:width$}  {:>10}  {:>10}  {:>22}\n",
        "paper", "here", "10 % .. 90 %"
    )
}

fn line(row: &Row, width: usize) -> String {
    let paper = row.paper.map_or_else(|| "-".to_owned(), number);
    let spread = format!("{} .. {}", number(row.low), number(row.high));
    format!(
        "  {:variant$}  {paper:>10}  {:>10}  {spread:>22}  {}\n",
        row.variant,
        number(row.value),
        row.unit,
        variant = width - 2,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let shown = [0.0, 0.012_345, 0.5, 1.234_5, 45.67, 123.4, 1_234_567.0].map(number);
        let expected = ["0", "0.0123", "0.500", "1.23", "45.7", "123", "1234567"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![
            Row::of_samples("ours", "cost", "ns", &[1.0]),
            Row::of_samples("a longer peer", "cost", "ns", &[20.0]).paper(3.0),
        ];
        let shown = report(
            "group/name",
            &Report {
                title: "Title",
                notes: vec!["read me".to_owned()],
                rows,
                charts: Vec::new(),
            },
        );
        let expected = "\ngroup/name: Title\n\n\
            cost                  paper        here            10 % .. 90 %\n  \
              ours                    -        1.00            1.00 .. 1.00  ns\n  \
              a longer peer        3.00        20.0            20.0 .. 20.0  ns\n\n\
            note: read me\n";
        assert_eq!(shown, expected);
    }
}
