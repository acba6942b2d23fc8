//! A bridge between two interfaces that decides when each frame leaves: what `softclock pace` and `softclock wan` share
//! of the command line, of what they print, and of how they end. The engine is `softclock_link`.
//!
//! - [`cut_off`]: what of the host stops working, and whether that is meant.
//! - [`error`]: what failed, in words.
//! - [`report`]: what happened, as text and JSON; pure.
//!
//! One thread, one runtime. Whatever frames come and go by, the host does not handle them too; or a side is a TAP device of
//! our own, whose frames are exchanged with the host. All of it goes with the process.

mod cut_off;
mod error;
mod report;

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_lite::future::or;
use softclock::signal::{Signal, Signals};
use softclock::{Instant, Runtime};
use softclock_link::{Direction, Discipline, MechanismChoice, Opened, Port, PortSpec};
use softclock_linux::link::Link;
use softclock_linux::priority::set_realtime_priority;

use crate::demo::screen::Drawing;
use crate::values::{percent, seconds, whole};
pub(crate) use error::BridgeError;
use report::{Directed, Report};

/// Options of every bridge.
#[derive(Args, Clone, Debug)]
pub(crate) struct BridgeOptions {
    /// One interface; tap:NAME makes a TAP device of that name
    #[arg(value_name = "A")]
    a: String,

    /// The other
    #[arg(value_name = "B")]
    b: String,

    /// By what frames come and go
    #[arg(long, value_name = "NAME", value_enum, default_value_t = MechanismName::Auto)]
    mechanism: MechanismName,

    /// Bytes to add to each frame for its time on the wire; 24 for Ethernet's preamble, check sequence and gap
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = whole(0..=1000u32))]
    pub(crate) overhead: u32,

    /// Share of a processor that may be spun so that frames leave on time; 0 turns it off
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, default_value = "25", value_parser = percent)]
    spin_cap: f64,

    /// Real-time priority of its thread, 1 to 99 (SCHED_FIFO), so that other load does not delay frames; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(0..=99u8))]
    priority: u8,

    /// End after so long [default: with Ctrl-C or SIGTERM]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    duration: Option<Duration>,

    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,

    /// Print nothing but errors and the summary
    #[arg(long, short)]
    quiet: bool,

    /// Take over interfaces by which the host has addresses or routes, without a question: they do not work meanwhile
    #[arg(long)]
    yes: bool,
}

impl BridgeOptions {
    /// Whether nothing but errors and the summary is to be printed.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.quiet
    }
}

/// The mechanism that the user asks for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum MechanismName {
    /// AF_XDP where the drivers of both interfaces do it without copies, and both have one queue and rxvlan off; else
    /// AF_PACKET
    Auto,
    /// AF_PACKET
    Packet,
    /// AF_XDP, with copies if need be
    Xdp,
}

impl From<MechanismName> for MechanismChoice {
    fn from(name: MechanismName) -> Self {
        match name {
            MechanismName::Auto => Self::Auto,
            MechanismName::Packet => Self::Packet,
            MechanismName::Xdp => Self::Xdp,
        }
    }
}

/// What is done to the frames of one direction.
pub(crate) struct Treatment<D> {
    pub(crate) discipline: D,
    /// The same as options write it: names and values.
    pub(crate) settings: Vec<(String, String)>,
}

/// Bridges until a signal or the end of the time asked for. A treatment is made for each direction, from A to B first,
/// by the link on which its frames leave, if it is there already. The report has the `seed`, if it matters.
pub(crate) fn run<D: Discipline>(
    options: &BridgeOptions,
    seed: Option<u64>,
    treatments: impl FnOnce([Option<&Link>; 2], Instant) -> [Treatment<D>; 2],
) -> Result<(), BridgeError> {
    let [a, b] = [&options.a, &options.b].map(|name| PortSpec::named(name));
    let (a, b) = (a?, b?);
    if a.is_same(&b) {
        let name = &options.a;
        return Err(BridgeError(format!(
            "{name} is both sides: a bridge needs two interfaces"
        )));
    }
    let _claims = [a.claim()?, b.claim()?];
    cut_off::agree([&a, &b], options)?;
    let failed = |error: io::Error| BridgeError(format!("cannot start: {error}"));
    // Before the first thread, if there ever is one, and before anything is taken over.
    let signals = Signals::block(&[Signal::Interrupt, Signal::Terminate]).map_err(failed)?;
    let runtime = Runtime::builder().spin_cap(options.spin_cap).build();
    runtime.map_err(failed)?.block_on(async {
        let [there, back] = treatments([b.link(), a.link()], softclock::now());
        let (ports, opened) = Port::open_both(&[a, b], options.mechanism.into())?;
        let [a, b] = ports.map(Rc::new);
        set_priority(options);
        let bridge = Bridge {
            directions: [
                Direction::new(a.clone(), b.clone(), there.discipline),
                Direction::new(b, a, back.discipline),
            ],
            settings: [there.settings, back.settings],
            seed,
        };
        bridge.carry(signals, &by(&opened), options).await
    })
}

