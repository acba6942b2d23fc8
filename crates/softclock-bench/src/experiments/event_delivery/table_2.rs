//! `event-delivery/table-2`: the share of the processor that a proxy spends on event notification (*Event Delivery*,
//! section 7.3).

use std::error::Error;
use std::io;
use std::time::Duration;

use softclock::events::Mechanism;

use crate::lab::proxy_stage::{self, Crowd, Stage};
use crate::measure::perf::{Perf, Profile};
use crate::measure::turns::{Found, Turns};
use crate::output::best_peer::{Better, Comparison};
use crate::output::report::{Context, Experiment, Report, Row, Takes};
use crate::servers::{BESIDE_PEERS, ProxyKind};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/table-2",
    about: "share of the processor that proxies spend on event notification",
    takes: Takes::RoundsAndSubjects,
    run,
};

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke { &SMOKE } else { &FULL };
    let stage = Stage::build()?;
    let mut notes = stage.notes(&NOTES);
    let perf = match Perf::find() {
        Ok(perf) => Some(perf),
        Err(note) => {
            notes.push(note);
            None
        }
    };
    let crowds = stage.crowds(&ProxyKind::ALL, plan.cold, &mut notes)?;
    let saturation = proxy_stage::saturation(&crowds, HOT, plan.slice / 4)?;
    notes.push(format!(
        "{saturation:.0} requests a second is what the proxy by epoll answers in a closed loop"
    ));
    let loads = [
        ("at 30 % of saturation", saturation * PAPERS_LOAD),
        ("at 400 requests a second", PAPERS_RATE),
    ];
    let cells = loads.into_iter().flat_map(|(at, rate)| {
        crowds.iter().map(move |&(kind, ref crowd)| Cell {
            kind,
            crowd,
            at,
            rate,
        })
    });
    let turns = Turns::new(context, plan.rounds, cells, |cell| {
        format!("{}, {}", cell.kind.name(), cell.at)
    })?;
    let found =
        turns.measure(|cell| Sample::take(perf.as_ref(), cell.crowd, cell.rate, plan.slice))?;
    let mut rows = Vec::new();
    for (at, _) in loads {
        rows.extend(rows_at(at, &found));
    }
    let beside = Comparison {
        better: |metric| {
            let is_compared = [OF_CALLS, OF_ALL]
                .iter()
                .any(|what| metric.starts_with(what));
            is_compared.then_some(Better::Less)
        },
        ..BESIDE_PEERS
    };
    rows.extend(beside.rows(&rows));
    Ok(Report {
        title: "share of the processor spent on event notification",
        notes,
        rows,
        charts: Vec::new(),
    })
}

/// A proxy at a rate of requests.
struct Cell<'a> {
    kind: ProxyKind,
    crowd: &'a Crowd<'a>,
    /// The rate in words.
    at: &'static str,
    /// Requests a second.
    rate: f64,
}

/// Measurements of a proxy in one slice of time, as shares from 0 to 1.
struct Sample {
    /// Share of the time in which the proxy ran.
    busy: f64,
    /// Share of the requests without a good answer.
    lost: f64,
    /// Shares of the proxy's profile; `None` without `perf`.
    profile: Option<Shares>,
}

#[derive(Clone, Copy)]
struct Shares {
    notification: f64,
    /// The part of `notification` in system calls.
    calls: f64,
    sleep: f64,
}

impl Sample {
    fn take(
        perf: Option<&Perf>,
        crowd: &Crowd<'_>,
        rate: f64,
        slice: Duration,
    ) -> io::Result<Self> {
        let load = || -> io::Result<(f64, f64)> {
            let before = crowd.server.cpu_time()?;
            let result = crowd.hot(rate, Duration::ZERO, slice, HOT)?;
            let cpu = crowd.server.cpu_time()?.saturating_sub(before);
            let busy = cpu.as_secs_f64() / result.elapsed.as_secs_f64();
            Ok((busy, result.lost()))
        };
        let (profile, loaded) = match perf {
            None => (None, load()),
            Some(perf) => {
                let (profile, loaded) = perf.profile(&crowd.server.processes(), load)?;
                (Shares::of(&profile), loaded)
            }
        };
        let (busy, lost) = loaded?;
        Ok(Self {
            busy,
            lost,
            profile,
        })
    }
}

impl Shares {
    fn of(profile: &Profile) -> Option<Self> {
        let calls = |stack: &[String]| stack.iter().any(|name| is_call(name));
        let notifies = |stack: &[String]| calls(stack) || stack.iter().any(|name| is_ours(name));
        let sleeps = |stack: &[String]| stack.iter().any(|name| is_sleep(name));
        Some(Self {
            notification: profile.share(|stack| notifies(stack) && !sleeps(stack))?,
            calls: profile.share(|stack| calls(stack) && !sleeps(stack))?,
            sleep: profile.share(|stack| notifies(stack) && sleeps(stack))?,
        })
    }
}

/// Returns whether a kernel function belongs to event notification: one of its system calls, or work done for it
/// elsewhere.
fn is_call(name: &str) -> bool {
    CALLS.iter().any(|call| name.ends_with(call))
}

/// Returns whether a function belongs to softclock's event queues, which wrap these system calls.
fn is_ours(name: &str) -> bool {
    OURS.iter().any(|module| name.contains(module))
}

