//! The rows, charts and notes of `embed/quic`.

use crate::lab::quic::Transfer;
use crate::measure::turns::Found;
use crate::output::chart::{Axis, Chart, Mark, Series};
use crate::output::metric::{self, Metric};
use crate::output::report::{Row, median};
use crate::peers::quic::{On, Sender, Socket};

use super::{Cell, Path, Purpose};

/// Returns the rows of all paths, metric by metric, and the comparisons with quinn on tokio.
pub(super) fn rows(found: &Found<Cell, Transfer>) -> Vec<Row> {
    let mut rows = Vec::new();
    for metric in METRICS {
        for path in paths(found) {
            if metric.0 == LOST && path.purpose == Purpose::Cost {
                continue;
            }
            let variants = at(found, path)
                .map(|(cell, samples)| (cell.sender.name().to_owned(), samples.iter().collect()));
            rows.extend(metric::rows(&[metric], &path.name(), variants));
        }
    }
    let ratios: Vec<Row> = rows.iter().filter_map(|row| ratio(row, &rows)).collect();
    rows.extend(ratios);
    rows
}

/// Returns the paths, in the order of cells.
fn paths(found: &Found<Cell, Transfer>) -> Vec<Path> {
    let mut paths: Vec<Path> = found.iter().map(|(cell, _)| cell.path).collect();
    paths.dedup();
    paths
}

/// Returns the cells of one path.
fn at(found: &Found<Cell, Transfer>, path: Path) -> impl Iterator<Item = &(Cell, Vec<Transfer>)> {
    found.iter().filter(move |(cell, _)| cell.path == path)
}

/// Compares a row of loss or processor time with that of quinn on tokio.
fn ratio(row: &Row, rows: &[Row]) -> Option<Row> {
    let is_compared = row.metric.starts_with(LOST) || row.metric.starts_with(COST);
    let is_ours = row.variant.contains("paced") || row.variant.contains("softclock");
    if !is_compared || !is_ours {
        return None;
    }
    let is_base = |other: &&Row| other.metric == row.metric && other.variant == BASE.name();
    let base = rows.iter().find(is_base).filter(|base| base.value > 0.0)?;
    Some(Row::of_samples(
        format!("{} beside {}", row.variant, base.variant),
        format!("relative: {}", row.metric),
        "x",
        &[row.value / base.value],
    ))
}

/// Returns a chart of loss for each rate and round trip, by queue.
pub(super) fn charts(found: &Found<Cell, Transfer>) -> Vec<Chart> {
    let of_loss = |path: &Path| path.purpose == Purpose::Loss;
    let paths: Vec<Path> = paths(found).into_iter().filter(of_loss).collect();
    let mut lines: Vec<(u64, u64)> = paths
        .iter()
        .map(|path| (path.mbit, path.round_trip_ms))
        .collect();
    lines.dedup();
    let chart = |(mbit, ms)| {
        let mut series: Vec<Series> = Vec::new();
        let queues = paths
            .iter()
            .filter(|path| (path.mbit, path.round_trip_ms) == (mbit, ms));
        for path in queues {
            for (cell, samples) in at(found, *path) {
                let lost: Vec<f64> = samples.iter().map(lost).collect();
                let lost = median(&lost);
                let name = cell.sender.name();
                let place = series.iter().position(|of| of.name == name);
                let place = place.unwrap_or_else(|| {
                    series.push(Series {
                        name: name.to_owned(),
                        mark: Mark::Line,
                        points: Vec::new(),
                    });
                    series.len() - 1
                });
                series[place].points.push((path.queue as f64, lost));
            }
        }
        Chart {
            title: format!("packets lost by queue, {mbit} Mbit/s, {ms} ms"),
            x: Axis::decades("packets in the queue", 1.0, 100.0),
            y: Axis::decades("packets lost, %", 0.01, 100.0),
            series,
        }
    };
    lines.into_iter().map(chart).collect()
}

/// Adds the notes on the paths that each of quinn's senders fills, and on the counts.
pub(super) fn add_notes(found: &Found<Cell, Transfer>, notes: &mut Vec<String>) {
    for sender in Sender::QUINN {
        let fills = |(cell, samples): &&(Cell, Vec<Transfer>)| {
            let shares: Vec<f64> = samples.iter().map(|of| share(cell, of)).collect();
            cell.sender == sender && cell.path.purpose == Purpose::Loss && median(&shares) >= 95.0
        };
        let names: Vec<String> = found
            .iter()
            .filter(fills)
            .map(|(cell, _)| cell.path.name())
            .collect();
        let names = match names.is_empty() {
            true => "none".to_owned(),
            false => names.join("; "),
        };
        notes.push(format!(
            "95 % of the bottleneck's rate is reached by {} at: {names}",
            sender.name()
        ));
    }
    let all = || found.iter().flat_map(|(_, samples)| samples);
    let otherwise: u64 = all().map(|of| of.path.lost_otherwise).sum();
    let counted = || all().filter_map(|of| Some((of.path.queue_full, of.own_lost?)));
    let [dropped, own] = counted().fold([0, 0], |[dropped, own], (of_path, of_sender)| {
        [dropped + of_path, own + of_sender]
    });
    notes.push(format!(
        "the queues dropped {dropped} packets of the senders that count; these counted {own} as lost, which misses those lost \
         in the last round trip; {otherwise} packets of all were lost otherwise"
    ));
}

fn lost(transfer: &Transfer) -> f64 {
    let path = transfer.path;
    100.0 * path.queue_full as f64 / (path.queue_full + path.sent).max(1) as f64
}

/// Returns the share of the bottleneck's rate that the transfer used, its headers included.
fn share(cell: &Cell, transfer: &Transfer) -> f64 {
    let bits = transfer.bytes as f64 * 8.0 / STREAM_PART;
    100.0 * bits / transfer.elapsed.as_secs_f64() / (cell.path.mbit as f64 * 1e6)
}

/// The part of the stream's bytes in all bytes of the frames that carry it.
const STREAM_PART: f64 = 0.946;

const METRICS: [Metric<Transfer>; 3] = [
    (LOST, "%", |transfer| Some(lost(transfer))),
    ("goodput", "Mbit/s", |transfer| {
        Some(transfer.bytes as f64 * 8.0 / transfer.elapsed.as_secs_f64() / 1e6)
    }),
    (COST, "s/GB", |transfer| {
        let gigabytes = transfer.bytes as f64 / 1e9;
        (gigabytes > 0.0).then(|| transfer.ran.as_secs_f64() / gigabytes)
    }),
];

const LOST: &str = "packets lost";
const COST: &str = "processor time of the sender";

/// The sender with which others are compared.
const BASE: Sender = Sender::Quinn(On::Tokio, Socket::Plain);
