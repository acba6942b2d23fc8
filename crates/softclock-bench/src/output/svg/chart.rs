//! Curves over two axes with a legend below.

use std::fmt::Write;

use super::{Canvas, MARGIN, PAPER, WIDTH, tick_step};
use crate::output::chart::{Axis, Chart, Mark, Series};
use crate::output::table::number;

impl Canvas {
    pub(super) fn chart(&mut self, chart: &Chart) {
        self.y += LINE;
        self.text(MARGIN, &chart.title, "font-weight=\"bold\"");
        self.y += 12.0;
        let frame = Frame { chart, top: self.y };
        self.body.push_str(&frame.grid());
        let (paper, ours): (Vec<_>, Vec<_>) =
            (chart.series.iter().enumerate()).partition(|(_, series)| series.mark == Mark::Paper);
        // Draw the first series, to which the others are compared, and the paper's few points last, on top.
        for (index, series) in ours.into_iter().rev().chain(paper) {
            frame.draw(&mut self.body, series, index);
        }
        self.frame_labels(&frame);
        self.legend(chart);
        self.y += 8.0;
    }

    fn frame_labels(&mut self, frame: &Frame<'_>) {
        for tick in ticks(&frame.chart.y) {
            self.y = frame.y(tick) + 4.0;
            self.text(
                LEFT - 6.0,
                &number(tick),
                "text-anchor=\"end\" fill=\"#555\"",
            );
        }
        self.y = frame.top + HEIGHT + 16.0;
        for tick in ticks(&frame.chart.x) {
            self.text(
                frame.x(tick),
                &number(tick),
                "text-anchor=\"middle\" fill=\"#555\"",
            );
        }
        self.y += 18.0;
        let middle = "text-anchor=\"middle\" fill=\"#555\"";
        self.text(LEFT + BREADTH / 2.0, &axis_label(&frame.chart.x), middle);
        let (x, y) = (LEFT - 46.0, frame.top + HEIGHT / 2.0);
        // `text` draws at `self.y`: move it to the middle of the axis, and back.
        let below = std::mem::replace(&mut self.y, y);
        let turned = format!("{middle} transform=\"rotate(-90 {x} {y})\"");
        self.text(x, &axis_label(&frame.chart.y), &turned);
        self.y = below;
    }

    fn legend(&mut self, chart: &Chart) {
        for (index, series) in chart.series.iter().enumerate() {
            self.y += LINE;
            let color = color(series, index);
            let (x, y) = (LEFT, self.y - 4.0);
            let _ = match series.mark {
                Mark::Line => writeln!(
                    self.body,
                    "<path d=\"M{x} {y}h22\" stroke=\"{color}\" stroke-width=\"2.5\"{}/>",
                    dashes(index)
                ),
                Mark::Dots => writeln!(
                    self.body,
                    "<circle cx=\"{}\" cy=\"{y}\" r=\"3\" fill=\"{color}\"/>",
                    x + 11.0
                ),
                Mark::Paper => writeln!(
                    self.body,
                    "<path d=\"M{} {}l5 5l-5 5l-5 -5z\" fill=\"{color}\"/>",
                    x + 11.0,
                    y - 5.0
                ),
            };
            self.text(LEFT + 30.0, &series.name, "");
        }
    }
}

/// The position of a chart on the canvas.
struct Frame<'a> {
    chart: &'a Chart,
    top: f64,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        LEFT + BREADTH * self.chart.x.share(value)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + HEIGHT * (1.0 - self.chart.y.share(value))
    }

    fn grid(&self) -> String {
        let (top, bottom, right) = (self.top, self.top + HEIGHT, LEFT + BREADTH);
        let mut lines = String::new();
        for tick in ticks(&self.chart.x) {
            let _ = write!(lines, "M{:.1} {top:.1}V{bottom:.1}", self.x(tick));
        }
        for tick in ticks(&self.chart.y) {
            let _ = write!(lines, "M{LEFT} {:.1}H{right}", self.y(tick));
        }
        format!("<path d=\"{lines}\" stroke=\"#ddd\"/>\n")
    }

    fn draw(&self, out: &mut String, series: &Series, index: usize) {
        let color = color(series, index);
        let points = series.points.iter().map(|&(x, y)| (self.x(x), self.y(y)));
        let mut path = String::new();
        for (index, (x, y)) in points.enumerate() {
            let _ = match series.mark {
                Mark::Line if index > 0 => write!(path, "L{x:.1} {y:.1}"),
                Mark::Line => write!(path, "M{x:.1} {y:.1}"),
                Mark::Dots => write!(path, "M{x:.1} {y:.1}h0"),
                Mark::Paper => write!(path, "M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0),
            };
        }
        let style = match series.mark {
            Mark::Line => {
                let dashes = dashes(index);
                format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\"{dashes}")
            }
            Mark::Dots => format!("stroke=\"{color}\" stroke-width=\"2\" stroke-linecap=\"round\""),
            Mark::Paper => format!("fill=\"{color}\" stroke=\"#fff\" stroke-width=\"0.7\""),
        };
        let _ = writeln!(out, "<path d=\"{path}\" {style}/>");
    }
}

fn axis_label(axis: &Axis) -> String {
    let kind = if axis.log { ", log scale" } else { "" };
    format!("{}{kind}", axis.label)
}

fn ticks(axis: &Axis) -> Vec<f64> {
    let mut ticks = Vec::new();
    let mut tick = axis.low;
    // With tolerance, because sums of steps are inexact.
    while tick <= axis.low + (axis.high - axis.low) * 1.001 {
        ticks.push(tick);
        tick = if axis.log {
            tick * 10.0
        } else {
            tick + tick_step(axis.high - axis.low)
        };
    }
    ticks
}

fn color(series: &Series, index: usize) -> &'static str {
    match series.mark {
        Mark::Paper => PAPER,
        _ => COLORS[index % COLORS.len()],
    }
}

/// Returns a pattern of dashes for series that repeat a colour.
fn dashes(index: usize) -> &'static str {
    match index / COLORS.len() {
        0 => "",
        1 => " stroke-dasharray=\"7 4\"",
        _ => " stroke-dasharray=\"2 4\"",
    }
}

/// Colours that colour-blind readers can distinguish (Okabe and Ito; grey instead of their yellow).
const COLORS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#d55e00", "#999999",
];

const LINE: f64 = 18.0;
/// The space left of the frame, for the labels of the vertical axis.
const LEFT: f64 = 76.0;
const BREADTH: f64 = WIDTH - LEFT - 40.0;
const HEIGHT: f64 = 300.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_reach_both_ends() {
        let decades = ticks(&Axis::decades("", 0.1, 100.0));
        assert_eq!(decades.len(), 4);
        assert_eq!(ticks(&Axis::linear("", 0.0, 1.0)).len(), 11);
    }
}
