//! Formats the figures and the gap histogram as text, streams side by side. Pure.

use softclock_core::Histogram;

use super::analysis::Stream;
use super::figures::{notes, sections};
use crate::bar::bar;

/// Formats all streams, with as many side by side as fit the width.
pub(super) fn text(streams: &[Stream]) -> String {
    let all: Vec<&Stream> = streams.iter().collect();
    let tables: Vec<String> = all.chunks(SIDE_BY_SIDE).map(table).collect();
    tables.join("\n")
}

fn table(streams: &[&Stream]) -> String {
    let column = (WIDTH - LABEL) / streams.len();
    let mut lines = Vec::new();
    let names = streams.iter().map(|stream| tail(&stream.name, column - 2));
    lines.push(line("", names, column));
    for section in sections(streams) {
        lines.push(String::new());
        lines.push(section.title.to_owned());
        for row in section.rows {
            let label = format!("  {}", row.label);
            lines.push(line(&label, row.cells.into_iter(), column));
        }
    }
    lines.push(String::new());
    lines.push("gap histogram (logarithmic bars)".to_owned());
    lines.extend(histogram(streams, column));
    for stream in streams {
        for note in notes(stream) {
            lines.push(format!("\nnote: {}: {note}", stream.name));
        }
    }
    lines.join("\n") + "\n"
}

fn line(label: &str, cells: impl Iterator<Item = String>, column: usize) -> String {
    let cells: String = cells.map(|cell| format!("{cell:<column$}")).collect();
    format!("{label:<LABEL$}{cells}").trim_end().to_owned()
}

/// Shortens a long name from its beginning, since names of files usually differ at the end.
fn tail(name: &str, width: usize) -> String {
    let length = name.chars().count();
    match length > width {
        true => "…"
            .chars()
            .chain(name.chars().skip(length - width + 1))
            .collect(),
        false => name.to_owned(),
    }
}

fn histogram(streams: &[&Stream], column: usize) -> Vec<String> {
    let counts: Vec<_> = streams
        .iter()
        .map(|stream| by_row(stream.burstiness.gaps().histogram()))
        .collect();
    let filled = |row: &usize| counts.iter().any(|counts| counts[*row] > 0);
    let Some(first) = (0..ROWS).find(filled) else {
        return vec!["  no gaps".into()];
    };
    let last = (0..ROWS).rfind(filled).unwrap_or(first);
    let most = counts.iter().flatten().copied().max().unwrap_or(0);
    let cell = |count: u64| {
        let share = (count as f64 + 1.0).ln() / (most as f64 + 1.0).ln();
        let width = column - COUNT;
        format!("{:<width$} {count:<}", bar(share, width))
    };
    let row = |row: usize| {
        let cells = counts.iter().map(|counts| cell(counts[row]));
        line(&label(row), cells, column)
    };
    (first..=last).map(row).collect()
}

/// Counts the gaps in rows that begin at 1, 2, 5, 10 and so on, as exactly as the histogram's buckets allow.
fn by_row(gaps: &Histogram) -> [u64; ROWS] {
    let mut counts = [0; ROWS];
    for (upper_ns, count) in gaps.buckets() {
        counts[row_of(upper_ns)] += count;
    }
    counts
}

fn row_of(ns: u64) -> usize {
    let row = (0..ROWS).rfind(|&row| row_begin_ns(row) <= ns);
    row.unwrap_or(0)
}

/// Lower bound of a row. The first row counts gaps of zero.
fn row_begin_ns(row: usize) -> u64 {
    match row {
        0 => 0,
        _ => [1, 2, 5][(row - 1) % 3] * 10u64.pow((row as u32 - 1) / 3),
    }
}

fn label(row: usize) -> String {
    let (begin, end) = (row_begin_ns(row), row_begin_ns(row + 1));
    let (factor, unit) = match begin {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let begin = begin / factor;
    match row {
        0 => format!("{:>7}   {unit}", 0),
        _ if row == ROWS - 1 => format!("{begin:>7}-     {unit}"),
        _ => format!("{begin:>7}-{:<4} {unit}", end / factor),
    }
}

/// Number of rows: zero, three for each decade up to 100 s, and one for longer gaps.
const ROWS: usize = 2 + 3 * 11;

const WIDTH: usize = 100;

/// Columns of the label before the first stream.
const LABEL: usize = 28;

/// Columns of the count after a bar.
const COUNT: usize = 11;

const SIDE_BY_SIDE: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_meet_without_gaps() {
        assert_eq!(
            [0, 1, 2, 4, 5, 9, 10, 7_200, 14_400, u64::MAX].map(row_of),
            [0, 1, 2, 2, 3, 3, 4, 12, 13, ROWS - 1]
        );
        assert_eq!(label(12).trim(), "5-10   us");
        assert_eq!(label(13).trim(), "10-20   us");
        assert_eq!(label(0).trim(), "0   ns");
        assert_eq!(label(ROWS - 1).trim(), "100-     s");
    }

    #[test]
    fn long_names_lose_their_begin() {
        assert_eq!(tail("abc", 3), "abc");
        assert_eq!(tail("/ä/b.pcap", 5), "…pcap");
    }
}
