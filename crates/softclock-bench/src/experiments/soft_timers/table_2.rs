//! `soft-timers/table-2` and `table-3`: the cost of an event with the synthetic handler in a busy web server, 10 us and
//! 20 us after its last firing (*Soft Timers*, section 5.1); and 100 us after it, which the kernel's timers can keep.

mod pollution;

use std::error::Error;

use crate::lab::busy_server::compare::{Case, Plan, Samples, compare};
use crate::lab::busy_server::synthetic;
use crate::lab::busy_server::toggles::Toggle;
use crate::lab::busy_server::{self, Workload};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// Table II: events 10 us after their last firing.
pub const TABLE_2: Experiment = Experiment {
    name: "soft-timers/table-2",
    about: "Table II: events with the synthetic handler every 10 us: soft, signal and timerfd",
    takes: Takes::Nothing,
    run: |context| {
        run(
            context,
            "an event each 10 us with a synthetic handler",
            &EACH_10,
            15_000,
        )
    },
};

/// Table III: events 20 us and 100 us after their last firing.
pub const TABLE_3: Experiment = Experiment {
    name: "soft-timers/table-3",
    about: "Table III: events with the synthetic handler every 20 us, and 100 us",
    takes: Takes::Nothing,
    run: |context| {
        run(
            context,
            "an event each 20 or 100 us with a synthetic handler",
            &EACH_20,
            30_000,
        )
    },
};

/// A kind of events and its period.
struct Variant {
    name: &'static str,
    us: u64,
    toggle: fn(u64) -> Box<dyn Toggle>,
    /// Pairs of slices in a round.
    pairs: usize,
    /// The paper's overhead of an event, in microseconds.
    paper: Option<f64>,
}

const fn soft(name: &'static str, us: u64, paper: Option<f64>) -> Variant {
    Variant {
        name,
        us,
        toggle: synthetic::soft,
        pairs: 4,
        paper,
    }
}

const fn signal(name: &'static str, us: u64, paper: Option<f64>) -> Variant {
    Variant {
        name,
        us,
        toggle: synthetic::signal,
        pairs: 1,
        paper,
    }
}

const fn timerfd(name: &'static str, us: u64) -> Variant {
    Variant {
        name,
        us,
        toggle: synthetic::timerfd,
        pairs: 1,
        paper: None,
    }
}

const EACH_10: [Variant; 3] = [
    soft("soft event, 10 us after the last", 10, Some(3.5)),
    signal("signal, 10 us after the last", 10, Some(5.1)),
    timerfd("timerfd, 10 us after the last", 10),
];

const EACH_20: [Variant; 6] = [
    soft("soft event, 20 us after the last", 20, Some(4.8)),
    signal("signal, 20 us after the last", 20, Some(6.7)),
    timerfd("timerfd, 20 us after the last", 20),
    soft("soft event, 100 us after the last", 100, None),
    signal("signal, 100 us after the last", 100, None),
    timerfd("timerfd, 100 us after the last", 100),
];

fn run(
    context: &Context,
    title: &'static str,
    variants: &[Variant],
    instructions: u64,
) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke {
        Plan::SMOKE
    } else {
        Plan::FULL
    };
    let samples = busy_server::run(&Workload::of(context.smoke), || async move {
        let mut cases: Vec<Case> = variants
            .iter()
            .map(|variant| Case {
                toggle: (variant.toggle)(variant.us),
                pairs: variant.pairs,
            })
            .collect();
        compare(context, &plan, &mut cases).await
    })?;
    let pairs = variants.iter().zip(&samples);
    let mut rows = vec![Row::of_samples(
        "all",
        "pairs of slices with a busy server",
        "%",
        &samples.iter().map(Samples::busy_pairs).collect::<Vec<_>>(),
    )];
    rows.extend(pairs.flat_map(|(variant, samples)| variant_rows(variant, samples)));
    let mut notes: Vec<String> = NOTES.iter().map(|&note| note.to_owned()).collect();
    let (misses, note) = pollution::rows(context, instructions);
    rows.extend(misses);
    notes.push(note);
    Ok(Report {
        title,
        notes,
        rows,
        charts: Vec::new(),
    })
}

fn variant_rows(variant: &Variant, samples: &Samples) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |metric, unit, values: &[f64]| {
        // A variant without events in any slice has no values.
        if !values.is_empty() {
            rows.push(Row::of_samples(variant.name, metric, unit, values));
        }
    };
    row(COST, "us", &samples.cost_us_per_event());
    row("throughput lost", "%", &samples.throughput_lost());
    row(
        "time from event to event",
        "us",
        &samples.event_interval_us(),
    );
    for row in rows.iter_mut().filter(|row| row.metric == COST) {
        row.paper = variant.paper;
    }
    rows
}

const COST: &str = "cost of an event";

const NOTES: [&str; 5] = [
    "the handler touches (reads and writes) 50 data cache lines, a different set each time, going round 4 pages, and 2 \
     instruction cache lines on 2 pages of their own",
    "an event is set so long after the one before fired; signals and timer descriptors are set anew each time with a \
     system call",
    "the paper's soft timers: 3.5 us (10 us), 4.8 us (20 us); APIC on the PIII-500: 5.1 and 6.7 us, beside the signals \
     here; 8253: 9.3 us (20 us)",
    "cost of an event: the processor time of the server's thread, interrupts included, beyond what its requests take \
     in the other slice of the pair, over the number of events; the median and spread of pairs",
    "a timer descriptor fires once a turn of the loop at most",
];
