//! Draws the gap histogram, and the queue over time, as SVG. Pure.

use softclock_core::Histogram;
use softclock_core::histogram::{bucket_of, upper_bound};

use super::analysis::Stream;
use super::units::format_ns;

/// Draws all streams: gaps as in Figure 8 of *PSPacer/HT*, and below them the queue.
pub(super) fn svg(streams: &[Stream]) -> String {
    let legend: String = streams.iter().zip(0..).map(legend).collect();
    let top = 20 + 18 * streams.len();
    let mut panels = gaps(streams).draw(top);
    let mut height = top + PANEL;
    if streams
        .iter()
        .any(|stream| stream.burstiness.queue().is_some())
    {
        panels += &queues(streams).draw(height);
        height += PANEL;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n{legend}{panels}</svg>\n"
    )
}

/// Escapes text for use between tags and in quoted attributes.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

fn legend((stream, index): (&Stream, usize)) -> String {
    let y = 20 + 18 * index;
    let (colour, name) = (colour(index), escaped(&stream.name));
    let text_y = y + 4;
    format!(
        "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\"/>\
         <text x=\"{}\" y=\"{text_y}\">{name}</text>\n",
        LEFT + 20,
        LEFT + 28
    )
}

/// Two axes, with an outline for each stream.
struct Panel {
    title: &'static str,
    x: Axis,
    y: Axis,
    outlines: Vec<Vec<(f64, f64)>>,
}

struct Axis {
    label: &'static str,
    low: f64,
    high: f64,
    is_log: bool,
    format: fn(f64) -> String,
}

fn gaps(streams: &[Stream]) -> Panel {
    let histograms = streams
        .iter()
        .map(|stream| stream.burstiness.gaps().histogram());
    let buckets: Vec<_> = histograms.clone().flat_map(|gaps| gaps.buckets()).collect();
    let least = buckets.iter().map(|&(upper, _)| upper).min();
    let longest = histograms.clone().map(|gaps| gaps.max_ns()).max();
    let most = buckets.iter().map(|&(_, count)| count).max();
    let high = longest.unwrap_or(1) as f64;
    let low = decade_below(least.unwrap_or(1) as f64);
    Panel {
        title: "Gaps between packets",
        x: Axis {
            label: "gap",
            low,
            high: (high * 1.1).max(low * 10.0),
            is_log: true,
            format: format_ns,
        },
        y: Axis {
            label: "gaps",
            low: FLOOR,
            high: most.unwrap_or(1).max(10) as f64 * 1.5,
            is_log: true,
            format: |count| format!("{count:.0}"),
        },
        outlines: histograms.map(steps).collect(),
    }
}

/// The outline of a histogram, at zero for empty buckets.
fn steps(histogram: &Histogram) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (upper, count) in histogram.buckets() {
        let lower = match bucket_of(upper) {
            0 => 0,
            bucket => upper_bound(bucket - 1) + 1,
        };
        let (from, to, count) = (lower as f64, (upper + 1) as f64, count as f64);
        match points.last() {
            Some(&(end, _)) if end == from => drop(points.pop()),
            _ => points.push((from, FLOOR)),
        }
        points.extend([(from, count), (to, count), (to, FLOOR)]);
    }
    points
}

fn queues(streams: &[Stream]) -> Panel {
    let outline = |stream: &Stream| -> Vec<(f64, f64)> {
        let queue = stream.burstiness.queue();
        let cells = queue.into_iter().flat_map(|queue| queue.envelope.cells());
        cells.map(|(at, most)| (at as f64, most as f64)).collect()
    };
    let outlines: Vec<_> = streams.iter().map(outline).collect();
    let highest =
        |of: fn(&(f64, f64)) -> f64| outlines.iter().flatten().map(of).fold(1.0, f64::max);
    let (last, most) = (highest(|point| point.0), highest(|point| point.1));
    Panel {
        title: "Packets in the virtual bottleneck queue",
        x: Axis {
            label: "time since the first packet",
            low: 0.0,
            high: last,
            is_log: false,
            format: format_ns,
        },
        y: Axis {
            label: "most packets",
            low: 0.0,
            high: most * 1.05,
            is_log: false,
            format: |count| format!("{count:.0}"),
        },
        outlines,
    }
}

