//! System calls: results, and calls that block.

use softclock_core::Instant;

use super::clock::Until;
use super::constants::value;
use super::{Runner, Stop};
use crate::errno::Errno;
use crate::host::{Host, Refusal};
use crate::syntax::{Call, Position, ResultValue};

/// A call that has not returned yet.
#[derive(Clone, Debug)]
pub(super) struct Blocked<'s> {
    call: &'s Call,
    at: Position,
    /// When the script expects it to return.
    end: Instant,
    /// The bytes that a write has written so far.
    progress: usize,
}

/// What an attempt of a call comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Returned(i64),
    Failed(Errno),
    /// The program waits.
    Blocks,
}

impl Outcome {
    /// The outcome of a call of the host. A program with a non-blocking socket sees that it would have to wait.
    pub(super) fn of(result: Result<i64, Refusal>, is_nonblocking: bool) -> Result<Self, Stop> {
        match result {
            Ok(value) => Ok(Self::Returned(value)),
            Err(Refusal::Errno(Errno::EAGAIN)) if !is_nonblocking => Ok(Self::Blocks),
            Err(Refusal::Errno(errno)) => Ok(Self::Failed(errno)),
            Err(Refusal::Unsupported(reason)) => Err(Stop::NotApplicable(reason)),
        }
    }
}

impl<'s, H: Host> Runner<'s, H> {
    /// Makes a call. One that does not return at once is tried again whenever the host has done something.
    pub(super) fn call(
        &mut self,
        call: &'s Call,
        at: Position,
        end: Option<Instant>,
    ) -> Result<(), Stop> {
        let mut progress = 0;
        let outcome = self.attempt(call, &mut progress, false)?;
        match (outcome, end) {
            (Outcome::Blocks, Some(end)) => {
                self.blocked = Some(Blocked {
                    call,
                    at,
                    end,
                    progress,
                });
                Ok(())
            }
            (Outcome::Blocks, None) => Err(Stop::Failed(format!("{} blocks", call.name))),
            (outcome, end) => self.returned(call, outcome, end),
        }
    }

    /// Tries the call that blocks once more.
    pub(super) fn retry_blocked(&mut self) -> Result<(), Stop> {
        let Some(mut blocked) = self.blocked.take() else {
            return Ok(());
        };
        match self.attempt(blocked.call, &mut blocked.progress, true)? {
            Outcome::Blocks => {
                self.blocked = Some(blocked);
                Ok(())
            }
            outcome => self
                .returned(blocked.call, outcome, Some(blocked.end))
                .map_err(|stop| stop.at(format_args!("the call at {}", blocked.at))),
        }
    }

    /// Waits until the call that blocks has returned.
    pub(super) fn finish_blocked(&mut self) -> Result<(), Stop> {
        let Some(end) = self.blocked.as_ref().map(|blocked| blocked.end) else {
            return Ok(());
        };
        self.advance(end + self.environment.tolerance, Until::Return)?;
        match &self.blocked {
            None => Ok(()),
            Some(Blocked { call, at, .. }) => {
                let end = self.show_time(end);
                Err(Stop::Failed(format!(
                    "the call at {at}: {} has not returned until {end}",
                    call.name
                )))
            }
        }
    }

    /// Compares the result of a call, and the time at which it returned if it may block.
    fn returned(&self, call: &Call, outcome: Outcome, end: Option<Instant>) -> Result<(), Stop> {
        let is_right = match &call.result {
            ResultValue::Any => true,
            ResultValue::Is(expected) => {
                let expected = value(expected);
                match outcome {
                    Outcome::Returned(value) => expected == Some(value) && call.errno.is_none(),
                    Outcome::Failed(errno) => {
                        let names_other = call
                            .errno
                            .as_deref()
                            .is_some_and(|name| Errno::named(name) != Some(errno));
                        expected == Some(-1) && !names_other
                    }
                    Outcome::Blocks => false,
                }
            }
        };
        if !is_right && !self.environment.ignores_calls {
            let result = match outcome {
                Outcome::Returned(value) => value.to_string(),
                Outcome::Failed(errno) => format!("-1 {errno}"),
                Outcome::Blocks => "nothing yet".to_owned(),
            };
            return Err(Stop::Failed(format!("{} returned {result}", call.name)));
        }
        let tolerance = self.environment.tolerance;
        let is_late = end.is_some_and(|end| self.now > end + tolerance);
        let is_early = end.is_some_and(|end| self.now + tolerance < end);
        match is_late || is_early {
            true => Err(Stop::Failed(format!(
                "{} returned at {}",
                call.name,
                self.show_time(self.now)
            ))),
            false => Ok(()),
        }
    }
}
