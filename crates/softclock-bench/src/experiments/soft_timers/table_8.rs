//! `soft-timers/table-8`: the regularity of a train of transmissions in a busy web server (*Soft Timers*, section 5.6,
//! Tables VIII and IX).
//!
//! One connection beside those of the server's clients sends a segment with each event, clocked by a rate clock whose
//! target interval and minimum interval vary. Beside each measurement stands a simulation of the same clock on the
//! intervals between trigger states: of this server, and of the paper's.

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use softclock::net::UdpSocket;
use softclock::{EventContext, FireWindow, Instant};
use softclock_core::pacing::{RateClock, ST_APACHE_US, TRAINS_US};

use crate::lab::busy_server::intervals::{KEEP, Summary, all_intervals_us, trace};
use crate::lab::busy_server::paced::PIECE_BYTES;
use crate::lab::busy_server::{self, Workload};
use crate::load::closed_loop::Load;
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/table-8",
    about: "Tables VIII and IX: intervals of a paced train in a busy web server, by burst interval",
    takes: Takes::Nothing,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let lines = || {
        TRAINS_US
            .into_iter()
            .flat_map(|(target, table)| table.map(|line| (target, line)))
    };
    let length = if context.smoke { SMOKE } else { FULL };
    let measured = busy_server::run(&Workload::of(context.smoke), || async move {
        let mut all = Vec::new();
        for (index, (target, (minimum, ..))) in lines().enumerate() {
            let sent = context.round_of_task(index, lines().count(), "trains", async || {
                train(RateClock::new(us(target), us(minimum)), length).await
            });
            all.push(sent.await?);
        }
        Ok(all)
    })?;
    let traced = context.round(0, 1, "trigger states", || {
        trace(context, &KEEP, Load::detect())
    })?;
    context.progress(1, 1, "");
    // The simulation needs intervals of the same server without the train.
    let ours = all_intervals_us(&traced.slices, None);
    let papers = st_apache();
    let mut rows = Vec::new();
    for ((target, (minimum, mean, deviation)), intervals) in lines().zip(&measured) {
        let name = format!("target {target} us, minimum {minimum} us");
        let simulated =
            |intervals: &[f64]| simulate(RateClock::new(us(target), us(minimum)), intervals);
        let beside = |row: Row, value: Option<f64>| Row {
            paper: value,
            ..row
        };
        for (how, intervals, paper) in [
            ("", intervals.clone(), true),
            (
                ", simulated on our trigger intervals",
                simulated(&ours),
                false,
            ),
            (
                ", simulated on the paper's trigger intervals",
                simulated(&papers),
                true,
            ),
        ] {
            let variant = format!("{name}{how}");
            let (means, deviations) = summaries(intervals);
            let row = |metric, samples: &[f64]| Row::of_samples(&variant, metric, "us", samples);
            rows.push(beside(row("interval, mean", &means), paper.then_some(mean)));
            rows.push(beside(
                row("interval, standard deviation", &deviations),
                paper.then_some(deviation),
            ));
        }
    }
    Ok(Report {
        title: "intervals of a paced train in a busy web server",
        notes: NOTES.iter().map(|&note| note.to_owned()).collect(),
        rows,
        charts: Vec::new(),
    })
}

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Returns the means and deviations of parts of the run, in the order of time.
fn summaries(intervals: Vec<f64>) -> (Vec<f64>, Vec<f64>) {
    let of = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        Summary::of_sorted(&sorted)
    };
    let part = (intervals.len() / PARTS).max(1);
    let parts: Vec<_> = intervals.chunks_exact(part).map(of).collect();
    let means = parts.iter().map(|part| part.mean).collect();
    let deviations = parts.iter().map(|part| part.deviation).collect();
    (means, deviations)
}

/// The state of a train.
struct Train {
    clock: RateClock,
    sent: Vec<Instant>,
    failed: Option<io::Error>,
}

