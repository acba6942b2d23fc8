//! Searches all short sequences of steps of one connection. `SOFTCLOCK_MODEL_DEPTH=12 cargo test --release -p
//! softclock-model --test connection` searches deeper.

use std::env;

use softclock_model::connection::{Bounds, ConnectionModel, Opening};
use stateright::{Checker, Model};

fn search(opening: Opening, bounds: Bounds, depth: usize) {
    let chosen = env::var("SOFTCLOCK_MODEL_DEPTH").ok();
    let depth = chosen.and_then(|text| text.parse().ok()).unwrap_or(depth);
    let model = ConnectionModel { opening, bounds };
    let checker = model.checker().target_max_depth(depth).spawn_bfs().join();
    println!(
        "{opening:?}: {} states, {} of them different, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
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
    assert!(checker.discovery("established").is_some());
}

#[test]
fn a_connection_to_a_listener_ends_well_after_any_steps() {
    search(Opening::Passive, Bounds::default(), 8);
}

#[test]
fn a_connection_opened_by_both_ends_ends_well_after_any_steps() {
    search(Opening::Simultaneous, Bounds::default(), 8);
}

#[test]
fn an_exchange_over_a_network_that_loses_and_repeats_is_complete() {
    let bounds = Bounds {
        losses: 2,
        repetitions: 2,
        times: 4,
        has_aborts: false,
        ..Bounds::default()
    };
    search(Opening::Passive, bounds, 9);
}
