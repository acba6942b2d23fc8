//! Formats the figures as JSON. Pure.

use serde_json::{Map, Value, json};
use softclock_core::Histogram;
use softclock_wire::burstiness::{QueueStatistics, Window};

use super::analysis::Stream;
use crate::values::format_time;

/// Formats one stream as an object, or several as a list.
pub(super) fn text(streams: &[Stream], is_list: bool) -> String {
    let mut all: Vec<_> = streams.iter().map(object).collect();
    let value = match is_list {
        true => Value::Array(all),
        false => all.pop().unwrap_or_default(),
    };
    format!("{value:#}\n")
}

fn object(stream: &Stream) -> Value {
    let burstiness = &stream.burstiness;
    let volume = burstiness.volume();
    let gaps = burstiness.gaps();
    let trains = burstiness.trains();
    let lengths = trains.lengths();
    let by_window = |figure: fn(&Window) -> Option<f64>| -> Map<String, Value> {
        let windows = burstiness.windows().iter();
        windows
            .map(|window| (format_time(window.length()), json!(figure(window))))
            .collect()
    };
    json!({
        "name": stream.name,
        "direction": stream.direction.as_ref().map(|(_, label)| label),
        "packets": volume.packets(),
        "bytes": volume.bytes(),
        "duration_ns": volume.duration().as_nanos() as u64,
        "rate_bps": volume.mean_rate().map(|rate| rate.bps()),
        "bottleneck": {
            "rate_bps": stream.options.rate.map(|rate| rate.bps()),
            "line_rate_bps": stream.options.line.map(|rate| rate.bps()),
            "is_mean_rate": stream.rate_is_mean,
        },
        "burstiness": burstiness.queue().map(queue),
        "trains": {
            "gap_ns": stream.options.train_gap.as_nanos() as u64,
            "count": trains.count(),
            "longest": trains.longest(),
            "mean": lengths.mean_ns(),
            "p999": lengths.quantile_ns(0.999),
            "histogram": buckets(&lengths),
        },
        "gap": {
            "mean_ns": gaps.mean_ns(),
            "cv": gaps.variation(),
            "p50_ns": gap(gaps.histogram(), |gaps| gaps.quantile_ns(0.5)),
            "p99_ns": gap(gaps.histogram(), |gaps| gaps.quantile_ns(0.99)),
            "p999_ns": gap(gaps.histogram(), |gaps| gaps.quantile_ns(0.999)),
            "max_ns": gap(gaps.histogram(), Histogram::max_ns),
            "histogram": buckets(gaps.histogram()),
        },
        "peak_over_mean": by_window(Window::peak_over_mean),
        "p999_over_mean": by_window(Window::p999_over_mean),
        "time_reversals": volume.reversals(),
        "left_out": {
            "by_filter": stream.left_out.by_filter,
            "by_link": stream.left_out.by_link,
            "without_time": stream.left_out.without_time,
        },
        "undirected": stream.left_out.undirected,
        "errors": stream.errors,
    })
}

fn queue(queue: &QueueStatistics) -> Value {
    json!({
        "max": queue.max.packets,
        "mean": queue.mean_packets(),
        "p999": queue.packets.quantile_ns(0.999),
        "max_bytes": queue.max.bytes,
        "mean_bytes": queue.mean_bytes(),
        "is_complete": queue.full_at.is_none(),
        "histogram": buckets(&queue.packets),
    })
}

fn gap(gaps: &Histogram, of: fn(&Histogram) -> u64) -> Option<u64> {
    (!gaps.is_empty()).then(|| of(gaps))
}

/// Pairs of the upper bound of a bucket and its count.
fn buckets(histogram: &Histogram) -> Vec<(u64, u64)> {
    histogram.buckets().collect()
}
