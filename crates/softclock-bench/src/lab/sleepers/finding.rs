//! The results of a sleeper, printed as lines of a name and numbers: `cpu_ns 1234`, and `late NS COUNT` for each bucket
//! of the lateness.

use std::fmt;

use softclock_core::Histogram;
use softclock_core::histogram::{BUCKETS, bucket_of};

/// The results of a sleeper.
#[derive(Clone, Default, Debug)]
pub struct Finding {
    /// Lateness of sleeps; early ones count as 0.
    pub lateness: Histogram,
    /// Sleeps that ended early.
    pub early: u64,
    /// Processor time of the process.
    pub cpu_ns: u64,
    /// The length of the measurement.
    pub elapsed_ns: u64,
    /// Bursts of the load.
    pub bursts: u64,
    /// Processor time of the bursts themselves.
    pub burst_ns: u64,
}

impl Finding {
    /// Returns the number of sleeps that ended.
    pub fn events(&self) -> u64 {
        self.lateness.count()
    }

    /// Returns the processor time besides the bursts: of the sleeps, and of the loop's turns for bursts.
    pub fn overhead_ns(&self) -> f64 {
        self.cpu_ns as f64 - self.burst_ns as f64
    }

    /// Parses the output of a sleeper.
    ///
    /// # Errors
    /// The first line that does not belong to a finding, or a missing value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut counts = [0; BUCKETS];
        let mut largest_ns = 0;
        let mut finding = Self::default();
        for line in text.lines() {
            let bad = || format!("unexpected line from a sleeper: '{line}'");
            let mut words = line.split_whitespace();
            let name = words.next().ok_or_else(bad)?;
            let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
            match (name, numbers.map_err(|_| bad())?.as_slice()) {
                ("early", &[n]) => finding.early = n,
                ("cpu_ns", &[n]) => finding.cpu_ns = n,
                ("elapsed_ns", &[n]) => finding.elapsed_ns = n,
                ("bursts", &[n]) => finding.bursts = n,
                ("burst_ns", &[n]) => finding.burst_ns = n,
                ("late", &[ns, count]) => {
                    counts[bucket_of(ns)] += count;
                    largest_ns = ns.max(largest_ns);
                }
                _ => return Err(bad()),
            }
        }
        if finding.elapsed_ns == 0 {
            return Err("a sleeper printed no elapsed_ns".to_owned());
        }
        finding.lateness = Histogram::from_parts(counts, 0, largest_ns);
        Ok(finding)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "early {}", self.early)?;
        writeln!(f, "cpu_ns {}", self.cpu_ns)?;
        writeln!(f, "elapsed_ns {}", self.elapsed_ns)?;
        writeln!(f, "bursts {}", self.bursts)?;
        writeln!(f, "burst_ns {}", self.burst_ns)?;
        let mut buckets = self.lateness.buckets();
        buckets.try_for_each(|(ns, count)| writeln!(f, "late {ns} {count}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let mut finding = Finding {
            early: 1,
            cpu_ns: 500,
            elapsed_ns: 1000,
            bursts: 2,
            burst_ns: 100,
            ..Finding::default()
        };
        for ns in [0, 7, 60_000, 60_001, 9_000_000] {
            finding.lateness.record(ns);
        }
        let text = finding.to_string();
        let read = Finding::parse(&text).unwrap();
        assert_eq!(read.to_string(), text);
        assert_eq!((read.events(), read.overhead_ns()), (5, 400.0));
        assert_eq!(read.lateness.quantile_ns(0.4), 7);
    }

    #[test]
    fn the_buckets_of_other_languages_are_as_wide() {
        let finding = Finding::parse("elapsed_ns 9\nlate 61439 2\nlate 63487 3\n").unwrap();
        let buckets: Vec<(u64, u64)> = finding.lateness.buckets().collect();
        assert_eq!(buckets, [(61_439, 2), (63_487, 3)]);
    }

    #[test]
    fn what_is_no_finding_is_quoted() {
        for bad in ["late 5", "cpu_ns x", "panic: 5", "\n", "cpu_ns"] {
            let why = Finding::parse(bad).unwrap_err();
            assert!(why.contains(bad.trim()), "{why}");
        }
        assert!(Finding::parse("cpu_ns 5\n").is_err());
    }
}
