//! `pspacer/table-2`: burst sizes and burstiness (*PSPacer/HT*, section III-A, Table II).
//!
//! Bursts of the paper's sizes pass the analyser's virtual bottleneck. `softclock pace` produces bursts of similar
//! sizes with a coarser timer, or with joined segments that are not cut.

use std::error::Error;
use std::time::Duration;

use softclock_core::{Instant, Rate};
use softclock_wire::Burstiness;
use softclock_wire::burstiness::Options;

use crate::lab::bridge::{self, FRAME_BYTES, Load, Offload, Pace, Setup, Shaper, mbit};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pspacer/table-2",
    about: "Table II: burst sizes and burstiness, by equation, virtual bottleneck, and pace with coarser timers",
    takes: Takes::RoundsAndSubjects,
    run,
};

const TITLE: &str = "burst sizes and burstiness";

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let mut notes: Vec<String> = NOTES.map(String::from).to_vec();
    let mut rows = computed();
    match bridge::check() {
        Ok(()) => {
            notes.extend(bridge::notes());
            captured(context, &mut rows, &mut notes)?;
        }
        Err(reason) => notes.push(format!("captures are not measured: {reason}")),
    }
    Ok(Report {
        title: TITLE,
        notes,
        rows,
        charts: Vec::new(),
    })
}

/// Computes the rows for the paper's bursts.
fn computed() -> Vec<Row> {
    let line = mbit(10_000);
    let target = mbit(5_000);
    let mut rows = Vec::new();
    for (metric, of) in [
        ("burstiness by equation 2", equation(line, target)),
        (
            "burstiness behind the virtual bottleneck",
            queued(target, Some(line)),
        ),
        (
            "the same, if a packet must arrive whole",
            queued(target, None),
        ),
    ] {
        for (name, burst, paper) in BURSTS {
            rows.push(Row::of_samples(name, metric, "packets", &[of(burst)]).paper(paper));
        }
    }
    rows
}

type OfBurst = Box<dyn Fn(u64) -> f64>;

/// Equation 2 of the paper.
fn equation(line: Rate, target: Rate) -> OfBurst {
    let (line, target) = (line.bps() as f64, target.bps() as f64);
    Box::new(move |burst| (burst as f64 * (line - target) / line).ceil())
}

/// Simulates bursts at the line's rate, spaced so that the mean rate is the target.
fn queued(target: Rate, line: Option<Rate>) -> OfBurst {
    Box::new(move |burst| {
        let mut burstiness = Burstiness::new(&Options {
            rate: Some(target),
            line,
            train_gap: Duration::ZERO,
            windows: Vec::new(),
        });
        let packet = mbit(10_000).time_of(JUMBO_BYTES.into());
        // The bursts' period keeps the mean at the target.
        let each = target.time_of(burst * u64::from(JUMBO_BYTES));
        for number in 0..100 * burst {
            let (burst_number, place) = (number / burst, number % burst);
            let at = each * burst_number as u32 + packet * place as u32;
            burstiness.on_packet(Instant::ORIGIN + at, JUMBO_BYTES);
        }
        burstiness
            .queue()
            .map_or(0.0, |queue| queue.max.packets as f64)
    })
}

/// Measures the bursts that pace makes at 100 Mbit/s.
fn captured(
    context: &Context,
    rows: &mut Vec<Row>,
    notes: &mut Vec<String>,
) -> Result<(), Box<dyn Error>> {
    let (slice, rounds) = if context.smoke { SMOKE } else { FULL };
    let mut cases = cases();
    if context.smoke {
        cases.truncate(2);
    }
    let setups: Vec<Setup> = cases.iter().map(|(setup, _)| setup.clone()).collect();
    let found = bridge::rounds(context, &setups, rounds, notes, |_, traffic| {
        let burstiness = traffic.capture(slice)?.burstiness(RATE);
        let queue = burstiness.queue().cloned().unwrap_or_default();
        Ok([
            queue.max.packets as f64,
            queue.packets.quantile_ns(0.999) as f64,
            queue.mean_packets(),
        ])
    })?;
    let theory = equation(mbit(10_000), RATE);
    for (setup, burst) in &cases {
        let row = Row::of_samples(
            &setup.name,
            "captured: equation 2",
            "packets",
            &[theory(*burst)],
        );
        rows.push(row);
    }
    for (index, metric) in ["captured: most", "captured: p99.9", "captured: mean"]
        .iter()
        .enumerate()
    {
        for (setup, samples) in &found {
            let values: Vec<f64> = samples.iter().map(|sample| sample[index]).collect();
            rows.push(Row::of_samples(&setup.name, *metric, "packets", &values));
        }
    }
    Ok(())
}

/// Returns the setups of pace, each with the number of packets per burst that it should make.
fn cases() -> Vec<(Setup, u64)> {
    let udp = Load::Udp(mbit(120));
    let pace = |class, options| {
        Shaper::Pace(Pace {
            class,
            options,
            ..Pace::of_rate(RATE)
        })
    };
    let in_ms = |ms| {
        RATE.bytes_in(Duration::from_millis(ms))
            .div_ceil(FRAME_BYTES.into())
    };
    vec![
        (Setup::new("pace", pace("", ""), udp), 1),
        (
            Setup::new("pace, a timer of 1 ms", pace("", "--tolerance 1ms"), udp),
            in_ms(1),
        ),
        (
            Setup::new("pace, a timer of 10 ms", pace("", "--tolerance 10ms"), udp),
            in_ms(10),
        ),
        (
            Setup::new(
                "pace, joined segments whole",
                pace("burst 12kb", ""),
                Load::Tcp,
            )
            .offload(Offload::LinkSeven),
            7,
        ),
    ]
}

const RATE: Rate = mbit(100);

/// Name, packets per burst, and the paper's burstiness: without TSO, with it, and with a timer of 1 ms.
const BURSTS: [(&str, u64, f64); 3] = [
    ("1 packet: high-resolution timer", 1, 1.0),
    ("7 packets: the same with TSO", 7, 4.0),
    ("70 packets: a timer of 1 ms", 70, 35.0),
];

/// The paper's packet size.
const JUMBO_BYTES: u32 = 9_000;

const FULL: (Duration, usize) = (Duration::from_millis(2500), 5);
const SMOKE: (Duration, usize) = (Duration::from_millis(200), 1);

const NOTES: [&str; 3] = [
    "bursts of 9 KB packets at 10 Gbit/s, with a mean and a bottleneck of 5 Gbit/s",
    "captured: 100 Mbit/s in frames of 1500 bytes; pace with --tolerance has a timer as coarse; joined segments: TSO of at \
     most 7, in a class with a burst of 12 kB; what is more than the equation's is frames that left late and caught up",
    "in Table VI the paper measures 39 with a timer of 1 ms, and 534 with one of 10 ms",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_virtual_bottleneck_agrees_with_the_equation() {
        let equation = equation(mbit(10_000), mbit(5_000));
        let queued = queued(mbit(5_000), Some(mbit(10_000)));
        for burst in [1, 2, 7, 8, 70, 71] {
            assert_eq!(queued(burst), equation(burst), "{burst} packets");
        }
    }
}
