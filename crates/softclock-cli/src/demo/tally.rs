//! Adds up slices.

use std::time::Duration;

use super::server::Slice;
use super::variant::{PERIOD, Variant};

/// All slices so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    slices: Vec<Slice>,
}

/// One variant's results as shown: shares are computed from the rounded rates, so that all figures agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Result {
    pub(super) requests_per_s: u64,
    /// Relative change of the request rate against the server without events: -0.1 is a tenth less.
    pub(super) change: f64,
    /// Distance between the quartiles of the changes within single rounds.
    pub(super) spread: f64,
    pub(super) events_per_s: u64,
    /// Fired events, as a share of those that were due.
    pub(super) events_share: f64,
}

impl Tally {
    pub(super) fn add_all(&mut self, slices: impl Iterator<Item = Slice>) {
        self.slices.extend(slices);
    }

    /// Returns a variant's results, or `None` until a round is complete. The rate of requests is that of the server
    /// without events, times the median of the ratios within each round: noise that makes whole rounds faster or slower
    /// does not count as a change.
    pub(super) fn result(&self, variant: Variant) -> Option<Result> {
        let rounds = self.slices.chunks_exact(Variant::ALL.len());
        let of = |round: &[Slice], variant: Variant| {
            let found = round.iter().find(|slice| slice.variant == variant);
            found.copied().expect("each round has each variant")
        };
        let [mut base_rates, mut ratios, mut event_rates] = [const { Vec::new() }; 3];
        for round in rounds {
            let (slice, base) = (of(round, variant), of(round, Variant::Nothing));
            let base_rate = rate(base.requests.max(1), base.time);
            base_rates.push(base_rate);
            ratios.push(rate(slice.requests, slice.time) / base_rate);
            event_rates.push(rate(slice.events, slice.time));
        }
        let base_per_s = quantile(&mut base_rates, 0.5)?.round();
        let ratio = quantile(&mut ratios, 0.5)?;
        let spread = quantile(&mut ratios, 0.75)? - quantile(&mut ratios, 0.25)?;
        let requests_per_s = (base_per_s * ratio).round();
        let events_per_s = quantile(&mut event_rates, 0.5)?.round();
        Some(Result {
            requests_per_s: requests_per_s as u64,
            change: requests_per_s / base_per_s.max(1.0) - 1.0,
            spread,
            events_per_s: events_per_s as u64,
            events_share: events_per_s / asked_per_s(),
        })
    }

    /// The share of a processor that the server used without events; a busy server uses all of one.
    pub(super) fn busy(&self) -> f64 {
        let slices = self.slices.iter();
        let base = slices.filter(|slice| slice.variant == Variant::Nothing);
        let [time, cpu] = base.fold([Duration::ZERO; 2], |[time, cpu], slice| {
            [time + slice.time, cpu + slice.cpu]
        });
        cpu.as_secs_f64() / time.as_secs_f64().max(1e-9)
    }

    /// Number of complete rounds.
    pub(super) fn rounds(&self) -> usize {
        self.slices.len() / Variant::ALL.len()
    }
}

/// Events that are due per second.
pub(super) fn asked_per_s() -> f64 {
    1.0 / PERIOD.as_secs_f64()
}

/// Distribution of the lateness of events, in the histogram's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lateness {
    /// Share of events in each row.
    pub(super) shares: [f64; ROWS],
    /// `None` if no event fired.
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
}

/// Rows by powers of two: below 1 us, 1 to 2 us and so on, and 1024 us and more.
pub(super) const ROWS: usize = 12;

impl Lateness {
    /// Builds the distribution from counts by exclusive upper bound, in ascending order.
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

/// Row of the values below `bound_ns`, which are counted in four buckets for each octave.
fn row_of(bound_ns: u64) -> usize {
    let us = (bound_ns - 1) >> 10;
    (u64::BITS - us.leading_zeros()).min(ROWS as u32 - 1) as usize
}

/// Lower bound of a row, in microseconds.
pub(super) const fn row_begin_us(row: usize) -> u64 {
    if row == 0 { 0 } else { 1 << (row - 1) }
}

fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// The value below which `share` of the values lies, interpolated linearly; `None` without values.
fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = share * values.len().saturating_sub(1) as f64;
    let (below, above) = (
        values.get(place.floor() as usize)?,
        values[place.ceil() as usize],
    );
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Rounds of a busy server; the numbers are the requests per second of each variant.
    pub(in crate::demo) fn tally(rounds: &[[u64; 4]]) -> Tally {
        let mut tally = Tally::default();
        for requests in rounds {
            let slices = Variant::ALL.iter().zip(requests);
            tally.add_all(slices.map(|(&variant, &requests)| Slice {
                variant,
                time: Duration::from_secs(1),
                requests,
                events: 40_000 * u64::from(variant != Variant::Nothing),
                cpu: Duration::from_secs(1),
            }));
        }
        tally
    }

    #[test]
    fn changes_are_within_rounds_and_rates_agree_with_them() {
        let tally = tally(&[
            [1_000, 990, 500, 0],
            [2_000, 1_980, 1_000, 0],
            [3_000, 2_970, 1_500, 0],
        ]);
        let result = tally.result(Variant::Timerfd).unwrap();
        assert_eq!((result.requests_per_s, result.change), (1_000, -0.5));
        let percent = (result.events_share * 100.0).round();
        assert_eq!((result.events_per_s, percent), (40_000, 80.0));
        assert_eq!(result.spread, 0.0);
        assert_eq!(tally.result(Variant::Signal).unwrap().change, -1.0);
        assert_eq!(tally.result(Variant::Nothing).unwrap().change, 0.0);
        assert_eq!(Tally::default().result(Variant::Soft), None);
        assert_eq!((tally.busy(), Tally::default().busy()), (1.0, 0.0));
    }

    /// The median of its rates is a third below that of the server without events, but in most rounds it lost a sixth.
    #[test]
    fn rates_agree_with_changes_where_the_machine_changes() {
        let tally = tally(&[
            [100_000, 0, 83_000, 0],
            [100_000, 0, 66_000, 0],
            [60_000, 0, 50_000, 0],
            [60_000, 0, 50_000, 0],
            [100_000, 0, 66_000, 0],
        ]);
        let [base, timerfd] =
            [Variant::Nothing, Variant::Timerfd].map(|v| tally.result(v).unwrap());
        let shown = timerfd.requests_per_s as f64 / base.requests_per_s as f64 - 1.0;
        assert_eq!(timerfd.change, shown);
        assert!((timerfd.spread - 0.17).abs() < 0.01, "{timerfd:?}");
    }

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&mut [4.0, 1.0, 2.0, 3.0], 0.5), Some(2.5));
        assert_eq!(quantile(&mut [5.0, 1.0, 2.0, 4.0, 3.0], 0.25), Some(2.0));
        assert_eq!(quantile(&mut [7.0], 0.75), Some(7.0));
        assert_eq!(quantile(&mut [], 0.5), None);
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
