//! Runs a script: makes its calls, delivers its packets, and compares what the host does.
//!
//! Events run in order. Before a call, a command or a packet to the host, virtual time advances to the event's time,
//! and the host's timers fire on the way. A packet of the host is compared with the next expected one; its time may
//! differ by the tolerance of the script. Relative times count from the event before, as it really happened.
//!
//! | file | contents |
//! |---|---|
//! | `environment.rs` | options of the script |
//! | `clock.rs` | virtual time, and what happens while it advances |
//! | `flow.rs` | sequence numbers and time stamps of the script and of the wire |
//! | `inject.rs` | packets to the host |
//! | `expect.rs` | packets of the host |
//! | `compare.rs` | expected and actual packets |
//! | `call.rs` | system calls: results, and calls that block |
//! | `sockets.rs` | each system call |
//! | `socket_option.rs` | `getsockopt` and `setsockopt` |
//! | `command.rs` | commands in backquotes |
//! | `constants.rs` | values of expressions |

mod call;
mod clock;
mod command;
mod compare;
mod constants;
mod environment;
mod expect;
mod flow;
mod inject;
mod socket_option;
mod sockets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use softclock_core::Instant;

use self::call::Blocked;
use self::flow::Flow;
use self::sockets::Descriptor;
use crate::Verdict;
use crate::host::{Host, Network, Refusal, SocketOptions};
use crate::settings::Setting;
use crate::syntax::{Action, Directive, Event, Owner, ParseError, Reason, Script};

pub use environment::Environment;

/// Parses and runs a script. `defined` are the names that hold for `#ifdef`, and `host` makes the host for the script's
/// network.
///
/// The work is bounded by the length of the script and by the host's timers: time does not advance beyond the script's.
pub fn run<H: Host>(
    text: &str,
    defined: &[&str],
    host: impl FnOnce(&Network) -> Result<H, Refusal>,
) -> Verdict {
    let script = match Script::parse(text, defined) {
        Ok(script) => script,
        Err(ParseError { at, reason }) => {
            return match reason {
                Reason::Expected(what) => Verdict::Failed(format!("{at}: expected {what}")),
                Reason::Unsupported(what) => Verdict::NotApplicable(what),
            };
        }
    };
    // FreeBSD's scripts with a variant for the standard expect only that what it demands, not what it allows.
    let is_strict = defined.contains(&"STANDARD") && text.contains("#ifdef STANDARD");
    let host = |network: &Network| -> Result<H, Refusal> {
        let mut host = host(network)?;
        if is_strict {
            host.set(&Setting::TimeWaitGivesWay(false))?;
        }
        Ok(host)
    };
    match run_script(&script, host) {
        Ok(()) => Verdict::Passed,
        Err(Stop::Failed(difference)) => Verdict::Failed(difference),
        Err(Stop::NotApplicable(reason)) => Verdict::NotApplicable(reason),
    }
}

fn run_script<H: Host>(
    script: &Script,
    host: impl FnOnce(&Network) -> Result<H, Refusal>,
) -> Result<(), Stop> {
    let environment = Environment::new(script)?;
    let host = host(&environment.network)?;
    let mut runner = Runner::new(host, environment);
    for event in &script.events {
        runner
            .step(event)
            .map_err(|stop| stop.at(format_args!("{}", event.at)))?;
    }
    runner.finish()
}

/// Why a script ends early.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Stop {
    Failed(String),
    NotApplicable(String),
}

impl Stop {
    fn failed(difference: impl Into<String>) -> Self {
        Self::Failed(difference.into())
    }

    fn not_applicable(reason: &str) -> Self {
        Self::NotApplicable(reason.to_owned())
    }

    /// Puts the place before a difference.
    fn at(self, place: fmt::Arguments<'_>) -> Self {
        match self {
            Self::Failed(difference) => Self::Failed(format!("{place}: {difference}")),
            other => other,
        }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Errno(errno) => Self::Failed(format!("the host refuses: {errno}")),
            Refusal::Unsupported(reason) => Self::NotApplicable(reason),
        }
    }
}

/// A script in progress.
struct Runner<'s, H> {
    host: H,
    environment: Environment,
    now: Instant,
    /// The time of the event before, from which relative times count.
    base: Instant,
    owner: Owner,
    /// Packets of the host that no event has taken, with the time at which they were sent.
    sent: VecDeque<(Instant, Vec<u8>)>,
    /// The connections of packets, by the number of the remote end's port.
    flows: BTreeMap<u32, Flow>,
    /// The flow to which packets belong.
    current: u32,
    /// The sockets, by the script's descriptors.
    descriptors: BTreeMap<i64, Descriptor>,
    blocked: Option<Blocked<'s>>,
    /// The options of sockets that settings of the host stand for.
    defaults: SocketOptions,
}

/// The start of a script, so long after the origin that no time before it is negative.
const START: Instant = Instant::from_ns(1_000_000_000_000);

impl<'s, H: Host> Runner<'s, H> {
    fn new(host: H, environment: Environment) -> Self {
        Self {
            host,
            environment,
            now: START,
            base: START,
            owner: Owner::default(),
            sent: VecDeque::new(),
            flows: BTreeMap::new(),
            current: 0,
            descriptors: BTreeMap::new(),
            blocked: None,
            defaults: SocketOptions::default(),
        }
    }

    fn step(&mut self, event: &'s Event) -> Result<(), Stop> {
        let window = self.window(event.time);
        let end = event.end.map(|end| self.origin(event.time) + end);
        match &event.action {
            Action::Packet(packet) if packet.is_from_host() => {
                self.expect(packet, window)?;
            }
            Action::Packet(packet) => {
                self.advance_to_event(window)?;
                self.inject(packet)?;
            }
            Action::Call(call) => {
                self.finish_blocked()?;
                self.advance_to_event(window)?;
                self.call(call, event.at, end)?;
            }
            Action::Command(command) => {
                self.advance_to_event(window)?;
                self.command(command)?;
            }
            Action::Code(_) => return Err(Stop::not_applicable("code in Python")),
            Action::Directive(directive) => {
                self.advance_to_event(window)?;
                self.directive(directive)?;
            }
        }
        self.settle()?;
        self.base = self.now;
        Ok(())
    }

    fn directive(&mut self, directive: &Directive) -> Result<(), Stop> {
        match directive {
            Directive::Owner(owner) => self.owner = *owner,
            Directive::Visit => self.host.visit(self.now),
            Directive::Set(name, value) => {
                let settings = crate::settings::of_directive(name, value).map_err(Stop::Failed)?;
                for setting in settings {
                    self.host.set(&setting)?;
                }
            }
            Directive::Flow(number) => self.current = *number,
            Directive::Silent => {
                self.settle()?;
                if let Some((at, packet)) = self.sent.pop_front() {
                    let packet = self.describe(&packet);
                    let at = self.show_time(at);
                    return Err(Stop::Failed(format!("unexpected {packet} at {at}")));
                }
            }
        }
        Ok(())
    }

    /// Waits for the last call. Packets that no event has taken are ignored.
    fn finish(&mut self) -> Result<(), Stop> {
        self.finish_blocked()
    }

    /// Whether connections of IPv6 are tested.
    fn is_v6(&self) -> bool {
        self.environment.network.local.is_ipv6()
    }
}
