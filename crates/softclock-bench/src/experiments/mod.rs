//! The experiments, one file for each table or figure.

use crate::report::Experiment;

pub mod clock;
pub mod figure_3;
pub mod table_1;
pub mod table_4;
pub mod table_5;
pub mod wheel;

/// All experiments, in the order in which `list` shows them and `run all` runs them.
pub const ALL: &[&Experiment] = &[
    &clock::EXPERIMENT,
    &wheel::EXPERIMENT,
    &table_1::EXPERIMENT,
    &table_4::EXPERIMENT,
    &figure_3::EXPERIMENT,
    &table_5::EXPERIMENT,
];
