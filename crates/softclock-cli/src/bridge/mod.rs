//! A bridge between two interfaces that decides when each frame leaves: the command line, output and shutdown that
//! `softclock pace` and `softclock wan` share. The engine is `softclock_link`.
//!
//! - [`cut_off`]: the host's addresses and routes that stop working, and the user's consent.
//! - [`error`]: errors as one line for the user.
//! - [`report`]: counts and rates, as text and JSON; pure.
//!
//! One thread, one runtime. While the bridge runs, the host does not handle the frames of its interfaces. A side may
//! also be a TAP device that the bridge creates, whose frames it exchanges with the host. The kernel undoes all of this
//! when the process ends, even by SIGKILL.

mod cut_off;
mod error;
mod report;

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_lite::future::or;
use softclock::signal::{Signal, Signals};
use softclock::signalling::{LatencyBound, Policy};
use softclock::{Instant, Runtime};
use softclock_link::{Direction, Discipline, MechanismChoice, Opened, Port, PortSpec};
use softclock_linux::link::Link;
use softclock_linux::priority::set_realtime_priority;

use crate::demo::screen::{Drawing, is_drawable};
use crate::logging;
use crate::options::signalling;
use crate::stdout;
use crate::values::{format_time, percent, seconds, time, whole};
pub(crate) use error::{BridgeError, port_error};
use report::{Directed, Report};

/// Options of every bridge.
#[derive(Args, Clone, Debug)]
pub(crate) struct BridgeOptions {
    /// One interface; tap:NAME creates a TAP device of that name
    #[arg(value_name = "A")]
    a: String,

    /// The other interface, or tap:NAME
    #[arg(value_name = "B")]
    b: String,

    /// Mechanism that receives and sends frames
    #[arg(long, value_name = "NAME", value_enum, default_value_t = MechanismName::Auto)]
    mechanism: MechanismName,

    /// Bytes to add to each frame for its time on the wire, at most 1000; 24 for Ethernet's preamble, check sequence and
    /// gap
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = whole(0..=1000u32))]
    pub(crate) overhead: u32,

    /// Send packets up to this much late, so that packets that are due within this time leave in one batch; from 50us
    /// on, the bridge does not spin
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    pub(crate) tolerance: Duration,

    /// Share of a processor that the bridge may spin to send frames on time; with 0, frames leave later by the time of
    /// a wake-up, at half of the processor time [default: pace 0, wan 5]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = percent)]
    spin_cap: Option<f64>,

    /// Real-time priority of the bridge's thread, 1 to 99 (SCHED_FIFO), so that other load does not delay frames; 0 for
    /// none
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(0..=99u8))]
    priority: u8,

    #[arg(
        long,
        value_name = "POLICY",
        default_value = "automatic=timer",
        value_parser = signalling::policy,
        help = signalling::BRIDGE_HELP,
        long_help = signalling::BRIDGE_LONG_HELP
    )]
    signalling: Policy,

    /// Longest time between two looks of soft-poll and automatic, and so the longest wait of a frame for one: 20us to
    /// 10ms
    #[arg(long, value_name = "TIME", default_value = "250us", value_parser = signalling::latency)]
    signalling_latency: LatencyBound,

    /// End after this time [default: on Ctrl-C or SIGTERM]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    duration: Option<Duration>,

    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,

    /// Print nothing but errors and the summary
    #[arg(long, short)]
    quiet: bool,

    /// Start without a question even if the host has addresses or routes on an interface; they do not work until the
    /// bridge ends
    #[arg(long)]
    yes: bool,
}

impl BridgeOptions {
    /// Whether to print nothing but errors and the summary.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Lists the settings that both directions share and that differ from their defaults: names and values.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (String, String)> {
        let tolerance = (!self.tolerance.is_zero()).then(|| format_time(self.tolerance));
        let overhead = (self.overhead > 0).then(|| self.overhead.to_string());
        let named = [("tolerance", tolerance), ("overhead", overhead)];
        (named.into_iter()).filter_map(|(name, value)| Some((name.to_owned(), value?)))
    }
}

/// The values of `--mechanism`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum MechanismName {
    /// AF_XDP where the drivers of both interfaces do it without copies, and both have one queue and rxvlan off; else
    /// AF_PACKET
    Auto,
    /// AF_PACKET
    Packet,
    /// AF_XDP, even if the driver copies frames
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

/// The discipline for the frames of one direction, with its description.
pub(crate) struct Treatment<D> {
    pub(crate) discipline: D,
    /// The settings of `discipline` as options write them: names and values.
    pub(crate) settings: Vec<(String, String)>,
}

