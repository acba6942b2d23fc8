//! The result of a script.

use std::fmt;

/// The result of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The host did all that the script expects.
    Passed,
    /// The first difference, or the first mistake in the script.
    Failed(String),
    /// The script is about a feature that the host or the runner does not have.
    NotApplicable(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(difference) => write!(f, "failed: {difference}"),
            Self::NotApplicable(reason) => write!(f, "not applicable: {reason}"),
        }
    }
}
