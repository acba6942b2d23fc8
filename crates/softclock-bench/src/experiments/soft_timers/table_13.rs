//! `soft-timers/table-13`: the cost of backing soft events up by an alarm at their deadline (*Soft Timers*, section
//! 5.9).
//!
//! The paper's alarm is a register of the processor. softclock's is a POSIX timer that system calls set lazily; its
//! signal takes about 25 us, and alarms are at least 100 us apart.

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use softclock::alarm::{AlarmCounter, AlarmStats, FiredBy};
use softclock::{AlarmId, Histogram};

use crate::lab::busy_server::compare::{Case, Plan, Samples, compare};
use crate::lab::busy_server::toggles::Toggle;
use crate::lab::busy_server::{self, Workload};
use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "soft-timers/table-13",
    about: "Table XIII: deadlines of 1000 to 20 us: overhead, share fired by the alarm, lateness",
    takes: Takes::Nothing,
    run,
};

/// A row of the table.
struct Variant {
    name: &'static str,
    /// The deadline; `None` compares events without a deadline with no events.
    deadline_us: Option<u64>,
    /// The paper's overhead and share fired by the alarm, in percent.
    paper: Option<(f64, f64)>,
}

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let plan = if context.smoke {
        Plan::SMOKE
    } else {
        Plan::FULL
    };
    let found = busy_server::run(&Workload::of(context.smoke), || measure(context, plan))?;
    let mut rows = Vec::new();
    for (variant, (samples, fired)) in VARIANTS.iter().zip(&found) {
        rows.extend(variant_rows(variant, samples, fired));
    }
    Ok(Report {
        title: "deadlines of soft events backed up by an alarm",
        notes: NOTES.iter().map(|&note| note.to_owned()).collect(),
        rows,
        charts: Vec::new(),
    })
}

async fn measure(context: &Context, plan: Plan) -> io::Result<Vec<(Samples, Fired)>> {
    let fired: Vec<Rc<RefCell<Fired>>> = VARIANTS.iter().map(|_| Rc::default()).collect();
    let mut cases: Vec<Case> = VARIANTS
        .iter()
        .zip(&fired)
        .map(|(variant, fired)| Case {
            toggle: Box::new(WithDeadline {
                deadline: variant.deadline_us.map(Duration::from_micros),
                registered: None,
                before: None,
                fired: Rc::clone(fired),
            }),
            pairs: 4,
        })
        .collect();
    let samples = compare(context, &plan, &mut cases).await?;
    let fired = fired.iter().map(|fired| fired.take());
    Ok(samples.into_iter().zip(fired).collect())
}

/// The lateness of events over all slices, by their source: trigger states, the backup timer or the alarm.
#[derive(Default)]
struct Fired {
    by: [Option<Histogram>; FiredBy::ALL.len()],
    /// How often the alarm was set, moved or cancelled, each by a system call.
    settings: u64,
    /// How often the alarm expired, with or without an event to fire.
    landings: u64,
}

impl Fired {
    fn add(&mut self, before: &AlarmStats, after: &AlarmStats) {
        self.settings += (after.arms + after.pushes) - (before.arms + before.pushes);
        self.landings += after.deadline_alarms.count() - before.deadline_alarms.count();
        for by in FiredBy::ALL {
            let since = after.fired[by as usize].since(&before.fired[by as usize]);
            match &mut self.by[by as usize] {
                Some(histogram) => histogram.merge(&since),
                none => *none = Some(since),
            }
        }
    }

    fn count(&self, by: FiredBy) -> u64 {
        let histogram = self.by[by as usize].as_ref();
        histogram.map_or(0, Histogram::count)
    }

    fn all(&self) -> Option<Histogram> {
        let mut histograms = self.by.iter().flatten();
        let mut all = histograms.next()?.clone();
        histograms.for_each(|histogram| all.merge(histogram));
        Some(all)
    }
}

/// Toggles an event with a deadline against the same event without; or, without a deadline, an event against none.
struct WithDeadline {
    deadline: Option<Duration>,
    registered: Option<AlarmId>,
    before: Option<AlarmStats>,
    fired: Rc<RefCell<Fired>>,
}

impl WithDeadline {
    fn register(&mut self, deadline: Option<Duration>) -> io::Result<()> {
        let registered = softclock::schedule_alarm_safe(&EVENTS, PERIOD, deadline);
        self.registered = Some(registered.map_err(|_| io::ErrorKind::QuotaExceeded)?);
        Ok(())
    }

    fn unregister(&mut self) {
        if let Some(id) = self.registered.take() {
            softclock::cancel_alarm_safe(id);
        }
    }
}

