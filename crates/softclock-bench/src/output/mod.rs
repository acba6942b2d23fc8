//! Results: an experiment fills a [`report::Report`] with rows, and the other modules show it, each with the
//! [`environment`](crate::measure::environment) that the numbers came from.
//!
//! [`table`] is for the terminal, [`json`] for other programs, [`svg`] and [`page`] for a browser, and [`measurements`]
//! for the documentation.

pub mod best_peer;
pub mod chart;
pub mod file;
pub mod json;
pub mod measurements;
pub mod page;
pub mod report;
pub mod svg;
pub mod table;
