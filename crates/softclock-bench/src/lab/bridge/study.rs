//! Experiments that measure setups in turn over several rounds.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::{Results, Setup, Traffic, report, rounds};
use crate::measure::turns::chosen;
use crate::output::chart::Chart;
use crate::output::report::{Context, Report, Row};

/// A measurement of several setups, and the presentation of its results.
pub struct Study<R> {
    /// The report's title.
    pub title: &'static str,
    /// The experiment's own notes, which follow those on the lab.
    pub notes: &'static [&'static str],
    /// Returns the setups to compare.
    pub setups: fn() -> Vec<Setup>,
    /// The number of rounds.
    pub rounds: usize,
    /// The time that `measure` measures.
    pub slice: Duration,
    /// The number of setups in a smoke run, which has one short round.
    pub smoke_setups: usize,
    /// Measures one setup once.
    pub measure: fn(&Setup, Traffic, Duration) -> io::Result<R>,
    /// Turns the results of all rounds into rows and charts.
    pub show: fn(&Results<R>) -> Shown,
}

/// Rows and charts.
type Shown = (Vec<Row>, Vec<Chart>);

impl<R> Study<R> {
    /// Measures all setups; returns a report, which has only the reason where labs cannot be created.
    ///
    /// # Errors
    /// Those of [`rounds`].
    pub fn run(&self, context: &Context) -> Result<Report, Box<dyn Error>> {
        report(self.title, self.notes, |notes| {
            let mut setups = (self.setups)();
            let (mut count, mut slice) = (self.rounds, self.slice);
            if context.smoke {
                setups.truncate(self.smoke_setups);
                (count, slice) = (1, SMOKE_SLICE);
            }
            let setups = chosen(context, setups, |setup| setup.name.clone())?;
            let count = context.rounds.unwrap_or(count);
            let found = rounds(context, &setups, count, notes, |setup, traffic| {
                (self.measure)(setup, traffic, slice)
            })?;
            Ok((self.show)(&found))
        })
    }
}

const SMOKE_SLICE: Duration = Duration::from_millis(200);
