//! The experiments, one file for each table or figure.

use crate::report::Experiment;

pub mod burst_speed;
pub mod clock;
pub mod event_bench;
pub mod event_figure_6;
pub mod event_figure_7;
pub mod event_figure_8;
pub mod event_figure_9;
pub mod event_table_2;
pub mod event_wake_one;
pub mod figure_3;
pub mod head;
pub mod hostile;
pub mod pspacer_figure_9;
pub mod pspacer_table_1;
pub mod pspacer_table_2;
pub mod pspacer_table_5;
pub mod pspacer_table_6;
pub mod pspacer_table_7;
pub mod pspacer_table_8;
pub mod pspacer_tolerance;
pub mod servers_static;
pub mod sleep_precision;
pub mod table_1;
pub mod table_13;
pub mod table_2;
pub mod table_4;
pub mod table_5;
pub mod table_6;
pub mod table_8;
pub mod wan_delay;
pub mod wheel;

/// All experiments, in the order in which `list` shows them and `run all` runs them.
pub const ALL: &[&Experiment] = &[
    &clock::EXPERIMENT,
    &wheel::EXPERIMENT,
    &sleep_precision::EXPERIMENT,
    &table_1::EXPERIMENT,
    &table_2::TABLE_2,
    &table_2::TABLE_3,
    &table_4::EXPERIMENT,
    &figure_3::EXPERIMENT,
    &table_5::EXPERIMENT,
    &table_6::EXPERIMENT,
    &table_8::EXPERIMENT,
    &table_13::EXPERIMENT,
    &event_figure_6::EXPERIMENT,
    &event_figure_7::EXPERIMENT,
    &event_figure_8::EXPERIMENT,
    &event_figure_9::EXPERIMENT,
    &event_table_2::EXPERIMENT,
    &event_bench::EXPERIMENT,
    &event_wake_one::EXPERIMENT,
    &pspacer_table_1::EXPERIMENT,
    &pspacer_table_2::EXPERIMENT,
    &pspacer_table_5::EXPERIMENT,
    &pspacer_table_6::EXPERIMENT,
    &pspacer_table_7::EXPERIMENT,
    &pspacer_table_8::EXPERIMENT,
    &pspacer_figure_9::EXPERIMENT,
    &pspacer_tolerance::EXPERIMENT,
    &wan_delay::EXPERIMENT,
    &burst_speed::EXPERIMENT,
    &head::EXPERIMENT,
    &servers_static::EXPERIMENT,
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
