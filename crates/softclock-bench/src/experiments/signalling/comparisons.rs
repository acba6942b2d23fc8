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
    // Where there are no other fixed policies, both comparisons have the same row.
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
        let compared = |rows: &[Row]| -> Vec<String> {
            let ratios = comparisons(rows, |_| Some(Better::More));
            let told = |row: &Row| format!("{}, {}: {}", row.variant, row.metric, row.value);
            ratios.iter().map(told).collect()
        };
        let rows = [
            row("interrupt", 8.0),
            row("automatic", 6.0),
            row("kernel", 2.0),
            row("poll", 4.0),
        ];
        let with_interrupt = "automatic beside interrupt, relative to interrupt: rate: 0.75";
        assert_eq!(compared(&rows[..3]), [with_interrupt]);
        let with_best = "automatic beside interrupt, relative to the best peer: rate: 0.75";
        let poll = "poll beside interrupt, relative to interrupt: rate: 0.5";
        assert_eq!(compared(&rows), [with_best, with_interrupt, poll]);
    }
}
