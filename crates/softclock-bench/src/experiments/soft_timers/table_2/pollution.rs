//! The cache misses of Tables II and III, by simulation: the effect of the place at which the handler runs.

use std::time::Duration;

use crate::lab::simulation::{
    Misses, Outcome, Place, Plan, SIZES, Simulated, is_possible, simulate,
};
use crate::output::report::{Context, Row};

/// Returns the misses that the handler adds if it runs every `instructions` instructions, and a note on the method.
pub(super) fn rows(context: &Context, instructions: u64) -> (Vec<Row>, String) {
    if !is_possible() {
        let note = "cache misses are not simulated, as valgrind is not installed (Debian's package valgrind)";
        return (Vec::new(), note.to_owned());
    }
    let plan = if context.smoke { SMOKE } else { FULL };
    context.progress(0, 1, "cache misses under valgrind");
    let simulated = simulate(&plan, &PLACES, instructions);
    context.progress(1, 1, "");
    match simulated {
        Ok(outcome) => (outcome_rows(&outcome), note(instructions)),
        Err(error) => (
            Vec::new(),
            format!("cache misses were not simulated: {error}"),
        ),
    }
}

fn outcome_rows(outcome: &Outcome) -> Vec<Row> {
    let mut rows = vec![Row::of_samples(
        "no events",
        "length of a request, without the kernel's part",
        "instructions",
        &[outcome.instructions_per_request],
    )];
    let Some((never, others)) = outcome.simulated.split_first() else {
        return rows;
    };
    for (cache, misses) in CACHES {
        for other in others {
            let more = more_per_event(never, other, misses);
            if !more.is_empty() {
                let metric = format!("more {cache} misses an event, simulated");
                rows.push(Row::of_samples(name(other.place), metric, "misses", &more));
            }
        }
    }
    rows
}

/// Returns the additional misses per event, for each part that had events.
fn more_per_event(never: &Simulated, with: &Simulated, misses: fn(&Misses) -> u64) -> Vec<f64> {
    let parts = never.parts.iter().zip(&with.parts);
    parts
        .filter(|(_, (_, events))| *events > 0)
        .map(|((without, _), (with, events))| {
            (misses(with) as f64 - misses(without) as f64) / *events as f64
        })
        .collect()
}

fn name(place: Place) -> &'static str {
    match place {
        Place::Never => "no events",
        Place::TriggerState => "soft event: at a trigger state",
        Place::Anywhere => "interrupt: at any instruction",
    }
}

fn note(instructions: u64) -> String {
    format!(
        "the misses are simulated, as cachegrind does it, on the memory accesses of the server's program under valgrind, \
         for caches of {SIZES}. The handler's accesses are put in where {instructions} instructions have passed since the \
         last time, about as many as in the table's time: at the next trigger state, or at once. All else is the same, so \
         that only the effect of the place is seen: neither the kernel's accesses nor those of the delivery of a signal are \
         simulated, and the signal's real cost is higher. (valgrind itself delivers signals at system calls, and so \
         cannot simulate them.) The paper counted 551.4 million misses of data with the APIC and 377.9 with soft timers \
         at 10 us, 355.7 and 282.4 at 20 us; of instructions 153.2 and 149.7, 152.8 and 147.8; of the ITLB 18.25 and 17.00, \
         18.96 and 16.30"
    )
}

type Cache = (&'static str, fn(&Misses) -> u64);

const CACHES: [Cache; 4] = [
    ("D1", |misses| misses.d1),
    ("I1", |misses| misses.i1),
    ("LL", |misses| misses.ll),
    ("ITLB", |misses| misses.itlb),
];

const PLACES: [Place; 3] = [Place::Never, Place::TriggerState, Place::Anywhere];

const SMOKE: Plan = Plan {
    parts: 3,
    part: 100_000,
    patience: Duration::from_secs(10),
};

const FULL: Plan = Plan {
    parts: 20,
    part: 600_000,
    patience: Duration::from_secs(60),
};
