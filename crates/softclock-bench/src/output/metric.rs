//! Quantities that samples have, and their rows.

use super::report::Row;

/// The name of a quantity, its unit, and its value in a sample; `None` leaves the sample out.
pub type Metric<S> = (&'static str, &'static str, fn(&S) -> Option<f64>);

/// Returns the rows of one metric after the other, each with a row for each variant that has values. `setting` is
/// appended to the names of metrics, unless it is empty.
pub fn rows<'a, S: 'a>(
    metrics: &[Metric<S>],
    setting: &str,
    variants: impl IntoIterator<Item = (String, Vec<&'a S>)>,
) -> Vec<Row> {
    let variants: Vec<_> = variants.into_iter().collect();
    let mut rows = Vec::new();
    for &(metric, unit, of) in metrics {
        let metric = match setting {
            "" => metric.to_owned(),
            setting => format!("{metric}; {setting}"),
        };
        for (variant, samples) in &variants {
            let values: Vec<f64> = samples.iter().filter_map(|sample| of(sample)).collect();
            if !values.is_empty() {
                rows.push(Row::of_samples(variant, &metric, unit, &values));
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_of_a_metric_follow_each_other() {
        let metrics: [Metric<f64>; 2] = [
            ("rate", "1/s", |&sample| Some(sample)),
            ("time", "s", |&sample| (sample > 0.0).then(|| 1.0 / sample)),
        ];
        let variants = [
            ("ours".to_owned(), vec![&2.0, &4.0]),
            ("theirs".to_owned(), vec![&0.0]),
        ];
        let rows = rows(&metrics, "alone", variants);
        let found: Vec<_> = rows
            .iter()
            .map(|row| (&*row.variant, &*row.metric, &row.samples[..]))
            .collect();
        assert_eq!(
            found,
            [
                ("ours", "rate; alone", &[2.0, 4.0][..]),
                ("theirs", "rate; alone", &[0.0][..]),
                // The other variant has no value.
                ("ours", "time; alone", &[0.5, 0.25][..]),
            ]
        );
    }
}
