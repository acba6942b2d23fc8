//! The options that all servers share: addresses, threads, logging.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use softclock::{BusyPoll, Mechanism};
use softclock_http::ListenAddress;
use softclock_linux::priority::Priority;

use super::limits::LimitOptions;
use super::operation::OperationOptions;
use super::pacing::PacingOptions;
use super::priority::priority;
use super::stack::StackArgs;
use super::tcp::TcpArgs;
use crate::logging::LogLevel;
use crate::values::{mechanism, percent, seconds, time, whole};

/// Options of one server, of files or a proxy.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerOptions {
    /// Read settings from a TOML file, named like these flags; flags win over the file. SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Check the settings and exit: status 0 if they are valid, 1 if not, and 2 for a mistake on the command line
    #[arg(long)]
    pub(crate) check: bool,

    /// Address to listen on: IP:PORT, [IPV6]:PORT, :PORT for all addresses, unix:PATH, systemd[:NAME]; with tls: before
    /// it for TLS; repeatable. Port 0 selects a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: Vec<ListenAddress>,

    /// Threads that serve requests, each with its own runtime (1 to 1024)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=1024u16))]
    pub(crate) threads: u16,

    /// How long SIGTERM, SIGINT and SIGUSR2 wait for responses in progress, and for tunnels after upgrades; a second
    /// SIGTERM or SIGINT ends at once. SIGUSR2 restarts the program from the same path with the same arguments, and
    /// passes the listening sockets to it; with --dev, it is refused
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "10", value_parser = seconds)]
    pub(crate) drain: Duration,

    /// Share of a processor that an idle thread may spin to keep timers exact; 0 turns spinning off
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, default_value = "5", value_parser = percent)]
    pub(crate) spin_cap: f64,

    /// Priority of the server's threads relative to other load: nice:-10 for a larger share of a processor, fifo:1 or
    /// rr:1 to run before all ordinary threads [default: inherited]
    ///
    /// Beside programs that compute, soft timers and paced responses are late by the time slices that the scheduler
    /// gives those programs: some milliseconds each time the server wakes up. A real-time priority (SCHED_FIFO,
    /// SCHED_RR) prevents that, but a busy server then leaves other programs on its processors only the share that the
    /// kernel reserves, 5 % by default (sched_rt_runtime_us). It needs root, CAP_SYS_NICE or a limit (ulimit -e for
    /// nice, -r for the others).
    #[arg(long, value_name = "PRIORITY", allow_hyphen_values = true, value_parser = priority)]
    pub(crate) priority: Option<Priority>,

    /// Mechanism by which the kernel reports ready sockets [default: epoll, or poll where epoll is forbidden]
    #[arg(long, value_name = "NAME", value_parser = mechanism())]
    pub(crate) events: Option<Mechanism>,

    /// Time for which a thread polls the network device before it sleeps: 1us to 1ms. Spends that time of a processor
    /// at each wait, so that frames cause neither interrupts nor switches to the thread; events of its own may be late
    /// by as much. For devices with receive work of their own (NAPI): not the loopback, and veth only with GRO and a
    /// peer without TSO. Without --dev, not with --signalling poll, clocked, automatic=timer or automatic=deferred
    #[arg(long, value_name = "TIME", value_parser = polling)]
    pub(crate) busy_poll: Option<Duration>,

    /// Interface whose interrupts --napi delays, for a server on the kernel's sockets [default: that of --dev]
    #[arg(long, value_name = "IF", requires = "napi", conflicts_with = "dev")]
    pub(crate) napi_dev: Option<String>,

    /// Print nothing but errors
    #[arg(long, short, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Log more to stderr: -v events, -vv each request
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Log messages of this level and above to stderr; reloads are logged unless it is error [default: warn]
    #[arg(long, value_name = "LEVEL", conflicts_with_all = ["quiet", "verbose"])]
    pub(crate) log_level: Option<LogLevel>,

    #[command(flatten)]
    pub(crate) pace: PacingOptions,

    #[command(flatten)]
    pub(crate) operation: OperationOptions,

    #[command(flatten)]
    pub(crate) limits: LimitOptions,

    #[command(flatten)]
    pub(crate) stack: StackArgs,

    #[command(flatten)]
    pub(crate) tcp: TcpArgs,
}

impl ServerOptions {
    /// How the threads poll the network device before they sleep.
    pub(crate) fn busy_poll(&self) -> BusyPoll {
        match self.busy_poll {
            Some(time) => BusyPoll {
                is_preferred: self.stack.napi.is_some(),
                ..BusyPoll::of(time)
            },
            None => BusyPoll::OFF,
        }
    }

    /// Returns the log level that --log-level, --quiet or --verbose sets.
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

/// Parses the time of busy polling.
fn polling(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    match (LEAST_POLLING..=MOST_POLLING).contains(&time) {
        true => Ok(time),
        false => Err("write a time from 1us to 1ms".into()),
    }
}

/// The kernel counts microseconds.
const LEAST_POLLING: Duration = Duration::from_micros(1);

/// The server's timers may be late by as much.
const MOST_POLLING: Duration = Duration::from_millis(1);
