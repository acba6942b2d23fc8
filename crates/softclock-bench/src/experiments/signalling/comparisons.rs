//! Ratios between the policies of one table.

use crate::output::best_peer::{Better, Comparison};
use crate::output::report::Row;

/// Returns the rows that compare policies of this project's stack: the automatic ones with the best of the others, and
/// all with interrupts. Variants of others begin with their name, `kernel` or `nginx`.
pub(in crate::experiments) fn comparisons(
    rows: &[Row],
    better: fn(&str) -> Option<Better>,
) -> Vec<Row> {
    let with_best = Comparison {
        is_ours: is_automatic,
        is_peer: |variant| !is_automatic(variant) && !is_of_others(variant),
        better,
    };
    let with_interrupts = Comparison {
        is_ours: |variant| !is_interrupt(variant) && !is_of_others(variant),
        is_peer: is_interrupt,
        better,
    };
    let mut ratios = with_best.rows(rows);
    // Where interrupts are the best of the fixed policies, both comparisons have the same row.
    for row in with_interrupts.rows(rows) {
        let is_same = |other: &Row| (&other.variant, &other.metric) == (&row.variant, &row.metric);
        if !ratios.iter().any(is_same) {
            ratios.push(row);
        }
    }
    ratios
}

fn is_automatic(variant: &str) -> bool {
    variant.contains("automatic")
}

fn is_interrupt(variant: &str) -> bool {
    variant.ends_with("interrupt")
}

fn is_of_others(variant: &str) -> bool {
    variant.starts_with("kernel") || variant.starts_with("nginx")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_is_compared_once() {
        let row = |variant: &str, value| Row::of_samples(variant, "rate", "1/s", &[value]);
        let rows = [
            row("interrupt", 8.0),
            row("poll", 4.0),
            row("automatic", 6.0),
            row("kernel", 2.0),
        ];
        let ratios = comparisons(&rows, |_| Some(Better::More));
        let found: Vec<(&str, f64)> = ratios
            .iter()
            .map(|row| (&*row.variant, row.value))
            .collect();
        assert_eq!(
            found,
            [
                ("automatic beside interrupt", 0.75),
                ("poll beside interrupt", 0.5)
            ]
        );
    }
}
