//! `softclock serve` and `softclock proxy`: start a server from its options, and act on signals.

mod changes;
mod interrupts;
mod program;
mod reload;
mod replacement;
mod settings;
mod start_error;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::mem;
use std::process;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::{or, pending};
use softclock::net::Inherited;
use softclock::output::Output;
use softclock::signal::{Signal, Signals};
use softclock_http::{Server, StartError};
use softclock_linux::handover::Handover;
use softclock_linux::priority::Priority;

use crate::logging::{self, Logging};
use crate::notify::{State, notify};
use crate::options::priority::refusal;
use crate::values::url;
use interrupts::InterruptsError;
pub(crate) use program::Program;
use reload::Supervisor;
use replacement::Replacement;
use start_error::Advised;

/// The errors that end a server.
#[derive(Debug)]
pub(crate) enum ServeError {
    Start(StartError),
    Signals(io::Error),
    Log(io::Error),
    Handover(io::Error),
    Priority(Priority, io::Error),
    Interrupts(InterruptsError),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => Advised(error).fmt(f),
            Self::Signals(error) => write!(f, "cannot wait for signals: {error}"),
            Self::Log(error) => write!(f, "cannot start the log: {error}"),
            Self::Handover(error) => write!(f, "cannot take over the listeners: {error}"),
            Self::Interrupts(error) => error.fmt(f),
            Self::Priority(priority, error) => f.write_str(&refusal(*priority, error)),
        }
    }
}

/// Serves until a signal ends the server. A reload parses `arguments` again, from which `program` was made.
pub(crate) fn run(program: Program, arguments: Vec<OsString>) -> Result<(), ServeError> {
    let options = program.server();
    interrupts::check(options).map_err(ServeError::Interrupts)?;
    if options.check {
        settings::check(&program).map_err(ServeError::Start)?;
        println!("softclock: the settings are good");
        return Ok(());
    }
    // Threads inherit the mask, so that signals are left to the task that waits for them.
    let signals = Signals::block(&[
        Signal::Terminate,
        Signal::Interrupt,
        Signal::Hangup,
        Signal::User1,
        Signal::User2,
    ]);
    let signals = signals.map_err(ServeError::Signals)?;
    let handover = Handover::take().map_err(ServeError::Handover)?;
    // Set the priority before any thread starts: threads inherit it.
    if let Some(priority) = options.priority {
        let refused = |error| ServeError::Priority(priority, error);
        priority.apply().map_err(refused)?;
    }
    // Before threads start and memory is in use: it forks the process.
    let delayed = interrupts::delay(options, handover.is_some());
    let _delayed = delayed.map_err(ServeError::Interrupts)?;
    let logging = logging::start(options.level()).map_err(ServeError::Log)?;
    // Flush the log before the caller prints an error, which then comes last.
    let _finish = logging.finish_at_end();
    serve(program, arguments, handover, signals, &logging).map_err(ServeError::Start)
}

fn serve(
    program: Program,
    arguments: Vec<OsString>,
    mut handover: Option<Handover>,
    signals: Signals,
    logging: &Logging,
) -> Result<(), StartError> {
    let left = match &mut handover {
        Some(handover) => mem::take(&mut handover.sockets),
        None => Vec::new(),
    };
    let server = start(&program, left)?;
    let options = program.server();
    let threads = options.threads;
    tracing::info!(threads, events = %server.mechanism(), "serving");
    if !options.quiet {
        announce(&program, &server);
    }
    begin(handover, &server);
    let supervisor = Rc::new(Supervisor::new(
        server.control(),
        program,
        arguments,
        logging.clone(),
    ));
    let cut = server.run(supervise(supervisor, signals));
    if cut > 0 {
        tracing::warn!(
            connections = cut,
            "connections cut off: they took longer than --drain"
        );
    }
    tracing::info!("ended");
    Ok(())
}

/// Listens on the addresses of the options. Uses sockets of `left`, from the process that this one replaces, where the
/// addresses match.
fn start(program: &Program, left: Vec<Inherited>) -> Result<Server, StartError> {
    let options = program.server();
    let server = Server::with(settings::make(program, None)?)
        .threads(options.threads.into())
        .spin_cap(options.spin_cap)
        .busy_poll(options.busy_poll());
    let server = match options.events {
        Some(mechanism) => server.events(mechanism),
        None => server,
    };
    let server = match settings::stack(program)? {
        Some(stack) => {
            options.tcp.log();
            server.stack(stack)
        }
        None => server.signalling(options.stack.policy()),
    };
    server.take_over(left)
}

