//! Every table and figure of the papers, on this machine, beside today's peers.
//!
//! An experiment is one file in [`experiments`]; it fills a [`report::Report`] with rows, and the
//! rest of this crate shows them: [`table`] in the terminal, [`json`] for other programs, [`svg`]
//! and [`page`] for the eye, [`measurements`] in the documentation, each with the [`environment`] the numbers came from.
#![forbid(unsafe_code)]

pub mod best_peer;
pub mod busy_server;
pub mod chart;
pub mod closed_loop;
pub mod command;
pub mod environment;
pub mod event_peer;
pub mod event_rounds;
pub mod event_sets;
pub mod experiments;
pub mod hostile;
pub mod json;
pub mod lab;
pub mod load;
pub mod measure;
pub mod measurements;
pub mod output;
pub mod page;
pub mod peer_program;
pub mod perf;
pub mod processors;
pub mod random;
pub mod report;
pub mod servers;
pub mod simulation;
pub mod sleepers;
pub mod slice;
pub mod stage;
pub mod steal;
pub mod svg;
pub mod table;
