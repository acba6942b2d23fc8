//! Reports as SVG pictures: their charts, then horizontal bars with the spread as whiskers and the paper's value as a
//! diamond.

mod chart;

use std::fmt::Write;

use crate::output::report::{Report, Row};
use crate::output::table::{metrics, number};

/// A complete SVG document with the reports below one another.
pub fn document(figures: &[(&str, &Report)]) -> String {
    let mut canvas = Canvas {
        y: MARGIN,
        labels: LABELS_LEAST,
        body: String::new(),
    };
    for (name, report) in figures {
        canvas.figure(name, report);
    }
    let height = canvas.y + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n{}</svg>\n",
        canvas.body
    )
}

/// The drawing so far, and the vertical position of the next element.
struct Canvas {
    y: f64,
    /// The width of the variants' names; bars start right of it.
    labels: f64,
    body: String,
}

impl Canvas {
    fn figure(&mut self, name: &str, report: &Report) {
        self.y += 18.0;
        let title = format!("{name}: {}", report.title);
        self.text(MARGIN, &title, "font-size=\"15\" font-weight=\"bold\"");
        self.y += 8.0;
        for chart in &report.charts {
            self.chart(chart);
        }
        self.labels = labels(&report.rows);
        for unit in units(&report.rows) {
            let rows = report.rows.iter().filter(|row| row.unit == unit);
            self.panel(unit, &rows.cloned().collect::<Vec<_>>());
        }
        self.y += 12.0;
    }

    /// Draws all rows of one unit on one axis, so that lengths are comparable.
    fn panel(&mut self, unit: &str, rows: &[Row]) {
        let scale = Scale::of(rows, self.labels);
        let top = self.y;
        let gridlines = self.body.len();
        for metric in metrics(rows) {
            self.y += LINE;
            // A white outline keeps the grid from crossing the text.
            let halo = "fill=\"#555\" stroke=\"#fff\" stroke-width=\"4\" paint-order=\"stroke\"";
            self.text(MARGIN, metric, halo);
            self.y += 4.0;
            for row in rows.iter().filter(|row| row.metric == metric) {
                self.bar(row, &scale);
            }
        }
        let grid = grid(&scale, top, self.y);
        // The grid goes behind the bars, but its height is known only after them.
        self.body.insert_str(gridlines, &grid);
        self.axis_labels(unit, &scale, rows);
    }

    fn bar(&mut self, row: &Row, scale: &Scale) {
        let (top, middle) = (self.y + 3.0, self.y + LINE / 2.0);
        let end = scale.x(row.value);
        let _ = writeln!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"/>",
            self.labels,
            (end - self.labels).max(1.0),
            LINE - 6.0,
            BAR,
        );
        self.whisker(scale.x(row.low), scale.x(row.high), middle);
        if let Some(paper) = row.paper {
            self.diamond(scale.x(paper), middle);
        }
        self.y += LINE - 5.0;
        let label = "text-anchor=\"end\"";
        self.text(self.labels - 8.0, &row.variant, label);
        let value = format!("{} {}", number(row.value), row.unit);
        self.text(PLOT_END + 8.0, &value, "");
        self.y += 5.0;
    }

    fn whisker(&mut self, low: f64, high: f64, y: f64) {
        let (top, bottom) = (y - 4.0, y + 4.0);
        let _ = writeln!(
            self.body,
            "<path d=\"M{low:.1} {y}H{high:.1}M{low:.1} {top}V{bottom}M{high:.1} {top}V{bottom}\" \
             stroke=\"#222\" fill=\"none\"/>"
        );
    }

    fn diamond(&mut self, x: f64, y: f64) {
        let _ = writeln!(
            self.body,
            "<path d=\"M{x:.1} {}l5 5l-5 5l-5 -5z\" fill=\"{PAPER}\"/>",
            y - 5.0
        );
    }

    fn axis_labels(&mut self, unit: &str, scale: &Scale, rows: &[Row]) {
        self.y += 14.0;
        for tick in scale.ticks() {
            let middle = "text-anchor=\"middle\" fill=\"#555\"";
            self.text(scale.x(tick), &number(tick), middle);
        }
        self.y += 16.0;
        let kind = if scale.log { ", log scale" } else { "" };
        let spread = "bar: median; whisker: 10 % to 90 %";
        let mut legend = format!("{unit}{kind} ({spread}");
        if rows.iter().any(|row| row.paper.is_some()) {
            legend.push_str("; diamond: the paper");
        }
        legend.push(')');
        self.text(PLOT_END, &legend, "text-anchor=\"end\" fill=\"#555\"");
        self.y += 8.0;
    }

    fn text(&mut self, x: f64, text: &str, attributes: &str) {
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{:.1}\" {attributes}>{}</text>",
            self.y,
            escape(text)
        );
    }
}

/// A mapping from values to positions on the axis.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// The position at which the axis begins; it ends at [`PLOT_END`].
    start: f64,
}