/// Reports that the server is ready, to the process that it replaces or to the service manager.
fn begin(handover: Option<Handover>, server: &Server) {
    match handover {
        // The old process tells the service manager, which does not know this one yet.
        Some(handover) => {
            if let Err(error) = handover.complete() {
                tracing::warn!(%error, "the process to be replaced does not answer");
            }
            server.control().settle();
        }
        None => notify(State::Ready),
    }
}

/// Acts on signals until one ends the server; after that, a second one ends the process at once.
async fn supervise(supervisor: Rc<Supervisor>, signals: Signals) {
    let softclock::Statistics {
        mechanism,
        fallback_reason,
        ..
    } = softclock::statistics();
    if let Some(reason) = fallback_reason {
        tracing::warn!(events = %mechanism, "{reason}");
    }
    supervisor.watch_certificate();
    let mut replacement = None;
    let is_replaced = loop {
        match next(&signals, &mut replacement).await {
            SupervisorEvent::Signal(Signal::User1) => supervisor.reopen_log(),
            SupervisorEvent::Signal(Signal::Hangup) if !supervisor.has_lost_terminal() => {
                // The new process has been given the listeners of the current settings, which a reload could change.
                if replacement.is_some() {
                    tracing::warn!("not reloaded: a new process is starting");
                } else {
                    supervisor.reload().await;
                }
            }
            SupervisorEvent::Signal(Signal::User2) if replacement.is_some() => {
                tracing::warn!("a new process is already starting");
            }
            SupervisorEvent::Signal(Signal::User2) => replacement = supervisor.start_replacement(),
            // Those that end the process: of the others, the supervisor waits for none.
            SupervisorEvent::Signal(_) => break false,
            SupervisorEvent::Replaced(Ok(pid)) => {
                supervisor.hand_over(pid).await;
                break true;
            }
            SupervisorEvent::Replaced(Err(reason)) => {
                tracing::error!("not replaced, this process continues: {reason}");
                replacement = None;
            }
        }
    };
    if !is_replaced {
        replacement.into_iter().for_each(Replacement::end);
        notify(State::Stopping);
        tracing::info!("shutting down; another signal ends at once");
    }
    // The server drains its connections from here on; this task only cuts that short.
    softclock::spawn_local(async move {
        while !matches!(wait(&signals).await, Signal::Terminate | Signal::Interrupt) {}
        supervisor.end_at_once();
        process::exit(1);
    });
}

/// The events that a server's supervisor waits for.
enum SupervisorEvent {
    Signal(Signal),
    /// The new process is ready, with its process ID; or the reason why it failed.
    Replaced(Result<u32, String>),
}

async fn next(signals: &Signals, replacement: &mut Option<Replacement>) -> SupervisorEvent {
    let replaced = async {
        match replacement {
            Some(replacement) => SupervisorEvent::Replaced(replacement.ready().await),
            // No process is starting, so wait for signals only.
            None => pending().await,
        }
    };
    or(replaced, async {
        SupervisorEvent::Signal(wait(signals).await)
    })
    .await
}

async fn wait(signals: &Signals) -> Signal {
    match signals.next().await {
        Ok(signal) => {
            tracing::info!(?signal, "signal");
            signal
        }
        Err(error) => {
            // Without signals only SIGKILL can end the server, so keep serving.
            tracing::error!(%error, "cannot wait for signals");
            pending().await
        }
    }
}

fn announce(program: &Program, server: &Server) {
    let mut text = format!("softclock serves {} on\n", program.what());
    for address in server.local_addresses() {
        text += &format!("  {}\n", url(&address));
    }
    for address in server.control().metrics_addresses() {
        text += &format!("and its metrics on {}metrics\n", url(&address));
    }
    text += "Ctrl-C ends it.\n";
    // Ignore the error: the server runs even if its output is not read.
    let _ = Output::stdout().and_then(|out| out.write_within(text.as_bytes(), ANNOUNCE_LIMIT));
}

/// Time limit for the announcement if standard output is a full pipe.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(1);