/// Bridges until a signal arrives, `--duration` is over or an interface fails.
///
/// `treatments` makes the discipline of each direction, first from A to B; it gets the link on which the frames of that
/// direction leave, or `None` for a TAP device that does not exist yet. The report shows `seed` if there is one.
/// `spin_cap` is the default of the option.
pub(crate) fn run<D: Discipline>(
    options: &BridgeOptions,
    spin_cap: f64,
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
    // Claims come first, so that two bridges that start together cannot both take an interface.
    let _claims = [a.claim()?, b.claim()?];
    cut_off::agree([&a, &b], options)?;
    let failed = |error: io::Error| BridgeError(format!("cannot start: {error}"));
    // Threads inherit the mask, so block the signals before any thread starts; and before taking the interfaces, so
    // that a signal cannot end the process without a summary.
    let signals = Signals::block(&[Signal::Interrupt, Signal::Terminate]).map_err(failed)?;
    let mut runtime = Runtime::builder();
    let policy = options.signalling.with_bound(options.signalling_latency);
    let spin_cap = options.spin_cap.unwrap_or(spin_cap);
    runtime = runtime.spin_cap(spin_cap).signalling(policy);
    runtime = runtime.regular_waits(spin_cap == 0.0);
    runtime.build().map_err(failed)?.block_on(async {
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

/// Names the mechanism in use, and the reason if it is not the preferred one.
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

/// Gives this thread the priority of `--priority`. Only warns on failure: frames then leave later under other load.
fn set_priority(options: &BridgeOptions) {
    if options.priority == 0 {
        return;
    }
    if let Err(error) = set_realtime_priority(options.priority)
        && !options.quiet
    {
        logging::note(&format!(
            "no real-time priority, so other load delays frames: {error}"
        ));
    }
}

/// A running bridge.
struct Bridge<D> {
    directions: [Rc<Direction<D>>; 2],
    /// The settings of each direction, as options write them.
    settings: [Vec<(String, String)>; 2],
    seed: Option<u64>,
}

impl<D: Discipline> Bridge<D> {
    /// Carries frames in both directions and shows the progress; returns when a direction fails or the bridge is
    /// stopped.
    async fn carry(
        &self,
        signals: Signals,
        by: &str,
        options: &BridgeOptions,
    ) -> Result<(), BridgeError> {
        // Both tasks are awaited, so that a panic in one ends the bridge instead of leaving a one-way link.
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
            logging::note(&format!("between {a} and {b}, by {by}; Ctrl-C ends it"));
            for line in self.report(Duration::ZERO).settings() {
                logging::note(&line);
            }
        }
        self.watch(or(carried, stopped), options).await
    }

    /// Draws the state every second until the bridge ends, then prints the summary.
    async fn watch(
        &self,
        ended: impl Future<Output = Result<(), BridgeError>>,
        options: &BridgeOptions,
    ) -> Result<(), BridgeError> {
        let mut ended = pin!(ended);
        let begun = softclock::now();
        let on_screen = !options.quiet && !options.json && is_drawable();
        let mut drawing = on_screen.then(Drawing::begin).flatten();
        let mut previous = self.report(Duration::ZERO);
        let all = options.duration.unwrap_or(Duration::MAX);
        loop {
            // Wake up every FRAME to draw, and for the end of --duration.
            let left = all.saturating_sub(softclock::now().since(begun));
            let ended = softclock::timeout(left.min(FRAME), ended.as_mut());
            // While a timeout without slack is pending, the thread spins before all of its events to be on time.
            let ended = ended.with_slack(FRAME_SLACK).await;
            let end = match ended {
                Ok(end) => Some(end),
                Err(_) => self.check_links().err().map(Err),
            };
            let over = softclock::now().since(begun) >= all;
            // A report of many classes is costly, so make one only if it is drawn or is the last.
            if end.is_none() && !over && drawing.is_none() {
                continue;
            }
            let report = self.report(softclock::now().since(begun));
            if let Some(drawing) = &mut drawing {
                let _ = drawing.draw(&report.lines(&previous));
            }
            if end.is_some() || over {
                drop(drawing);
                let shown = show_summary(&report, options, on_screen);
                return end.unwrap_or(Ok(())).and(shown);
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

fn show_summary(
    report: &Report,
    options: &BridgeOptions,
    on_screen: bool,
) -> Result<(), BridgeError> {
    let text = match options.json {
        true => format!("{}\n", report.json()),
        false => report.summary().join("\n") + "\n",
    };
    let between = if on_screen { "\n" } else { "" };
    let shown = stdout::print_summary(&format!("{between}{text}"));
    shown.map_err(|error| BridgeError(stdout::not_written(&error)))
}

/// Interval between drawings, and between checks that the links still exist.
const FRAME: Duration = Duration::from_secs(1);
/// The time by which a drawing may be late.
const FRAME_SLACK: Duration = Duration::from_millis(10);
