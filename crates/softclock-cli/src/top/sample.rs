//! Parses a page of metrics.

use std::collections::BTreeMap;
use std::time::Instant;

/// The metrics of a page at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    /// Values by name and labels, as written on the page.
    values: BTreeMap<String, f64>,
}

impl Sample {
    /// Parses `page`; `None` if it is not a page of a softclock server.
    pub(super) fn parse(page: &str, at: Instant) -> Option<Self> {
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        let values: BTreeMap<_, _> = samples
            .filter_map(|line| {
                let (key, value) = line.rsplit_once(' ')?;
                Some((key.to_owned(), value.parse().ok()?))
            })
            .collect();
        values
            .contains_key("softclock_threads")
            .then_some(Self { at, values })
    }

    /// The value of a metric without labels; 0 if the page does not have it.
    pub(super) fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(0.0)
    }

    /// Whether the page has a metric of this name, with labels or without.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name) || self.range(name).next().is_some()
    }

    /// Groups the values of a metric by one label, and adds them up over the others.
    pub(super) fn by_label(&self, name: &str, label: &str) -> BTreeMap<&str, f64> {
        let mut sums = BTreeMap::new();
        for (key, value) in self.range(name) {
            if let Some(of) = label_of(key, label) {
                *sums.entry(of).or_default() += value;
            }
        }
        sums
    }

    /// The counts of a histogram's buckets, with their upper bounds in seconds. `of` is a label and its value, for a
    /// metric with several histograms.
    pub(super) fn histogram(&self, name: &str, of: Option<(&str, &str)>) -> Vec<(f64, f64)> {
        let cumulative = format!("{name}_bucket");
        let mut buckets: Vec<(f64, f64)> = self
            .range(&cumulative)
            .filter(|(key, _)| of.is_none_or(|(label, value)| label_of(key, label) == Some(value)))
            .filter_map(|(key, &count)| {
                let bound = match label_of(key, "le")? {
                    "+Inf" => f64::INFINITY,
                    bound => bound.parse().ok()?,
                };
                Some((bound, count))
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut below = 0.0;
        for (_, count) in &mut buckets {
            (below, *count) = (*count, *count - below);
        }
        buckets
    }

    fn range(&self, name: &str) -> impl Iterator<Item = (&String, &f64)> {
        let start = format!("{name}{{");
        self.values
            .range(start.clone()..)
            .take_while(move |(key, _)| key.starts_with(&start))
    }
}

/// The value of a label, unescaped.
fn label_of<'a>(key: &'a str, label: &str) -> Option<&'a str> {
    let mut labels = key.split_once('{')?.1;
    loop {
        let (name, rest) = labels.split_once("=\"")?;
        let (value, rest) = rest.split_at(end_of_value(rest)?);
        if name == label {
            return Some(value);
        }
        labels = rest.strip_prefix("\",")?;
    }
}

/// Position of the first quotation mark that is not escaped by a backslash.
fn end_of_value(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    loop {
        match bytes.next()? {
            (end, b'"') => return Some(end),
            (_, b'\\') => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_histograms() {
        let page = "# TYPE x counter\nsoftclock_threads 2\n\
            x{a=\"1\",b=\"p\"} 3\nx{a=\"2\",b=\"p\"} 4\nx{a=\"1\",b=\"q\"} 5\n\
            h_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 9\nh_bucket{le=\"10\"} 4\n\
            i_bucket{of=\"y\",le=\"1\"} 2\ni_bucket{of=\"z\",le=\"1\"} 3\n\
            n{of=\"\\\"q\\\",\\\\\",then=\"t\"} 1\n";
        let sample = Sample::parse(page, Instant::now()).unwrap();
        assert_eq!(sample.value("softclock_threads"), 2.0);
        let by_label = |name, label| sample.by_label(name, label).into_iter().collect::<Vec<_>>();
        assert_eq!(by_label("x", "a"), [("1", 8.0), ("2", 4.0)]);
        assert_eq!(by_label("x", "b"), [("p", 7.0), ("q", 5.0)]);
        let infinity = f64::INFINITY;
        assert_eq!(
            sample.histogram("h", None),
            [(0.5, 1.0), (10.0, 3.0), (infinity, 5.0)]
        );
        assert_eq!(sample.histogram("i", Some(("of", "z"))), [(1.0, 3.0)]);
        assert_eq!(by_label("n", "of"), [("\\\"q\\\",\\\\", 1.0)]);
        assert_eq!(by_label("n", "then"), [("t", 1.0)]);
        assert_eq!(by_label("n", "none"), []);
        assert!(sample.has("x") && sample.has("softclock_threads"));
        assert!(!sample.has("softclock") && !sample.has("h"));
        assert!(Sample::parse("<html>", Instant::now()).is_none());
    }
}
