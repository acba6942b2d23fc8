//! `soft-timers/table-6`: the cost of rate-based clocking in a busy web server (*Soft Timers*, section 5.5, Tables VI
//! and VII).
//!
//! The paper sends each packet of a response by an event, of a soft timer at every trigger state or of a hardware
//! timer, and compares with packets sent in a burst. In a kernel both cases send the same packets. A process pays a
//! system call for each piece, so the experiment separates that cost: pieces sent at once against whole responses, and
//! paced pieces against the same pieces sent at once.

use std::error::Error;
use std::io;
use std::time::Duration;

use softclock::Rate;
use softclock::net::{PacedBy, Pacer, Pacing};

use crate::lab::busy_server::Workload;
use crate::lab::busy_server::compare::{Case, Plan, Samples, compare};
use crate::lab::busy_server::paced::{self, Base, Means, PIECE_BYTES, Paced};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/table-6",
    about: "Tables VI and VII: rate-based clocking in a busy web server, soft, signal, timerfd, kernel",
    takes: Takes::Nothing,
    run,
};

struct Variant {
    name: String,
    means: Means,
    base: Base,
    /// The paper's overhead for Flash in Table VI in percent, and the interval between transmissions in microseconds.
    paper: Option<(f64, f64)>,
}

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let variants = variants();
    let plan = if context.smoke { Plan::SMOKE } else { FULL };
    let workload = Workload {
        connections: CONNECTIONS,
        ..Workload::of(context.smoke)
    };
    let samples = paced::run(&workload, |pacer| measure(context, &plan, &variants, pacer))?;
    let mut rows = server_rows(&samples[0]);
    for (variant, samples) in variants.iter().zip(&samples) {
        rows.extend(variant_rows(variant, samples));
    }
    Ok(Report {
        title: "cost of rate-based clocking in a busy web server",
        notes: NOTES.iter().map(|&note| note.to_owned()).collect(),
        rows,
        charts: Vec::new(),
    })
}

async fn measure(
    context: &Context,
    plan: &Plan,
    variants: &[Variant],
    pacer: Pacer,
) -> io::Result<Vec<Samples>> {
    let case = |variant: &Variant| Case {
        toggle: Box::new(Paced::new(&pacer, variant.means, variant.base)),
        pairs: 1,
    };
    let mut cases: Vec<_> = variants.iter().map(case).collect();
    compare(context, plan, &mut cases).await
}

fn variants() -> Vec<Variant> {
    let pacing = |bps| Pacing::of_rate(Rate::from_bps(bps).expect("more than zero"));
    let segments = |bps| Pacing {
        piece_bytes: Some(PIECE_BYTES),
        ..pacing(bps)
    };
    let woken = Pacing {
        buffer_bytes: Some(0),
        ..segments(EACH_20_US)
    };
    let kernel = Pacing {
        by: PacedBy::Kernel,
        ..segments(EACH_20_US)
    };
    let each = Duration::from_micros;
    let variant = |name: &str, base, means| Variant {
        name: match base {
            Base::Whole => format!("{name}, against whole responses"),
            Base::Segments => format!("{name}, against pieces at once"),
            Base::SamePieces => format!("{name}, against the same pieces at once"),
        },
        means,
        base,
        paper: None,
    };
    let soft = |base| variant("soft event, each trigger state", base, Means::EachTrigger);
    let rate = |base| {
        let means = Means::Rate(segments(EACH_20_US));
        variant(
            "soft events, a piece of a connection each 20 us",
            base,
            means,
        )
    };
    let signal = |us, base| {
        variant(
            &format!("signal, each {us} us"),
            base,
            Means::Signal(each(us)),
        )
    };
    let timerfd = |us, base| {
        variant(
            &format!("timerfd, each {us} us"),
            base,
            Means::Timerfd(each(us)),
        )
    };
    // First the cost of pieces alone, then paced pieces against these.
    let mut variants = vec![
        variant("pieces at once", Base::Whole, Means::AtOnce),
        variant(
            "nothing (what is found here is noise)",
            Base::Segments,
            Means::AtOnce,
        ),
        Variant {
            paper: Some((6.0, 24.0)),
            ..soft(Base::Segments)
        },
        rate(Base::Segments),
        variant(
            "woken writers, a piece each 20 us",
            Base::Segments,
            Means::Rate(woken),
        ),
        Variant {
            paper: Some((36.0, 35.0)),
            ..signal(20, Base::Segments)
        },
        signal(100, Base::Segments),
        timerfd(20, Base::Segments),
        timerfd(100, Base::Segments),
    ];
    let served = |mbit: u64, base| {
        let name = format!("soft events, {mbit} mbit/s as `serve --pace`");
        variant(&name, base, Means::Rate(pacing(mbit * 1_000_000)))
    };
    // Then the settings of the server, mostly against whole responses.
    variants.extend([
        rate(Base::Whole),
        served(1_000, Base::Whole),
        served(50, Base::Whole),
        served(50, Base::SamePieces),
        served(10, Base::Whole),
        served(10, Base::SamePieces),
        variant(
            "the kernel's pacing, 579 mbit/s",
            Base::Whole,
            Means::Rate(kernel),
        ),
    ]);
    variants
}

