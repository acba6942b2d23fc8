//! A check of the machine: what was found, how it stands, and what would help.

use std::io;

use super::proc::reason;

/// What was found out about one thing.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// Whether `serve` cannot do without.
    pub(super) needed: bool,
    pub(super) found: String,
    /// The command or setting that would help.
    pub(super) advice: Option<String>,
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    /// It works, and could work better; or it is not known whether it does.
    Note,
    Missing,
}

/// Checks that belong together.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) checks: Vec<Check>,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            needed: false,
            found: found.into(),
            advice: None,
        }
    }

    pub(super) fn note(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            status: Status::Note,
            ..Self::ok(name, found)
        }
    }

    pub(super) fn missing(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            status: Status::Missing,
            ..Self::ok(name, found)
        }
    }

    /// A probe's answer: `yes` if it worked, else `no` and the error.
    pub(super) fn probed(name: &'static str, result: io::Result<()>, yes: &str, no: &str) -> Self {
        match result {
            Ok(()) => Self::ok(name, yes),
            Err(error) => Self::missing(name, format!("{no}: {}", reason(&error))),
        }
    }

    pub(super) fn needed(self) -> Self {
        Self {
            needed: true,
            ..self
        }
    }

    /// What to do, told only where something is to be done.
    pub(super) fn advice(self, advice: impl Into<String>) -> Self {
        let advice = (self.status != Status::Ok).then(|| advice.into());
        Self { advice, ..self }
    }

    /// A feature that nothing depends on yet is noted, not missed.
    pub(super) fn optional(self) -> Self {
        let status = match self.status {
            Status::Missing => Status::Note,
            other => other,
        };
        Self { status, ..self }
    }
}
