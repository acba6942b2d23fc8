//! The Prometheus text format, version 0.0.4.

use std::fmt::{self, Display, Write};

use softclock::Histogram;

/// A page of metrics in the Prometheus text format, built family by family.
///
/// Names of metrics and labels are written as they are given; values of labels and help texts are escaped. `softclock
/// top` and [`MetricsEndpoint`](crate::MetricsEndpoint) use pages.
///
/// ```
/// use softclock_http::{MetricType, MetricsPage};
///
/// let mut page = MetricsPage::new();
/// page.family("example_packets_total", MetricType::Counter, "Packets by direction.");
/// page.labelled(&[("direction", "received")], 7);
/// page.labelled(&[("direction", "sent")], 5);
/// page.single("example_open", MetricType::Gauge, "Connections open now.", 2);
///
/// let text = page.to_string();
/// assert!(text.contains("example_packets_total{direction=\"sent\"} 5\n"));
/// assert!(text.ends_with("# TYPE example_open gauge\nexample_open 2\n"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct MetricsPage {
    text: String,
    family: &'static str,
}

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricType {
    /// A total that only rises.
    Counter,
    /// A current value.
    Gauge,
    /// A distribution of values.
    Histogram,
}

impl MetricsPage {
    /// Creates an empty page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a family with its name and one sentence of help. The values that are added next belong to it. A page has
    /// each family once.
    pub fn family(&mut self, name: &'static str, metric_type: MetricType, help: &str) {
        let metric_type = match metric_type {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        self.family = name;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to memory does not fail.
        let _ = writeln!(
            self.text,
            "# HELP {name} {help}\n# TYPE {name} {metric_type}"
        );
    }

    /// Adds a family of one value without labels.
    pub fn single(
        &mut self,
        name: &'static str,
        metric_type: MetricType,
        help: &str,
        value: impl Display,
    ) {
        self.family(name, metric_type, help);
        self.labelled(&[], value);
    }

    /// Adds a value of the family with these labels.
    pub fn labelled(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample("", labels, value);
    }

    /// Adds a histogram of the family with these labels: cumulative counts up to bounds in seconds.
    pub fn distribution(&mut self, labels: &[(&str, &str)], histogram: &Histogram) {
        let mut buckets = histogram.buckets().peekable();
        let mut below = 0;
        let bucket = |page: &mut Self, bound: &str, count: u64| {
            let labels = [labels, &[("le", bound)]].concat();
            page.sample("_bucket", &labels, count);
        };
        for bound in bounds() {
            // Buckets are cumulative: each bound counts all values up to it.
            while let Some((_, count)) = buckets.next_if(|&(upper, _)| upper <= bound) {
                below += count;
            }
            bucket(self, &seconds(bound), below);
        }
        // The remaining values are above the last bound.
        let count = below + buckets.map(|(_, count)| count).sum::<u64>();
        bucket(self, "+Inf", count);
        self.sample("_sum", labels, seconds(histogram.sum_ns()));
        self.sample("_count", labels, count);
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text += self.family;
        self.text += suffix;
        for (index, (name, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.text, "{open}{name}=\"{value}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }
}

impl Display for MetricsPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the bounds of buckets in nanoseconds: two per octave from 255 ns to 26 s. Each is the last value of a bucket
/// of [`Histogram`], so that the counts are exact.
fn bounds() -> impl Iterator<Item = u64> {
    (8..=34).flat_map(|octave| [(1 << octave) - 1, (3 << (octave - 1)) - 1])
}

/// Formats nanoseconds as seconds, exactly and without an exponent.
pub(super) fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_labels() {
        let mut page = MetricsPage::new();
        page.family("a_total", MetricType::Counter, "Counts\nthings.");
        page.labelled(&[("x", "1"), ("y", "\"\\\n")], 5);
        page.single("b", MetricType::Gauge, "B.", 1.5);
        let expected = "# HELP a_total Counts\\nthings.\n# TYPE a_total counter\n\
            a_total{x=\"1\",y=\"\\\"\\\\\\n\"} 5\n# HELP b B.\n# TYPE b gauge\nb 1.5\n";
        assert_eq!(page.into_text(), expected);
    }

    #[test]
    fn histograms_are_cumulative_and_complete() {
        let mut histogram = Histogram::new();
        for ns in [0, 255, 256, 1023, 1024, 1 << 36] {
            histogram.record(ns);
        }
        let mut page = MetricsPage::new();
        page.family("h", MetricType::Histogram, "H.");
        page.distribution(&[], &histogram);
        page.distribution(&[("of", "x")], &histogram);
        let text = page.into_text();
        for line in [
            "h_bucket{le=\"0.000000255\"} 2",
            "h_bucket{le=\"0.000000383\"} 3",
            "h_bucket{le=\"0.000001023\"} 4",
            "h_bucket{le=\"25.769803775\"} 5",
            "h_bucket{le=\"+Inf\"} 6",
            "h_sum 68.719479294",
            "h_count 6",
            "h_bucket{of=\"x\",le=\"+Inf\"} 6",
            "h_count{of=\"x\"} 6",
        ] {
            assert!(
                text.lines().any(|own| own == line),
                "{line} is not in {text}"
            );
        }
    }

    #[test]
    fn seconds_are_plain_numbers() {
        assert_eq!(seconds(0), "0");
        assert_eq!(seconds(1), "0.000000001");
        assert_eq!(seconds(90_000_000_000), "90");
    }
}
