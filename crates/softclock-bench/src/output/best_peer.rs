//! Comparison of softclock with the best of its peers: of several peers, and of several settings of one, the best
//! counts.

use crate::output::report::Row;
use crate::output::table::metrics;

/// The direction in which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less, as for times and costs.
    Less,
    /// More, as for rates.
    More,
}

/// The variants and metrics to compare, by their names in rows.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Returns whether a variant is one of softclock's.
    pub is_ours: fn(&str) -> bool,
    /// Returns whether a variant is one of the peers.
    pub is_peer: fn(&str) -> bool,
    /// Returns the better direction of a metric, or `None` if it is not compared.
    pub better: fn(&str) -> Option<Better>,
}

impl Comparison {
    /// Returns a row for each of softclock's variants in each metric that has peers: its value divided by that of the
    /// peer with the best median, by whose name the row goes if there is no other. If both have the same number of samples, ratios are taken sample by sample, because
    /// samples of the same round were measured under the same conditions; otherwise the ratio is that of the medians.
    /// Values that are not above 0 have no ratio, nor has a metric in which that of the best peer is not.
    pub fn rows(&self, rows: &[Row]) -> Vec<Row> {
        let mut ratios = Vec::new();
        for metric in metrics(rows) {
            let Some(better) = (self.better)(metric) else {
                continue;
            };
            let of_metric = || rows.iter().filter(|row| row.metric == metric);
            let peers = of_metric().filter(|row| (self.is_peer)(&row.variant));
            let to = match peers.clone().count() {
                1 => None,
                _ => Some("the best peer"),
            };
            if let Some(best) = best(peers, better) {
                let ours = of_metric().filter(|row| (self.is_ours)(&row.variant));
                let to = to.unwrap_or(&best.variant);
                ratios.extend(ours.filter_map(|ours| ratio(ours, best, to)));
            }
        }
        ratios
    }
}

fn best<'a>(peers: impl Iterator<Item = &'a Row>, better: Better) -> Option<&'a Row> {
    let by_value = |a: &&Row, b: &&Row| a.value.total_cmp(&b.value);
    match better {
        Better::Less => peers.min_by(by_value),
        Better::More => peers.max_by(by_value),
    }
}

fn ratio(ours: &Row, best: &Row, to: &str) -> Option<Row> {
    if ours.value <= 0.0 || best.value <= 0.0 {
        return None;
    }
    let pairs = ours.samples.iter().zip(&best.samples);
    let positive = pairs.clone().all(|(&ours, &best)| ours > 0.0 && best > 0.0);
    let samples: Vec<f64> = match ours.samples.len() == best.samples.len() && positive {
        true => pairs.map(|(ours, best)| ours / best).collect(),
        false => vec![ours.value / best.value],
    };
    Some(Row::of_samples(
        format!("{} beside {}", ours.variant, best.variant),
        format!("relative to {to}: {}", ours.metric),
        "x",
        &samples,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(variant: &str, metric: &str, samples: &[f64]) -> Row {
        Row::of_samples(variant, metric, "us", samples)
    }

    const BY_NAME: Comparison = Comparison {
        is_ours: |variant| variant == "ours",
        is_peer: |variant| variant.starts_with("peer"),
        better: |metric| match metric {
            "cost" => Some(Better::Less),
            "rate" => Some(Better::More),
            _ => None,
        },
    };

    #[test]
    fn the_best_setting_of_the_best_peer_counts() {
        let rows = [
            row("ours", "cost", &[2.0, 4.0, 6.0]),
            row("peer a", "cost", &[9.0, 9.0, 9.0]),
            row("peer b", "cost", &[1.0, 4.0, 4.0]),
            row("idle", "cost", &[0.1, 0.1, 0.1]),
            row("ours", "rate", &[2.0]),
            row("peer a", "rate", &[4.0]),
            row("peer b", "rate", &[1.0]),
            row("ours", "errors", &[1.0]),
            row("peer a", "errors", &[1.0]),
        ];
        let [cost, rate] = <[Row; 2]>::try_from(BY_NAME.rows(&rows)).unwrap();
        assert_eq!(cost.variant, "ours beside peer b");
        assert_eq!(cost.metric, "relative to the best peer: cost");
        // The median of 2, 1 and 1.5, the ratios of the rounds, not the ratio of the medians.
        assert_eq!(cost.value, 1.5);
        assert_eq!(
            (rate.variant.as_str(), rate.value),
            ("ours beside peer a", 0.5)
        );
    }

    #[test]
    fn without_common_rounds_the_medians_are_compared() {
        let rows = [
            row("ours", "cost", &[6.0]),
            row("peer a", "cost", &[1.0, 3.0, 5.0]),
        ];
        let [ratio] = <[Row; 1]>::try_from(BY_NAME.rows(&rows)).unwrap();
        assert_eq!(
            (ratio.value, ratio.metric.as_str()),
            (2.0, "relative to peer a: cost")
        );
    }

    #[test]
    fn nothing_is_said_without_peers_or_of_nothing() {
        assert!(BY_NAME.rows(&[row("ours", "cost", &[1.0])]).is_empty());
        let rows = [row("ours", "cost", &[0.0]), row("peer a", "cost", &[1.0])];
        assert!(BY_NAME.rows(&rows).is_empty());
        let mut rows = vec![row("ours", "cost", &[1.0]), row("peer a", "cost", &[-1.0])];
        assert!(BY_NAME.rows(&rows).is_empty());
        // Another peer is not the best for that.
        rows.push(row("peer b", "cost", &[2.0]));
        assert!(BY_NAME.rows(&rows).is_empty());
    }
}