impl Toggle for WithDeadline {
    fn start(&mut self, _: Duration) -> io::Result<()> {
        // Before the registration, whose first setting of the alarm counts.
        self.before = Some(softclock::statistics().alarms);
        self.register(self.deadline)
    }

    fn stop(&mut self) -> io::Result<u64> {
        self.unregister();
        let after = softclock::statistics().alarms;
        let Some(before) = self.before.take() else {
            return Ok(0);
        };
        let events = |stats: &AlarmStats| stats.fired.iter().map(Histogram::count).sum::<u64>();
        self.fired.borrow_mut().add(&before, &after);
        Ok(events(&after) - events(&before))
    }

    fn before_off(&mut self) {
        if self.deadline.is_some() {
            self.register(None)
                .expect("the table has room for one event");
        }
    }

    fn after_off(&mut self) {
        self.unregister();
    }
}

fn variant_rows(variant: &Variant, samples: &Samples, fired: &Fired) -> Vec<Row> {
    let Some(all) = fired.all().filter(|all| !all.is_empty()) else {
        return Vec::new();
    };
    let row = |metric, unit, values: &[f64]| Row::of_samples(variant.name, metric, unit, values);
    let one = |metric, unit, value| row(metric, unit, &[value]);
    let share = |count: u64| 100.0 * count as f64 / all.count() as f64;
    let (more, lost) = (samples.extra_cpu(), samples.throughput_lost());
    let bounds = Row::median_bounds(variant.name, MORE_BOUNDS, "%", &more);
    let paper = |row: Row, value: Option<f64>| Row {
        paper: value,
        ..row
    };
    let mut rows = vec![
        paper(row(MORE, "%", &more), variant.paper.map(|paper| paper.0)),
        bounds,
        row("throughput lost", "%", &lost),
        row(
            "time from event to event",
            "us",
            &samples.event_interval_us(),
        ),
        paper(
            one(BY_ALARM, "%", share(fired.count(FiredBy::Deadline))),
            variant.paper.map(|paper| paper.1),
        ),
        one("lateness, p50", "us", all.quantile_ns(0.5) as f64 / 1e3),
        one("lateness, p99", "us", all.quantile_ns(0.99) as f64 / 1e3),
        one("lateness, p99.9", "us", all.quantile_ns(0.999) as f64 / 1e3),
    ];
    if let Some(us) = variant.deadline_us {
        rows.push(one(SETTINGS, "%", share(fired.settings)));
        rows.push(one(LANDINGS, "%", share(fired.landings)));
        rows.push(one(MISSED, "%", 100.0 * all.share_above(us * 1000)));
    }
    rows
}

const MORE: &str = "more processor time a request";
const MORE_BOUNDS: &str = "more processor time: 95 % bounds of the median";
const BY_ALARM: &str = "share of events fired by the alarm";
const SETTINGS: &str = "settings of the alarm, of events";
const LANDINGS: &str = "alarms that landed, of events";
const MISSED: &str = "share of events later than their deadline";

const VARIANTS: [Variant; 5] = [
    Variant {
        name: "no deadline, beside no events",
        deadline_us: None,
        paper: None,
    },
    deadline("deadline 1000 us", 1000, 1.0, 0.0),
    deadline("deadline 100 us", 100, 1.1, 0.006),
    deadline("deadline 50 us", 50, 1.3, 0.4),
    deadline("deadline 20 us", 20, 2.1, 10.0),
];

const fn deadline(name: &'static str, us: u64, overhead: f64, share: f64) -> Variant {
    Variant {
        name,
        deadline_us: Some(us),
        paper: Some((overhead, share)),
    }
}

static EVENTS: AlarmCounter = AlarmCounter::new();

/// The time from a firing until the event is due again.
const PERIOD: Duration = Duration::from_micros(20);

const NOTES: [&str; 6] = [
    "an alarm-safe event with a null handler, due 20 us after it fired before; each deadline is compared with the same \
     event without one, in pairs of slices",
    "the paper's: 1000 us 1 % (0 % by the alarm), 100 us 1.1 % (0.006 %), 50 us 1.3 % (0.4 %), 20 us 2.1 % (10 %), \
     10 us 4.6 % (26.3 %)",
    "10 us is not measured: an alarm takes longer than that to land here",
    "alarms keep 100 us apart, so that a deadline shorter than what trigger states and that distance give is missed, \
     rather than the server stopped",
    "lateness is that of all slices together, time in which the thread could not run included",
    "the alarm is armed when the server's thread is about to run tasks, so that a share of 0 is one of trigger states \
     that always came first",
];
