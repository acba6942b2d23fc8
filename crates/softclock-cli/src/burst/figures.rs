//! Arranges the figures as rows of text. Pure.

use softclock_core::Histogram;
use softclock_wire::capture::Direction;

use super::analysis::Stream;
use super::units::{format_bytes, format_ns, format_rate};
use crate::values::format_time;

/// A titled group of rows.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) rows: Vec<Row>,
}

/// One figure, with its value for each stream.
pub(super) struct Row {
    pub(super) label: String,
    pub(super) cells: Vec<String>,
}

/// Returns all figures, with a column for each stream.
pub(super) fn sections(streams: &[&Stream]) -> Vec<Section> {
    let row = |label: &str, cell: fn(&Stream) -> String| Row {
        label: label.into(),
        cells: streams.iter().map(|stream| cell(stream)).collect(),
    };
    let traffic = vec![
        row("packets", |s| s.burstiness.volume().packets().to_string()),
        row("bytes", |s| format_bytes(s.burstiness.volume().bytes())),
        row("duration", |s| {
            format_ns(s.burstiness.volume().duration().as_nanos() as f64)
        }),
        row("mean rate", |s| {
            let rate = s.burstiness.volume().mean_rate();
            rate.map_or(NONE.into(), |rate| format_rate(rate.bps()))
        }),
    ];
    let queue = vec![
        row("rate of the bottleneck", |s| {
            let rate = s.options.rate;
            rate.map_or(NONE.into(), |rate| format_rate(rate.bps()))
        }),
        row("burstiness (most packets)", |s| {
            queue(s, |queue| queue.max.packets.to_string())
        }),
        row("mean", |s| {
            queue(s, |queue| format_number(queue.mean_packets()))
        }),
        row("p99.9", |s| {
            queue(s, |queue| queue.packets.quantile_ns(0.999).to_string())
        }),
        row("most bytes", |s| {
            queue(s, |queue| format_bytes(queue.max.bytes))
        }),
    ];
    let trains = vec![
        row("gaps below", |s| format_time(s.options.train_gap)),
        row("trains", |s| s.burstiness.trains().count().to_string()),
        row("longest", |s| s.burstiness.trains().longest().to_string()),
        row("mean length", |s| {
            format_number(s.burstiness.trains().lengths().mean_ns())
        }),
        row("p99.9", |s| {
            let lengths = s.burstiness.trains().lengths();
            lengths.quantile_ns(0.999).to_string()
        }),
    ];
    let gaps = vec![
        row("mean", |s| {
            s.burstiness.gaps().mean_ns().map_or(NONE.into(), format_ns)
        }),
        row("coefficient of variation", |s| {
            let variation = s.burstiness.gaps().variation();
            variation.map_or(NONE.into(), format_number)
        }),
        row("p50", |s| gap(s, |gaps| gaps.quantile_ns(0.5))),
        row("p99", |s| gap(s, |gaps| gaps.quantile_ns(0.99))),
        row("p99.9", |s| gap(s, |gaps| gaps.quantile_ns(0.999))),
        row("longest", |s| gap(s, Histogram::max_ns)),
    ];
    let section = |title, rows| Section { title, rows };
    vec![
        section("traffic", traffic),
        section("virtual bottleneck queue", queue),
        section("trains", trains),
        section("gaps", gaps),
        section("peak over mean (p99.9 over mean)", peaks(streams)),
    ]
}

fn peaks(streams: &[&Stream]) -> Vec<Row> {
    let windows = streams.first().map_or(0, |s| s.options.windows.len());
    let row = |index: usize| Row {
        label: format!("in {}", format_time(streams[0].options.windows[index])),
        cells: streams.iter().map(|stream| peak(stream, index)).collect(),
    };
    (0..windows).map(row).collect()
}

fn peak(stream: &Stream, index: usize) -> String {
    let window = &stream.burstiness.windows()[index];
    match (window.peak_over_mean(), window.p999_over_mean()) {
        (Some(peak), Some(p999)) => format!("{} ({})", format_number(peak), format_number(p999)),
        _ => NONE.into(),
    }
}

fn queue(
    stream: &Stream,
    cell: fn(&softclock_wire::burstiness::QueueStatistics) -> String,
) -> String {
    stream.burstiness.queue().map_or(NONE.into(), cell)
}

fn gap(stream: &Stream, of: fn(&Histogram) -> u64) -> String {
    let gaps = stream.burstiness.gaps().histogram();
    match gaps.is_empty() {
        true => NONE.into(),
        false => format_ns(of(gaps) as f64),
    }
}

/// Returns remarks that affect how to read the figures, one sentence each.
pub(super) fn notes(stream: &Stream) -> Vec<String> {
    let volume = stream.burstiness.volume();
    let mut notes = Vec::new();
    notes.extend(queue_note(stream));
    let left_out = stream.left_out;
    let is_first_of_two = matches!(stream.direction, Some((Direction::First, _)));
    if is_first_of_two {
        notes.push(
            "packets go both ways, and each direction is analysed by itself; --filter 'src ADDRESS' selects one".into(),
        );
    }
    for (what, count) in [
        (
            "packets of unknown direction, analysed with this one",
            if is_first_of_two {
                left_out.undirected
            } else {
                0
            },
        ),
        (
            "packets with a time before that of their predecessor, treated as simultaneous with it",
            volume.reversals(),
        ),
        (
            "packets without a timestamp, left out",
            left_out.without_time,
        ),
        (
            "packets of an unknown link type, to which no filter applies",
            left_out.by_link,
        ),
        ("packets left out by the filter", left_out.by_filter),
    ] {
        if count > 0 {
            notes.push(format!("{what}: {count}"));
        }
    }
    notes
}

/// Returns a note if the queue's figures depend on the length of the capture more than on bursts.
fn queue_note(stream: &Stream) -> Option<String> {
    let volume = stream.burstiness.volume();
    let queue = stream.burstiness.queue()?;
    let (first, last) = (volume.first()?, volume.last()?);
    if let Some(full_at) = queue.full_at {
        let after = format_ns(full_at.ns_since(first) as f64);
        return Some(format!(
            "the rate is below the traffic's: the queue exceeded its limit after {after}, and its figures end there"
        ));
    }
    let is_below = stream.options.rate < volume.mean_rate();
    let busy = last.since(queue.busy_since?);
    (is_below && busy > volume.duration() / 2)
        .then(|| "the rate is below the traffic's mean, so the queue only grows".into())
}

fn format_number(number: f64) -> String {
    match number {
        1000.0.. => format!("{number:.0}"),
        _ => format!("{number:.3}"),
    }
}

/// Shown in place of a figure that does not exist.
const NONE: &str = "-";
