//! Charts: curves over two axes, in addition to a report's rows.

use serde::Serialize;
use softclock_core::Histogram;

/// One chart.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// The chart's heading.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves, in the order of the legend.
    pub series: Vec<Series>,
}

/// An axis and its range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// The quantity and its unit.
    pub label: &'static str,
    /// The lower end, at which smaller values are drawn; above zero if `log`.
    pub low: f64,
    /// The upper end, at which larger values are drawn.
    pub high: f64,
    /// Whether the scale is logarithmic, with a tick per decade.
    pub log: bool,
}

/// The points of one curve.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The form in which the points are drawn.
    pub mark: Mark,
    /// The points, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// The form in which points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// A line that joins the points.
    Line,
    /// A dot for each point.
    Dots,
    /// A diamond for each point: values of the paper.
    Paper,
}

impl Chart {
    /// Creates a chart with linear axes from 0 to the largest values of the points, or to 1 if all are smaller. The
    /// labels are those of the horizontal and the vertical axis.
    pub fn from_zero(
        title: String,
        [x_label, y_label]: [&'static str; 2],
        series: Vec<Series>,
    ) -> Self {
        let high = |of: fn(&(f64, f64)) -> f64| {
            let values = series.iter().flat_map(|series| &series.points).map(of);
            values.fold(1.0, f64::max)
        };
        Self {
            title,
            x: Axis::linear(x_label, 0.0, high(|point| point.0)),
            y: Axis::linear(y_label, 0.0, high(|point| point.1)),
            series,
        }
    }
}

impl Axis {
    /// Creates a linear axis from `low` to `high`.
    pub const fn linear(label: &'static str, low: f64, high: f64) -> Self {
        Self {
            label,
            low,
            high,
            log: false,
        }
    }

    /// Creates a logarithmic axis from `low` to `high`.
    pub const fn decades(label: &'static str, low: f64, high: f64) -> Self {
        Self {
            label,
            low,
            high,
            log: true,
        }
    }

    /// Returns the position of `value` on the axis, from 0 (`low`) to 1 (`high`).
    pub fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }
}

impl Series {
    /// Returns the cumulative distribution of `sorted`, which must be in ascending order, at places along the
    /// logarithmic axis `x`.
    pub fn cdf(name: impl Into<String>, x: &Axis, sorted: &[f64]) -> Self {
        let place = |step: usize| {
            let share = step as f64 / CDF_STEPS as f64;
            x.low * (x.high / x.low).powf(share)
        };
        let points = (0..=CDF_STEPS).map(|step| {
            let at_most = sorted.partition_point(|&value| value <= place(step));
            let share = at_most as f64 / sorted.len().max(1) as f64;
            (round(place(step)), round(share))
        });
        Self {
            name: name.into(),
            mark: Mark::Line,
            points: points.collect(),
        }
    }

    /// Returns the cumulative distribution of times, in microseconds on the horizontal axis.
    pub fn cdf_us(name: impl Into<String>, times: &Histogram) -> Self {
        let all = times.count().max(1) as f64;
        let mut below = 0;
        let points = times.buckets().map(|(ns, count)| {
            below += count;
            (round(ns.max(1) as f64 / 1e3), round(below as f64 / all))
        });
        Self {
            name: name.into(),
            mark: Mark::Line,
            points: points.collect(),
        }
    }

    /// Returns points of the paper.
    pub fn paper(name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        Self {
            name: name.into(),
            mark: Mark::Paper,
            points: points.to_vec(),
        }
    }
}

/// Rounds to five significant digits, more than a chart can show.
fn round(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// The number of steps along the axis of a distribution.
const CDF_STEPS: usize = 250;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cdf_rises_from_nothing_to_all() {
        let x = Axis::decades("us", 1.0, 1000.0);
        let series = Series::cdf("s", &x, &[2.0, 30.0, 2000.0]);
        assert_eq!(series.points[0], (1.0, 0.0));
        let (end, share) = series.points[CDF_STEPS];
        assert_eq!((end, share), (1000.0, 0.66667));
        assert!(series.points.is_sorted_by(|a, b| a.1 <= b.1));
    }

    #[test]
    fn an_axis_ends_where_it_says() {
        for axis in [Axis::linear("", 2.0, 4.0), Axis::decades("", 1.0, 100.0)] {
            assert_eq!(axis.share(axis.low), 0.0);
            assert_eq!(axis.share(axis.high), 1.0);
            assert_eq!(axis.share(axis.high * 2.0), 1.0);
            assert_eq!(axis.share(0.0), 0.0);
        }
        assert_eq!(Axis::decades("", 1.0, 100.0).share(10.0), 0.5);
    }
}
