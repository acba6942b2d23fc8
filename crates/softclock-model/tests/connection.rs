//! Searches all short sequences of steps of one connection. `SOFTCLOCK_MODEL_STEPS=11 cargo test --release -p
//! softclock-model --test connection` searches longer ones.

use std::env;

use softclock_model::connection::{Bounds, ConnectionModel, Opening};
use stateright::{Checker, Model};

/// Searches. States of the `reached` kinds must be among those that are found.
fn search(opening: Opening, mut bounds: Bounds, reached: &[&'static str]) {
    let chosen = env::var("SOFTCLOCK_MODEL_STEPS").ok();
    if let Some(steps) = chosen.and_then(|text| text.parse().ok()) {
        bounds.steps = steps;
    }
    let model = ConnectionModel { opening, bounds };
    let checker = model.checker().spawn_bfs().join();
    println!(
        "{opening:?}: {} states, {} of them different, {} steps",
        checker.state_count(),
        checker.unique_state_count(),
        bounds.steps
    );
    for name in ["no panic", "ends", "ends agree"] {
        if let Some(path) = checker.discovery(name) {
            let last = path.last_state();
            panic!(
                "\"{name}\" does not hold after {:#?}: {:#?}",
                last.steps, last.facts
            );
        }
    }
    for name in ["established", "at the bound"].iter().chain(reached) {
        assert!(checker.discovery(name).is_some(), "no state is \"{name}\"");
    }
}

#[test]
fn a_connection_to_a_listener_ends_well_after_any_steps() {
    search(Opening::Passive, Bounds::default(), &[]);
}

#[test]
fn a_connection_opened_by_both_ends_ends_well_after_any_steps() {
    search(Opening::Simultaneous, Bounds::default(), &[]);
}

#[test]
fn an_exchange_over_a_network_that_loses_and_repeats_is_complete() {
    let bounds = Bounds {
        steps: 8,
        losses: 2,
        repetitions: 2,
        times: 4,
        has_aborts: false,
        ..Bounds::default()
    };
    search(Opening::Passive, bounds, &["exchanged"]);
}

#[test]
fn a_connection_that_both_ends_close_at_once_leaves_both_in_time_wait() {
    let bounds = Bounds {
        steps: 10,
        losses: 0,
        repetitions: 0,
        times: 0,
        writes: 0,
        reordering: 0,
        has_aborts: false,
    };
    search(Opening::Passive, bounds, &["both in TIME-WAIT"]);
}
