//! The result of a check: finding, status and advice.

use std::io;

use super::proc::reason;

/// The finding about one property of the machine.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// Whether `serve` cannot run without it.
    pub(super) needed: bool,
    pub(super) found: String,
    /// A command or setting that would help.
    pub(super) advice: Option<String>,
}

/// The status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    /// It works but could work better, or its state is unknown.
    Note,
    Missing,
}

/// A group of related checks.
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

    /// Makes a check of the result of a probe: `yes` on success, else `no` and the error.
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

    /// Adds advice, shown only if the status is not ok.
    pub(super) fn advice(self, advice: impl Into<String>) -> Self {
        let advice = (self.status != Status::Ok).then(|| advice.into());
        Self { advice, ..self }
    }

    /// Turns a missing feature into a note, since nothing depends on it.
    pub(super) fn optional(self) -> Self {
        let status = match self.status {
            Status::Missing => Status::Note,
            other => other,
        };
        Self { status, ..self }
    }
}
