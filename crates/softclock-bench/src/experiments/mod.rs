//! The experiments: one file for each table or figure, in the folder of its paper.

use crate::output::report::Experiment;

pub mod burst;
mod cells;
pub mod clocked_interrupts;
pub mod embed;
pub mod event_delivery;
pub mod hostile;
pub mod lrp;
pub mod pspacer;
pub mod serve;
pub mod servers;
pub mod signalling;
pub mod soft_timers;
pub mod tcp;
pub mod wan;

/// All experiments, in the order in which `list` shows them and `run all` runs them.
pub const ALL: &[&Experiment] = &[
    &soft_timers::check::EXPERIMENT,
    &soft_timers::wheel::EXPERIMENT,
    &soft_timers::sleep_precision::EXPERIMENT,
    &soft_timers::table_1::EXPERIMENT,
    &soft_timers::table_2::TABLE_2,
    &soft_timers::table_2::TABLE_3,
    &soft_timers::table_4::EXPERIMENT,
    &soft_timers::figure_3::EXPERIMENT,
    &soft_timers::table_5::EXPERIMENT,
    &soft_timers::table_6::EXPERIMENT,
    &soft_timers::table_8::EXPERIMENT,
    &soft_timers::table_12::EXPERIMENT,
    &soft_timers::table_13::EXPERIMENT,
    &event_delivery::figure_6::EXPERIMENT,
    &event_delivery::figure_7::EXPERIMENT,
    &event_delivery::figure_8::EXPERIMENT,
    &event_delivery::figure_9::EXPERIMENT,
    &event_delivery::table_2::EXPERIMENT,
    &event_delivery::bench::EXPERIMENT,
    &event_delivery::wake_one::EXPERIMENT,
    &pspacer::table_1::EXPERIMENT,
    &pspacer::table_2::EXPERIMENT,
    &pspacer::table_5::EXPERIMENT,
    &pspacer::table_6::EXPERIMENT,
    &pspacer::table_7::EXPERIMENT,
    &pspacer::table_8::EXPERIMENT,
    &pspacer::figure_9::EXPERIMENT,
    &pspacer::tolerance::EXPERIMENT,
    &pspacer::cost::EXPERIMENT,
    &lrp::figure_3::EXPERIMENT,
    &lrp::figure_4::EXPERIMENT,
    &lrp::figure_5::EXPERIMENT,
    &lrp::step::EXPERIMENT,
    &lrp::table_1::EXPERIMENT,
    &lrp::table_1_tcp::EXPERIMENT,
    &lrp::table_2::EXPERIMENT,
    &lrp::demultiplexer::EXPERIMENT,
    &tcp::serve::EXPERIMENT,
    &tcp::loss::EXPERIMENT,
    &tcp::cost::EXPERIMENT,
    &clocked_interrupts::table_1::EXPERIMENT,
    &clocked_interrupts::latency::EXPERIMENT,
    &signalling::load::EXPERIMENT,
    &signalling::livelock::EXPERIMENT,
    &embed::runtimes::EXPERIMENT,
    &embed::media::EXPERIMENT,
    &embed::timers::EXPERIMENT,
    &embed::quic::EXPERIMENT,
    &wan::delay::EXPERIMENT,
    &burst::speed::EXPERIMENT,
    &serve::head::EXPERIMENT,
    &servers::static_files::EXPERIMENT,
    &hostile::STALLED_STREAMS,
    &hostile::MANY_FIELDS,
    &hostile::CONTROL_FRAMES,
    &hostile::FRAME_FLOODS,
    &hostile::SLOW_CLIENTS,
    &hostile::METRICS,
    &hostile::DEPARTED_CLIENTS,
    &hostile::SLOW_UPLOADS,
    &hostile::STOPPED,
];
