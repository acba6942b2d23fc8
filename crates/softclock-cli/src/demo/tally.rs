//! What the slices add up to.

use std::time::Duration;

use super::server::Slice;
use super::variant::{PERIOD, Variant};

/// The slices so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    slices: Vec<Slice>,
}

/// One variant's results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Result {
    pub(super) requests_per_s: f64,
    /// To the server without events: 1 is no loss.
    pub(super) ratio: f64,
    pub(super) events_per_s: f64,
}

impl Tally {
    pub(super) fn add_all(&mut self, slices: impl Iterator<Item = Slice>) {
        self.slices.extend(slices);
    }

    /// `None` until a round is complete: the medians of the rates, and of the ratios within each round.
    pub(super) fn result(&self, variant: Variant) -> Option<Result> {
        let rounds = self.slices.chunks_exact(Variant::ALL.len());
        let of = |round: &[Slice], variant: Variant| {
            let found = round.iter().find(|slice| slice.variant == variant);
            found.copied().expect("each round has each variant")
        };
        let rates = rounds.map(|round| {
            let (slice, base) = (of(round, variant), of(round, Variant::Nothing));
            let requests = rate(slice.requests, slice.time);
            let ratio = requests / rate(base.requests.max(1), base.time);
            (requests, ratio, rate(slice.events, slice.time))
        });
        let rates: Vec<_> = rates.collect();
        Some(Result {
            requests_per_s: median(rates.iter().map(|rate| rate.0))?,
            ratio: median(rates.iter().map(|rate| rate.1))?,
            events_per_s: median(rates.iter().map(|rate| rate.2))?,
        })
    }

    /// The share of a processor that the server had when it had nothing but requests to do; it would take all of one.
    pub(super) fn busy(&self) -> f64 {
        let slices = self.slices.iter();
        let base = slices.filter(|slice| slice.variant == Variant::Nothing);
        let [time, cpu] = base.fold([Duration::ZERO; 2], |[time, cpu], slice| {
            [time + slice.time, cpu + slice.cpu]
        });
        cpu.as_secs_f64() / time.as_secs_f64().max(1e-9)
    }

    /// How many rounds are complete.
    pub(super) fn rounds(&self) -> usize {
        self.slices.len() / Variant::ALL.len()
    }
}

/// The events that were asked for in a second.
pub(super) fn asked_per_s() -> f64 {
    1.0 / PERIOD.as_secs_f64()
}

/// How late events were, in the histogram's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lateness {
    /// The share of events in each row.
    pub(super) shares: [f64; ROWS],
    /// `None` if nothing fired.
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
}

/// Rows by powers of two: below 1 us, 1 to 2 us and so on, and 1024 us and more.
pub(super) const ROWS: usize = 12;

impl Lateness {
    /// From counts by exclusive upper bound, ascending.
    pub(super) fn of(counts: impl Iterator<Item = (u64, u64)>) -> Self {
        let counts: Vec<_> = counts.filter(|&(_, count)| count > 0).collect();
        let all: u64 = counts.iter().map(|&(_, count)| count).sum();
        let mut rows = [0; ROWS];
        for &(bound_ns, count) in &counts {
            rows[row_of(bound_ns)] += count;
        }
        let quantile = |share: f64| {
            let mut below = 0;
            counts.iter().find_map(|&(bound_ns, count)| {
                below += count;
                (below as f64 >= all as f64 * share).then_some(bound_ns)
            })
        };
        Self {
            shares: rows.map(|count| count as f64 / all.max(1) as f64),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
        }
    }
}

/// Of values below `bound_ns`, which are counted four to an octave.
fn row_of(bound_ns: u64) -> usize {
    let us = (bound_ns - 1) >> 10;
    (u64::BITS - us.leading_zeros()).min(ROWS as u32 - 1) as usize
}

/// In microseconds, by which a row begins.
pub(super) const fn row_begin_us(row: usize) -> u64 {
    if row == 0 { 0 } else { 1 << (row - 1) }
}

fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len() / 2)?;
    let below = values[(values.len() - 1) / 2];
    Some((middle + below) / 2.0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Some rounds in which the variants answered so many requests a second.
    pub(in crate::demo) fn tally(requests: [u64; 4]) -> Tally {
        let mut tally = Tally::default();
        for round in 0..3 {
            let slices = Variant::ALL
                .iter()
                .zip(requests)
                .map(|(&variant, requests)| Slice {
                    variant,
                    time: Duration::from_secs(1),
                    requests: requests * (round + 1),
                    events: 40_000 * u64::from(variant != Variant::Nothing),
                    cpu: Duration::from_secs(1),
                });
            tally.add_all(slices);
        }
        tally
    }

    #[test]
    fn ratios_are_within_rounds() {
        let tally = tally([1_000, 990, 500, 0]);
        let result = tally.result(Variant::Timerfd).unwrap();
        assert_eq!(result.requests_per_s, 1_000.0);
        assert_eq!((result.ratio, result.events_per_s), (0.5, 40_000.0));
        assert_eq!(tally.result(Variant::Signal).unwrap().ratio, 0.0);
        assert_eq!(Tally::default().result(Variant::Soft), None);
        assert_eq!((tally.busy(), Tally::default().busy()), (1.0, 0.0));
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }

    #[test]
    fn lateness_falls_into_rows() {
        let late = Lateness::of([(1_024, 1), (2_048, 2), (40_960, 96), (1 << 40, 1)].into_iter());
        assert_eq!((late.shares[0], late.shares[1]), (0.01, 0.02));
        assert_eq!((late.shares[6], late.shares[ROWS - 1]), (0.96, 0.01));
        assert_eq!((late.p50_ns, late.p99_ns), (Some(40_960), Some(40_960)));
        assert_eq!(Lateness::of(std::iter::empty()).p50_ns, None);
    }
}
