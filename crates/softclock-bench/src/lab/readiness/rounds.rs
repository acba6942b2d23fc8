//! Measurements of all readiness mechanisms and of libevent in turn, so that noise of the machine affects all alike.

use std::convert::Infallible;
use std::io;

use softclock::events::Mechanism;
use softclock::fs::raise_descriptor_limit;

use crate::output::best_peer::{Better, Comparison};
use crate::output::chart::{Mark, Series};
use crate::output::report::{Context, Row};
use crate::peers::libevent::Libevent;

/// Calls `ours` and `libevents` in each round for each number of descriptors, to add their samples. They create their
/// sets of descriptors anew each time, because not all sets fit into a process at once. A failure is added to `notes`,
/// and ends the part of that mechanism or setting.
pub fn in_turn(
    context: &Context,
    sizes: &[usize],
    rounds: usize,
    notes: &mut Vec<String>,
    ours: impl Fn(Mechanism, usize, &mut Samples<'_>) -> io::Result<()>,
    libevents: impl Fn(&Libevent, usize, &mut Samples<'_>) -> Result<(), String>,
) -> Found {
    // The limit may stay lower; creating the descriptors shows it.
    raise_descriptor_limit();
    let mut found = Found::default();
    let mut libevent = Libevent::all(notes);
    let mut failed: Vec<(Mechanism, usize)> = Vec::new();
    let total = rounds * sizes.len();
    for done in 0..total {
        let size = sizes[done % sizes.len()];
        // Rotate the order, so that none always runs first.
        let round = done / sizes.len();
        let of_round = context.round(done, total, &format!("{size} descriptors"), || {
            let mut found = Found::default();
            let mut mechanisms = Mechanism::ALL;
            mechanisms.rotate_left(round % Mechanism::ALL.len());
            for is_ours in [round.is_multiple_of(2), !round.is_multiple_of(2)] {
                if !is_ours {
                    libevent.retain(|peer| {
                        let took_part = libevents(peer, size, &mut found.of(peer.name()));
                        took_part.map_err(|note| notes.push(note)).is_ok()
                    });
                    continue;
                }
                for mechanism in mechanisms {
                    let has_failed = |&(who, with): &_| who == mechanism && size >= with;
                    // More descriptors cannot succeed where fewer failed.
                    if failed.iter().any(has_failed) {
                        continue;
                    }
                    let mut samples = found.of(mechanism.name());
                    if let Err(error) = ours(mechanism, size, &mut samples) {
                        notes.push(format!("{mechanism} with {size} descriptors: {error}"));
                        failed.push((mechanism, size));
                    }
                }
            }
            Ok::<_, Infallible>(found)
        });
        let Ok(of_round) = of_round;
        found.merge(of_round);
    }
    context.progress(total, total, "");
    found
}

/// The samples of all rounds.
#[derive(Debug, Default)]
pub struct Found(Vec<Kind>);

/// Samples of one metric of one variant.
#[derive(Debug)]
struct Kind {
    variant: &'static str,
    metric: String,
    samples: Vec<f64>,
}

/// The destination of a variant's samples.
#[derive(Debug)]
pub struct Samples<'a> {
    variant: &'static str,
    found: &'a mut Found,
}

impl Samples<'_> {
    /// Adds samples of one metric.
    pub fn add(&mut self, metric: String, samples: &[f64]) {
        let kinds = &mut self.found.0;
        let known = kinds
            .iter_mut()
            .find(|kind| kind.variant == self.variant && kind.metric == metric);
        match known {
            Some(kind) => kind.samples.extend(samples),
            None => kinds.push(Kind {
                variant: self.variant,
                metric,
                samples: samples.to_vec(),
            }),
        }
    }
}

impl Found {
    /// Adds the samples of another round.
    fn merge(&mut self, other: Self) {
        for kind in other.0 {
            self.of(kind.variant).add(kind.metric, &kind.samples);
        }
    }

    fn of(&mut self, variant: &'static str) -> Samples<'_> {
        Samples {
            variant,
            found: self,
        }
    }

    /// Returns a row for each metric of each variant, grouped by metric.
    pub fn rows(&self, unit: &'static str) -> Vec<Row> {
        let mut kinds: Vec<&Kind> = self
            .0
            .iter()
            .filter(|kind| !kind.samples.is_empty())
            .collect();
        let first = |metric: &str| self.0.iter().position(|kind| kind.metric == metric);
        kinds.sort_by_key(|kind| first(&kind.metric));
        let row = |kind: &Kind| Row::of_samples(kind.variant, &*kind.metric, unit, &kind.samples);
        kinds.into_iter().map(row).collect()
    }
}

/// Compares the mechanisms of softclock whose cost does not grow with the number of descriptors with the best setting
/// of libevent.
pub fn beside_libevent(rows: &[Row]) -> Vec<Row> {
    let comparison = Comparison {
        is_ours: |variant| {
            [Mechanism::Epoll, Mechanism::IoUring]
                .map(Mechanism::name)
                .contains(&variant)
        },
        is_peer: |variant| Libevent::NAMES.contains(&variant),
        better: |_| Some(Better::Less),
    };
    comparison.rows(rows)
}

/// Returns a curve for each variant: its values of `metric(size)` for each number of descriptors.
pub fn curves(rows: &[Row], sizes: &[usize], metric: impl Fn(usize) -> String) -> Vec<Series> {
    let ours = Mechanism::ALL.map(Mechanism::name);
    let variants = ours.into_iter().chain(Libevent::NAMES);
    let value = |variant: &str, metric: &str| {
        let row = rows
            .iter()
            .find(|row| row.variant == variant && row.metric == metric);
        row.map(|row| row.value)
    };
    variants
        .map(|variant| {
            let point = |&size: &usize| Some((size.max(1) as f64, value(variant, &metric(size))?));
            Series {
                name: variant.into(),
                mark: Mark::Line,
                points: sizes.iter().filter_map(point).collect(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_put_together() {
        let context = Context::new(true);
        let mut notes = Vec::new();
        let ours = |mechanism: Mechanism, size, samples: &mut Samples<'_>| {
            if mechanism == Mechanism::Select && size > 1 {
                return Err(io::Error::other("too many"));
            }
            samples.add(format!("of {size}"), &[1.0, 2.0]);
            Ok(())
        };
        let theirs = |_: &Libevent, _, _: &mut Samples<'_>| Err("without libevent".to_owned());
        let found = in_turn(&context, &[1, 2], 3, &mut notes, ours, theirs);
        assert!(found.0.iter().all(|kind| kind.samples.len() == 6));
        let rows = found.rows("ns");
        let all = Mechanism::ALL.len();
        let place = rows.iter().position(|row| row.metric == "of 2");
        assert_eq!((rows.len(), place), (2 * all - 1, Some(all)));
        // One note for select, and one or two for libevent: missing, or one for each of its settings.
        assert!((2..=3).contains(&notes.len()), "{notes:?}");
        let curves = curves(&rows, &[1, 2], |size| format!("of {size}"));
        let points: usize = curves.iter().map(|curve| curve.points.len()).sum();
        let variants = all + Libevent::NAMES.len();
        assert_eq!((curves.len(), points), (variants, 2 * all - 1));
    }
}