impl Scale {
    /// Chooses a linear scale from zero, or a logarithmic one if the values span more than [`LOG_FROM`].
    fn of(rows: &[Row], start: f64) -> Self {
        let values = || {
            let all = rows
                .iter()
                .flat_map(|row| [row.value, row.low, row.high, row.paper.unwrap_or(row.value)]);
            all.filter(|value| value.is_finite() && *value > 0.0)
        };
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(0.0, f64::max);
        // Nothing to draw: any scale will do, but not one that divides by zero.
        if high == 0.0 {
            return Self {
                low: 0.0,
                high: 1.0,
                log: false,
                start,
            };
        }
        if high / low <= LOG_FROM {
            let step = tick_step(high);
            let high = (high / step).ceil() * step;
            return Self {
                low: 0.0,
                high,
                log: false,
                start,
            };
        }
        Self {
            low: 10f64.powf(low.log10().floor()),
            high: 10f64.powf(high.log10().ceil()),
            log: true,
            start,
        }
    }

    fn x(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            value / self.high
        };
        self.start + (PLOT_END - self.start) * share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut tick = self.low;
        // With tolerance, because sums of steps are inexact.
        while tick <= self.high * 1.001 {
            ticks.push(tick);
            tick = if self.log {
                tick * 10.0
            } else {
                tick + tick_step(self.high)
            };
        }
        ticks
    }
}

fn grid(scale: &Scale, top: f64, bottom: f64) -> String {
    let lines = scale.ticks().into_iter().map(|tick| {
        let x = scale.x(tick);
        format!("<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"#ddd\"/>\n")
    });
    lines.collect()
}

/// Returns 1, 2 or 5 times a power of ten, so that there are four to ten steps up to `high`.
fn tick_step(high: f64) -> f64 {
    let power = 10f64.powf(high.log10().floor() - 1.0);
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let fitting = steps.into_iter().find(|step| high / step <= 10.0);
    fitting.unwrap_or(10.0 * power)
}

/// Returns the width of the longest of the variants' names, within bounds.
fn labels(rows: &[Row]) -> f64 {
    let longest = rows.iter().map(|row| row.variant.chars().count()).max();
    let width = MARGIN + longest.unwrap_or(0) as f64 * LETTER;
    width.clamp(LABELS_LEAST, LABELS_MOST)
}

/// Returns the units in order of first appearance.
fn units(rows: &[Row]) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for row in rows {
        if !seen.contains(&row.unit) {
            seen.push(row.unit);
        }
    }
    seen
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

const WIDTH: f64 = 890.0;
const MARGIN: f64 = 16.0;
/// The position at which bars end and their values begin.
const PLOT_END: f64 = WIDTH - 116.0;
const LABELS_LEAST: f64 = 180.0;
/// The widest names; the bars need the remaining width.
const LABELS_MOST: f64 = 500.0;
/// The average width of a letter.
const LETTER: f64 = 6.4;
/// The height of a bar with its margins.
const LINE: f64 = 18.0;
/// The ratio of values from which a logarithmic scale is used, since the shortest bars of a linear one would be
/// invisible.
const LOG_FROM: f64 = 50.0;
const BAR: &str = "#6d9eeb";
const PAPER: &str = "#c0392b";

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f64]) -> Vec<Row> {
        let row = |value: &f64| Row::of_samples("a<b & c", "cost", "ns", &[*value]);
        values.iter().map(row).collect()
    }

    #[test]
    fn wide_ranges_get_a_log_scale() {
        assert!(!Scale::of(&rows(&[1.0, 50.0]), 0.0).log);
        let scale = Scale::of(&rows(&[1.5, 90.0]), 0.0);
        assert!(scale.log);
        assert_eq!(scale.ticks(), [1.0, 10.0, 100.0]);
    }

    #[test]
    fn linear_scales_start_at_zero_and_end_on_a_tick() {
        let scale = Scale::of(&rows(&[3.0, 43.0]), 0.0);
        assert_eq!((scale.low, scale.high), (0.0, 45.0));
        assert_eq!(scale.ticks().len(), 10);
    }

    #[test]
    fn values_that_cannot_be_drawn_stay_on_the_axis() {
        let scale = Scale::of(&rows(&[0.0, 0.0]), 200.0);
        assert_eq!(scale.x(0.0), 200.0);
    }

    #[test]
    fn long_names_have_room() {
        let name = "x".repeat(60);
        let of = |names: &[&str]| {
            let row = |name: &&str| Row::of_samples(*name, "cost", "ns", &[1.0]);
            labels(&names.iter().map(row).collect::<Vec<_>>())
        };
        assert!(of(&["a", &name]) >= 60.0 * LETTER);
        assert_eq!(of(&["a"]), LABELS_LEAST);
        assert_eq!(of(&[&name.repeat(9)]), LABELS_MOST);
    }

    #[test]
    fn text_is_escaped() {
        let report = Report {
            title: "t",
            notes: Vec::new(),
            rows: rows(&[1.0]),
            charts: Vec::new(),
        };
        let picture = document(&[("n", &report)]);
        assert!(picture.contains("a&lt;b &amp; c"));
    }
}