fn server_rows(samples: &Samples) -> Vec<Row> {
    let name = "whole responses, unpaced";
    vec![
        Row::of_samples(name, "throughput", "requests/s", &samples.throughput_off()),
        Row::of_samples(name, CPU, "us", &samples.cpu_us_off()),
    ]
}

fn variant_rows(variant: &Variant, samples: &Samples) -> Vec<Row> {
    let (name, cpu, lost) = (
        &variant.name,
        samples.extra_cpu(),
        samples.throughput_lost(),
    );
    let with_paper = |row: Row, paper: Option<f64>| Row { paper, ..row };
    let mut rows = vec![
        with_paper(
            Row::of_samples(name, "throughput lost", "%", &lost),
            variant.paper.map(|(overhead, _)| overhead),
        ),
        Row::median_bounds(
            name,
            "throughput lost: 95 % bounds of the median",
            "%",
            &lost,
        ),
        Row::of_samples(name, "more processor time a request", "%", &cpu),
        Row::median_bounds(
            name,
            "more processor time: 95 % bounds of the median",
            "%",
            &cpu,
        ),
        Row::of_samples(
            name,
            "pairs of slices with a busy server",
            "%",
            &[samples.busy_pairs()],
        ),
    ];
    let pieces = samples.events_per_request();
    if !pieces.is_empty() {
        rows.push(Row::of_samples(name, "pieces a request", "", &pieces));
    }
    let intervals = samples.event_interval_us();
    if !intervals.is_empty() {
        rows.push(with_paper(
            Row::of_samples(name, "time from piece to piece", "us", &intervals),
            variant.paper.map(|(_, interval)| interval),
        ));
    }
    rows
}

const CPU: &str = "processor time a request";

/// The rate of a connection that sends a piece every 20 us.
const EACH_20_US: u64 = PIECE_BYTES as u64 * 8 * 50_000;

/// Connections, few enough that a slice is many times as long as a response on each of them, so that responses that
/// span two slices do not matter.
const CONNECTIONS: usize = 128;

const FULL: Plan = Plan {
    slice: Duration::from_millis(60),
    rounds: 30,
    tries: 2,
    patience: Duration::from_secs(150),
};

const NOTES: [&str; 8] = [
    "the paper's overheads: 2 to 6 % with soft timers, 28 to 36 % with the 8253 (Table VI), 13 to 22 % with the APIC \
     (Table VII); Flash's of Table VI stand beside ours",
    "the server answers requests for a 6 KB file on 128 keep-alive connections; a response is 5 pieces of 1448 bytes, \
     of which the first goes at once in all variants",
    "signals and timer descriptors let a piece of every connection go that has one (section 4.1 allows it): one piece \
     each 20 us would bound the throughput by itself",
    "a signal's pieces go at the end of the call that it interrupted, as the paper's go in a software interrupt",
    "as `serve --pace`: pieces as long as the server makes them, which never idle makes them longer, up to a millisecond's \
     worth; the same pieces at once are as long as those of the last slice were on average",
    "each figure is the median over pairs of slices, with and without, next to each other; processor time is that of the \
     server's thread, interrupts included",
    "throughput is lost, too, where the server waits for its own clock: where few pairs are busy, look at processor time",
    "the kernel's pacing is SO_MAX_PACING_RATE without the queueing discipline fq: a timer of the kernel's for each socket",
];
