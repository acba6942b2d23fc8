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
use std::thread;
use std::time::Duration;

use futures_lite::future::{or, pending};
use softclock::net::Inherited;
use softclock::output::Output;
use softclock::signal::{Signal, Signals};
use softclock::{JoinHandle, Runtime};
use softclock_http::{Server, Settings, StartError};
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
    let Some(settings) = settings_unless_ended(&program)? else {
        tracing::info!("ended before the start");
        return Ok(());
    };
    let server = start(&program, settings, left)?;
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
        server.stack().is_some(),
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

/// Makes the settings of the options. That reads files and resolves names, which can take any time: a signal that ends
/// servers ends it, and then there are none.
fn settings_unless_ended(program: &Program) -> Result<Option<Settings>, StartError> {
    // The other signals wait until the server runs.
    let ending = Signals::block(&[Signal::Terminate, Signal::Interrupt]);
    let ending = ending.map_err(StartError::Runtime)?;
    let runtime = Runtime::new().map_err(StartError::Runtime)?;
    let program = program.clone();
    let (sender, made) = async_channel::bounded(1);
    // Not a helper of the runtime, as those stay for a while.
    let make = move || {
        let _ = sender.try_send(settings::make(&program, None));
    };
    let thread = thread::Builder::new().name("softclock-start".into());
    thread.spawn(make).map_err(StartError::Runtime)?;
    let made = async {
        let panicked = |_| StartError::Runtime(io::Error::other("a thread panicked"));
        made.recv().await.map_err(panicked)?.map(Some)
    };
    let ended = async {
        wait(&ending).await;
        Ok(None)
    };
    runtime.block_on(or(made, ended))
}

/// Listens on the addresses of the settings. Uses sockets of `left`, from the process that this one replaces, where the
/// addresses match.
fn start(
    program: &Program,
    settings: Settings,
    left: Vec<Inherited>,
) -> Result<Server, StartError> {
    let options = program.server();
    let server = Server::with(settings)
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
    let is_replaced = act(&supervisor, &signals, &mut replacement).await;
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

/// Acts on signals until one ends the server, or a new process replaces it; returns whether one does.
async fn act(
    supervisor: &Rc<Supervisor>,
    signals: &Signals,
    replacement: &mut Option<Replacement>,
) -> bool {
    let mut reload = None::<JoinHandle<()>>;
    // Signals that wait for the end of a reload, each once.
    let mut waiting = Vec::new();
    let is_replaced = loop {
        let event = match reload.is_none() && !waiting.is_empty() {
            true => SupervisorEvent::Signal(waiting.remove(0)),
            false => next(signals, replacement, &mut reload).await,
        };
        match event {
            SupervisorEvent::Signal(Signal::User1) => supervisor.reopen_log(),
            SupervisorEvent::Signal(Signal::Hangup) if supervisor.has_lost_terminal() => {
                break false;
            }
            SupervisorEvent::Signal(signal @ (Signal::Hangup | Signal::User2))
                if reload.is_some() =>
            {
                if !waiting.contains(&signal) {
                    waiting.push(signal);
                }
            }
            // The new process has been given the listeners of the current settings, which a reload could change.
            SupervisorEvent::Signal(Signal::Hangup) if replacement.is_some() => {
                tracing::warn!("not reloaded: a new process is starting");
            }
            // In a task, as it may wait for a disk or for a server of names, and signals must not.
            SupervisorEvent::Signal(Signal::Hangup) => {
                let supervisor = Rc::clone(supervisor);
                let reloading = async move { supervisor.reload().await };
                reload = Some(softclock::spawn_local(reloading));
            }
            SupervisorEvent::Reloaded => reload = None,
            SupervisorEvent::Signal(Signal::User2) if replacement.is_some() => {
                tracing::warn!("a new process is already starting");
            }
            SupervisorEvent::Signal(Signal::User2) => *replacement = supervisor.start_replacement(),
            // Those that end the process: of the others, the supervisor waits for none.
            SupervisorEvent::Signal(_) => break false,
            SupervisorEvent::Replaced(Ok(pid)) => {
                supervisor.hand_over(pid).await;
                break true;
            }
            SupervisorEvent::Replaced(Err(reason)) => {
                tracing::error!("not replaced, this process continues: {reason}");
                *replacement = None;
            }
        }
    };
    reload.into_iter().for_each(|reload| reload.abort());
    is_replaced
}

/// The events that a server's supervisor waits for.
enum SupervisorEvent {
    Signal(Signal),
    Reloaded,
    /// The new process is ready, with its process ID; or the reason why it failed.
    Replaced(Result<u32, String>),
}

async fn next(
    signals: &Signals,
    replacement: &mut Option<Replacement>,
    reload: &mut Option<JoinHandle<()>>,
) -> SupervisorEvent {
    let replaced = async {
        match replacement {
            Some(replacement) => SupervisorEvent::Replaced(replacement.ready().await),
            // No process is starting, so wait for signals only.
            None => pending().await,
        }
    };
    let reloaded = async {
        match reload {
            Some(reload) => {
                reload.await;
                SupervisorEvent::Reloaded
            }
            None => pending().await,
        }
    };
    let signal = async { SupervisorEvent::Signal(wait(signals).await) };
    or(replaced, or(reloaded, signal)).await
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
