//! Results: an experiment returns a [`report::Report`] with rows, and the other modules present it, with the
//! [`environment`](crate::measure::environment) of the measurement.
//!
//! [`table`] is for the terminal, [`json`] for other programs, [`svg`] and [`page`] for a browser, and [`measurements`]
//! for the documentation.

pub mod best_peer;
pub mod chart;
pub mod file;
pub mod json;
pub mod measurements;
pub mod metric;
pub mod page;
pub mod report;
pub mod svg;
pub mod table;