/// Returns whether a function belongs to the scheduler: a call that finds no event yields the processor, which is no
/// cost of notification.
fn is_sleep(name: &str) -> bool {
    name == "schedule" || name.starts_with("schedule_")
}

fn rows_at(load: &str, found: &Found<Cell<'_>, Sample>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric: &str, of: &dyn Fn(&Sample) -> Option<f64>| {
        let at = format!("{metric}; {load}");
        for (cell, samples) in found.iter().filter(|(cell, _)| cell.at == load) {
            let samples = samples.iter();
            let values: Option<Vec<f64>> =
                samples.map(|sample| Some(of(sample)? * 100.0)).collect();
            let Some(values) = values else { continue };
            let row = Row::of_samples(cell.kind.name(), &*at, "%", &values);
            rows.push(match papers(cell.kind) {
                Some(paper) if metric == OF_PROCESSOR => row.paper(paper),
                _ => row,
            });
        }
    };
    add(OF_PROCESSOR, &|sample| {
        Some(sample.busy * sample.profile?.notification)
    });
    add(OF_CALLS, &|sample| {
        Some(sample.busy * sample.profile?.calls)
    });
    add("share of the proxy's own time for it", &|sample| {
        Some(sample.profile?.notification)
    });
    add(
        "share of the proxy's own time to fall asleep in it",
        &|sample| Some(sample.profile?.sleep),
    );
    add(OF_ALL, &|sample| Some(sample.busy));
    add("requests lost", &|sample| Some(sample.lost));
    rows
}

/// Returns the paper's share in percent: for the classical `select`, and for the new API after which softclock's is
/// modelled.
fn papers(kind: ProxyKind) -> Option<f64> {
    match kind {
        ProxyKind::Softclock(Mechanism::Select) => Some(34.0),
        ProxyKind::OURS => Some(1.0),
        _ => None,
    }
}

const OF_PROCESSOR: &str = "share of the processor for event notification";

const OF_CALLS: &str = "share of the processor for its system calls";
const OF_ALL: &str = "share of the processor for all";

const CALLS: [&str; 12] = [
    "sys_epoll_wait",
    "sys_epoll_pwait",
    "sys_epoll_pwait2",
    "sys_epoll_ctl",
    "sys_poll",
    "sys_ppoll",
    "sys_select",
    "sys_pselect6",
    "sys_io_uring_enter",
    // Arms the timeout of waits whose system call takes none.
    "sys_timerfd_settime",
    // Removes a closed file from epoll's set.
    "eventpoll_release_file",
    // Checks, in io_uring, which event woke a poll.
    "io_poll_task_func",
];

/// Modules and functions of softclock's event queues. The compiler inlines posting and delivery into the last two.
const OURS: [&str; 7] = [
    "softclock_linux::readiness::",
    "softclock_core::events::",
    "softclock::events::",
    "softclock::runtime::sources::",
    "softclock::runtime::far_timer::",
    "Inner>::poll_sources",
    "Inner>::wake_for",
];

struct Plan {
    slice: Duration,
    rounds: usize,
    cold: usize,
}

const FULL: Plan = Plan {
    slice: Duration::from_secs(5),
    rounds: 3,
    cold: 750,
};

const SMOKE: Plan = Plan {
    slice: Duration::from_millis(200),
    rounds: 1,
    cold: 50,
};

/// Hot connections, and thereby the most outstanding requests.
const HOT: usize = 50;

/// The paper's request rate per second, and the share of its proxy's capacity that this rate was.
const PAPERS_RATE: f64 = 400.0;
const PAPERS_LOAD: f64 = 0.3;

const NOTES: [&str; 4] = [
    "750 cold connections and 50 hot ones in turn, in an open loop, the same rates for all: 30 % of what the proxy by epoll \
     answers in a closed loop, and the paper's 400 a second, which were 30 % of what its proxy did; a request that would \
     be one more than 50, or has another status than 200, is lost: a proxy that loses more than others does less work",
    "samples of the kernel's clock by perf, of the proxy alone; notification is what has a function of its calls (epoll, \
     poll, select, io_uring), or of our event queues up to the waking of tasks, among the active ones, but not the \
     scheduler's within; times the processor time of the proxy it is the share of the processor, as in the paper, where \
     an idle processor counts too",
    "functions of nginx and HAProxy outside of the kernel have no names in Debian's packages and do not count, so that only the \
     system calls compare with theirs; nor do \
     reports of consumed readiness that the compiler has put into our socket calls",
    "the paper's Table 2: select 34 % of the processor, an improved select 12 %, the new API less than 1 %",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_is_told_by_names() {
        for name in [
            "__x64_sys_ppoll",
            "__arm64_sys_epoll_pwait",
            "softclock_linux::readiness::poller::Poller::add",
            "softclock::runtime::turn::<impl softclock::runtime::inner::Inner>::wake_for",
        ] {
            assert!(is_call(name) || is_ours(name), "{name}");
        }
        for name in [
            "do_syscall_64",
            "tcp_poll",
            "ep_poll_callback",
            "schedule",
            "softclock::runtime::turn::<impl softclock::runtime::inner::Inner>::run_tasks",
        ] {
            assert!(!is_call(name) && !is_ours(name), "{name}");
        }
        assert!(is_sleep("schedule_hrtimeout_range"));
    }
}