/// Sends a train for `length`; returns the microseconds between transmissions.
async fn train(clock: RateClock, length: Duration) -> io::Result<Vec<f64>> {
    let loopback = (Ipv4Addr::LOCALHOST, 0);
    // No program reads from the sink: datagrams beyond its buffer are dropped, and nothing is sent back.
    let sink = UdpSocket::bind(loopback)?;
    let (sender, address) = (UdpSocket::bind(loopback)?, sink.local_addr()?);
    let train = Rc::new(RefCell::new(Train {
        clock,
        sent: Vec::new(),
        failed: None,
    }));
    let shared = Rc::clone(&train);
    let first = FireWindow::from(softclock::now());
    let event = softclock::schedule_within(first, move |event: &mut EventContext<'_>| {
        let train = &mut *shared.borrow_mut();
        match sender.try_send_to(&[0; PIECE_BYTES], address) {
            Ok(_) => {
                // The next transmission is clocked from this one, so the order of these calls matters.
                train.clock.on_transmit(event.now());
                train.sent.push(event.now());
                let next = train.clock.next_send(event.now());
                event.reschedule_within(FireWindow::from(next));
            }
            Err(error) => train.failed = Some(error),
        }
    });
    softclock::sleep(length).await;
    // Otherwise the train would go on after its measurement.
    event.cancel();
    let train = &mut *train.borrow_mut();
    match train.failed.take() {
        Some(error) => Err(error),
        None => Ok(intervals(&train.sent)),
    }
}

fn intervals(sent: &[Instant]) -> Vec<f64> {
    let between = |pair: &[Instant]| pair[1].ns_since(pair[0]) as f64 / 1e3;
    sent.windows(2).map(between).collect()
}

/// Simulates the clock on these intervals between trigger states, repeated until there are [`SIMULATED`] transmissions.
fn simulate(mut clock: RateClock, triggers_us: &[f64]) -> Vec<f64> {
    let mut sent = Vec::new();
    let mut now = Instant::from_ns(0);
    for us in triggers_us.iter().cycle() {
        now = now.add_ns((us * 1e3) as u64);
        if clock.next_send(now) <= now {
            clock.on_transmit(now);
            sent.push(now);
        }
        if sent.len() == SIMULATED {
            break;
        }
    }
    intervals(&sent)
}

/// Returns intervals with the distribution of the paper's ST-Apache.
fn st_apache() -> Vec<f64> {
    let part = |(low, high, count): (f64, f64, u32)| {
        (0..count).map(move |i| low + (high - low) * (f64::from(i) + 0.5) / f64::from(count))
    };
    let sorted: Vec<f64> = ST_APACHE_US.into_iter().flat_map(part).collect();
    // Shuffle by xorshift, which gives the same order on every machine.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        sorted[(seed % sorted.len() as u64) as usize]
    };
    (0..20 * sorted.len()).map(|_| draw()).collect()
}

/// The number of parts over which the spread is taken.
const PARTS: usize = 10;

const SIMULATED: usize = 50_000;

const FULL: Duration = Duration::from_secs(3);

const SMOKE: Duration = Duration::from_millis(10);

const NOTES: [&str; 5] = [
    "the paper's trigger states are 31.5 us apart (Apache on a PII-300); ours a few us, so that its targets are easily kept \
     here, and what is left is the deviation",
    "the paper's hardware timers: 43.6 us (deviation 26.8) for 40 us, 63 us (27.7) for 60 us",
    "the server answers requests for a 6 KB file on 256 keep-alive connections; the train is datagrams of 1448 bytes \
     over loopback that nobody reads, sent in the event's handler",
    "intervals include time in which the thread could not run; the spread is that of tenths of a train",
    "simulated: the same clock asked at trigger states only, and sending takes no time",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulation_is_near_the_paper() {
        let triggers = st_apache();
        for (target, table) in TRAINS_US {
            for (minimum, mean, deviation) in table {
                let clock = RateClock::new(us(target), us(minimum));
                let mut intervals = simulate(clock, &triggers);
                intervals.sort_by(f64::total_cmp);
                let summary = Summary::of_sorted(&intervals);
                let what = format!("{target}/{minimum}: {summary:?}");
                assert!((summary.mean / mean - 1.0).abs() <= 0.12, "{what}");
                assert!(
                    (summary.deviation / deviation - 1.0).abs() <= 0.25,
                    "{what}"
                );
            }
        }
    }
}