impl Panel {
    fn draw(&self, top: usize) -> String {
        let top = (top + TITLE) as f64;
        let bottom = top + HEIGHT;
        let (left, right) = (LEFT as f64, (WIDTH - RIGHT) as f64);
        let x = |value: f64| left + self.x.share(value) * (right - left);
        let y = |value: f64| bottom - self.y.share(value) * HEIGHT;
        let mut text = format!(
            "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{}</text>\n",
            top - 8.0,
            self.title
        );
        for tick in self.x.ticks() {
            let (at, label) = (x(tick), (self.x.format)(tick));
            text += &format!(
                "<path d=\"M{at:.1} {top}V{bottom}\" stroke=\"#ddd\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\n",
                bottom + 16.0
            );
        }
        for tick in self.y.ticks() {
            let (at, label) = (y(tick), (self.y.format)(tick));
            text += &format!(
                "<path d=\"M{left} {at:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n",
                left - 6.0,
                at + 4.0
            );
        }
        for (outline, index) in self.outlines.iter().zip(0..) {
            text += &path(outline.iter().map(|&(a, b)| (x(a), y(b))), colour(index));
        }
        let middle = (top + bottom) / 2.0;
        text + &format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#444\"/>\n\
             <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <text transform=\"translate(16 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            right - left,
            bottom + 34.0,
            self.x.label,
            self.y.label
        )
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>, colour: &str) -> String {
    let mut steps = String::new();
    for (x, y) in points {
        let letter = if steps.is_empty() { 'M' } else { 'L' };
        steps += &format!("{letter}{x:.1} {y:.1}");
    }
    match steps.is_empty() {
        true => String::new(),
        false => format!("<path d=\"{steps}\" fill=\"none\" stroke=\"{colour}\"/>\n"),
    }
}

impl Axis {
    /// Maps a value to its position between the ends of the axis, 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        match self.is_log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// The labelled values: powers of ten on a logarithmic axis, else about five round numbers.
    fn ticks(&self) -> Vec<f64> {
        let first = decade_below(self.high - self.low);
        let within = |value: &f64| *value <= self.high * (1.0 + 1e-9);
        if self.is_log {
            let decades = (0..24).map(|power| 10f64.powi(power));
            return decades.filter(|d| *d >= self.low && within(d)).collect();
        }
        let steps = [0.1, 0.2, 0.5, 1.0, 2.0].map(|factor| factor * first);
        let few = |step: &f64| (self.high - self.low) / step <= 6.0;
        let step = steps.into_iter().find(few).unwrap_or(2.0 * first);
        let values = (0..=6).map(|index| self.low + f64::from(index) * step);
        values.filter(within).collect()
    }
}

fn decade_below(value: f64) -> f64 {
    10f64.powf(value.max(1.0).log10().floor())
}

fn colour(index: usize) -> &'static str {
    const COLOURS: [&str; 6] = [
        "#0062a3", "#c8500a", "#2a7d2e", "#8a3ca0", "#a08a00", "#555555",
    ];
    COLOURS[index % COLOURS.len()]
}

/// Start of a logarithmic axis of counts; below 1, so that a count of 1 is visible.
const FLOOR: f64 = 0.5;

const WIDTH: usize = 800;
const LEFT: usize = 80;
const RIGHT: usize = 30;
const TITLE: usize = 30;
const HEIGHT: f64 = 240.0;
/// Height of a panel with its title and labels.
const PANEL: usize = TITLE + 240 + 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(low: f64, high: f64, is_log: bool) -> Axis {
        let format = format_ns;
        Axis {
            label: "",
            low,
            high,
            is_log,
            format,
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(axis(0.5, 200.0, true).ticks(), [1.0, 10.0, 100.0]);
        assert_eq!(axis(0.0, 36.0, false).ticks(), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(axis(0.0, 1.05, false).ticks().len(), 6);
    }

    #[test]
    fn outlines_go_down_where_nothing_is() {
        let mut histogram = Histogram::new();
        [1, 2, 2, 9].iter().for_each(|&ns| histogram.record(ns));
        let f = FLOOR;
        let first = [
            (1.0, f),
            (1.0, 1.0),
            (2.0, 1.0),
            (2.0, 2.0),
            (3.0, 2.0),
            (3.0, f),
        ];
        let second = [(9.0, f), (9.0, 1.0), (10.0, 1.0), (10.0, f)];
        assert_eq!(steps(&histogram), [&first[..], &second].concat());
    }

    #[test]
    fn shares() {
        assert_eq!(axis(1.0, 100.0, true).share(10.0), 0.5);
        assert_eq!(axis(1.0, 100.0, true).share(0.0), 0.0);
        assert_eq!(axis(0.0, 4.0, false).share(9.0), 1.0);
    }
}
