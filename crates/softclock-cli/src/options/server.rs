//! What all servers have in common: where they listen, how they run, what they log.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use softclock::Mechanism;
use softclock_http::ListenAddress;
use softclock_linux::priority::Priority;

use super::limits::LimitOptions;
use super::operation::OperationOptions;
use super::pacing::PacingOptions;
use super::priority::priority;
use crate::logging::LogLevel;
use crate::values::{mechanism, percent, seconds, whole};

/// Options of one server, whatever it serves.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerOptions {
    /// Settings in a TOML file, named like these flags, which win over it; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Check the settings and exit: 0 if they are good, 1 if not
    #[arg(long)]
    pub(crate) check: bool,

    /// Address to listen on: IP:PORT, [IPV6]:PORT, :PORT for all addresses, unix:PATH, systemd[:NAME]; tls: before it
    /// for TLS; repeatable. Port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: Vec<ListenAddress>,

    /// Threads that serve, each with its own runtime
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=1024u16))]
    pub(crate) threads: u16,

    /// How long SIGTERM, SIGINT and SIGUSR2 wait for responses in progress, and for tunnels after upgrades; a second
    /// SIGTERM or SIGINT ends at once. SIGUSR2 starts the program anew, by the same path and arguments, and hands it
    /// the listening sockets
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "10", value_parser = seconds)]
    pub(crate) drain: Duration,

    /// Share of a processor that an idle thread may spin to keep timers exact; 0 turns it off
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, default_value = "5", value_parser = percent)]
    pub(crate) spin_cap: f64,

    /// Priority of the server's threads beside other load: nice:-10 for a larger share of a processor, fifo:1 or rr:1
    /// to run before all ordinary threads [default: as it was started]
    ///
    /// Beside computing processes, soft timers and paced responses are late by what the scheduler gives the others:
    /// some milliseconds each time that the server has slept. A real-time priority (SCHED_FIFO, SCHED_RR) prevents
    /// that, but a server that is busy then leaves other programs of its processors only what the kernel sets aside,
    /// 5 % by default (sched_rt_runtime_us). It needs root, CAP_SYS_NICE or a limit (ulimit -e for nice, -r for the
    /// others).
    #[arg(long, value_name = "PRIORITY", allow_hyphen_values = true, value_parser = priority)]
    pub(crate) priority: Option<Priority>,

    /// How the kernel tells which sockets are ready [default: epoll, or poll where epoll is forbidden]
    #[arg(long, value_name = "NAME", value_parser = mechanism())]
    pub(crate) events: Option<Mechanism>,

    /// Print nothing but errors
    #[arg(long, short, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Log more to stderr: -v what happens, -vv each request
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Log to stderr what is at least so important, and reloads unless it is error [default: warn]
    #[arg(long, value_name = "LEVEL", conflicts_with_all = ["quiet", "verbose"])]
    pub(crate) log_level: Option<LogLevel>,

    #[command(flatten)]
    pub(crate) pace: PacingOptions,

    #[command(flatten)]
    pub(crate) operation: OperationOptions,

    #[command(flatten)]
    pub(crate) limits: LimitOptions,
}

impl ServerOptions {
    /// The level asked for, one way or the other.
    pub(crate) fn level(&self) -> LogLevel {
        match (self.log_level, self.quiet, self.verbose) {
            (Some(level), ..) => level,
            (None, true, _) => LogLevel::Error,
            (None, false, 0) => LogLevel::Warn,
            (None, false, 1) => LogLevel::Info,
            (None, false, 2) => LogLevel::Debug,
            (None, false, _) => LogLevel::Trace,
        }
    }
}
