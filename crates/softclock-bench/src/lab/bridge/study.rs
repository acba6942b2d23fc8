//! Experiments that measure some setups in turn for some rounds, and then show what was found.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::{Results, Setup, Traffic, report, rounds};
use crate::output::chart::Chart;
use crate::output::report::{Context, Report, Row};

/// What is measured of which setups, and how it is shown.
pub struct Study<R> {
    /// The report's.
    pub title: &'static str,
    /// The experiment's own, after those on the lab.
    pub notes: &'static [&'static str],
    /// What is compared.
    pub setups: fn() -> Vec<Setup>,
    /// How often each is measured.
    pub rounds: usize,
    /// How long `measure` is to measure.
    pub slice: Duration,
    /// So many of the setups have one short round in a smoke run, and the others none.
    pub smoke_setups: usize,
    /// What one round finds of a setup.
    pub measure: fn(&Setup, Traffic, Duration) -> io::Result<R>,
    /// What is shown of what all rounds found.
    pub show: fn(&Results<R>) -> Shown,
}

/// Rows and charts.
type Shown = (Vec<Row>, Vec<Chart>);

impl<R> Study<R> {
    /// Measures, and reports; or why nothing can be measured here.
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
            let found = rounds(context, &setups, count, notes, |setup, traffic| {
                (self.measure)(setup, traffic, slice)
            })?;
            Ok((self.show)(&found))
        })
    }
}

const SMOKE_SLICE: Duration = Duration::from_millis(200);