/// By what frames come and go, and why.
fn by(opened: &Opened) -> String {
    match opened {
        Opened::Tap => "TAP".into(),
        Opened::Packet => "AF_PACKET".into(),
        Opened::Xdp => "AF_XDP".into(),
        Opened::PacketRatherThanXdp(why) => {
            format!(
                "AF_PACKET rather than AF_XDP, since {}",
                error::not_opened(why)
            )
        }
    }
}

/// Where that is not allowed, frames leave as late as other load makes them.
fn set_priority(options: &BridgeOptions) {
    if options.priority == 0 {
        return;
    }
    if let Err(error) = set_realtime_priority(options.priority)
        && !options.quiet
    {
        eprintln!("softclock: no real-time priority, so other load delays frames: {error}");
    }
}

/// A bridge that runs.
struct Bridge<D> {
    directions: [Rc<Direction<D>>; 2],
    /// Of each direction.
    settings: [Vec<(String, String)>; 2],
    seed: Option<u64>,
}

impl<D: Discipline> Bridge<D> {
    /// Carries frames in both directions and shows how that goes.
    async fn carry(
        &self,
        signals: Signals,
        by: &str,
        options: &BridgeOptions,
    ) -> Result<(), BridgeError> {
        // Awaited, so that a panic of one direction does not leave the other alone.
        let [there, back] =
            (self.directions.clone()).map(|direction| softclock::spawn_local(direction.run()));
        let carried = async { Err(BridgeError::from(or(there, back).await)) };
        let stopped = async {
            let signal = signals.next().await.map(drop);
            signal.map_err(|error| BridgeError(error.to_string()))
        };
        if !options.quiet {
            let there = &self.directions[0];
            let [a, b] = [there.from(), there.to()].map(|port| port.link().name());
            eprintln!("softclock: between {a} and {b}, by {by}; Ctrl-C ends it");
            for line in self.report(Duration::ZERO).settings() {
                eprintln!("softclock: {line}");
            }
        }
        let result = self.watch(or(carried, stopped), options).await;
        // A closed standard output is no failure of the bridge.
        let _ = io::stdout().flush();
        result
    }

    /// Shows what happens until the end, and then all of it.
    async fn watch(
        &self,
        ended: impl Future<Output = Result<(), BridgeError>>,
        options: &BridgeOptions,
    ) -> Result<(), BridgeError> {
        let mut ended = pin!(ended);
        let begun = softclock::now();
        let on_screen = !options.quiet && !options.json && io::stdout().is_terminal();
        let mut drawing = on_screen.then(Drawing::begin);
        let mut previous = self.report(Duration::ZERO);
        let all = options.duration.unwrap_or(Duration::MAX);
        loop {
            let left = all.saturating_sub(softclock::now().since(begun));
            let ended = softclock::timeout(left.min(FRAME), ended.as_mut()).await;
            let end = match ended {
                Ok(end) => Some(end),
                Err(_) => self.check_links().err().map(Err),
            };
            let over = softclock::now().since(begun) >= all;
            // Reports of many classes take their time, and so are made only for somebody to see.
            if end.is_none() && !over && drawing.is_none() {
                continue;
            }
            let report = self.report(softclock::now().since(begun));
            if let Some(drawing) = &mut drawing {
                let _ = drawing.draw(&report.lines(&previous));
            }
            if end.is_some() || over {
                drop(drawing);
                show_summary(&report, options, on_screen);
                return end.unwrap_or(Ok(()));
            }
            previous = report;
        }
    }

    fn check_links(&self) -> Result<(), BridgeError> {
        let mut directions = self.directions.iter();
        Ok(directions.try_for_each(|direction| direction.from().check_link())?)
    }

    fn report(&self, after: Duration) -> Report {
        let both = self.directions.iter().zip(&self.settings);
        Report {
            after,
            seed: self.seed,
            directions: both
                .map(|(direction, settings)| Directed {
                    settings: settings.clone(),
                    report: direction.report(),
                })
                .collect(),
        }
    }
}

fn show_summary(report: &Report, options: &BridgeOptions, on_screen: bool) {
    let text = match options.json {
        true => format!("{}\n", report.json()),
        false => report.summary().join("\n") + "\n",
    };
    let between = if on_screen { "\n" } else { "" };
    let _ = write!(io::stdout(), "{between}{text}");
}

/// Between two pictures, and between two looks whether the links are still there.
const FRAME: Duration = Duration::from_secs(1);
