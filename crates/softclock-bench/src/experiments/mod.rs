//! The experiments, one file for each table or figure.

use crate::report::Experiment;

pub mod clock;
pub mod table_1;
pub mod wheel;

/// All experiments, in the order in which `list` shows them and `run all` runs them.
pub const ALL: &[&Experiment] = &[&clock::EXPERIMENT, &wheel::EXPERIMENT, &table_1::EXPERIMENT];
