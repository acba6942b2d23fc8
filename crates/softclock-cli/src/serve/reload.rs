//! Acts on a running server: reloads its settings and certificate, reopens its log, replaces it by a new process.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process;
use std::time::Duration;

use softclock::JoinHandle;
use softclock_http::{AccessLog, Control, InputKind, Settings};

use super::program::Program;
use super::replacement::Replacement;
use super::start_error::Advised;
use super::{changes, settings};
use crate::cli::{self, Shown};
use crate::logging::{Logging, NOTICE};
use crate::notify::{State, notify};
use crate::options::ServerOptions;

/// Changes a running server on signals and on schedule.
pub(crate) struct Supervisor {
    control: Control,
    arguments: Vec<OsString>,
    logging: Logging,
    program: RefCell<Program>,
    watching: RefCell<Option<JoinHandle<()>>>,
    had_terminal: bool,
    /// Whether the server has a network stack, which no other process can take over.
    has_stack: bool,
}

impl Supervisor {
    pub(crate) fn new(
        control: Control,
        program: Program,
        arguments: Vec<OsString>,
        logging: Logging,
        has_stack: bool,
    ) -> Self {
        Self {
            control,
            arguments,
            logging,
            program: RefCell::new(program),
            watching: RefCell::default(),
            had_terminal: io::stdin().is_terminal(),
            has_stack,
        }
    }

    /// Whether the terminal in which the server was started has been closed. SIGHUP then means to end, not to reload.
    pub(crate) fn has_lost_terminal(&self) -> bool {
        self.had_terminal && !io::stdin().is_terminal()
    }

    /// Reopens the access log, which may have been renamed.
    pub(crate) fn reopen_log(&self) {
        if let Some(log) = self.control.settings().access_log {
            log.reopen();
        }
    }

    /// Writes the pending lines of all logs, for a limited time, before the process ends.
    pub(crate) fn end_at_once(&self) {
        self.logging
            .say("softclock: ended at once by a second signal");
        AccessLog::flush_all(FLUSH_LIMIT);
        self.logging.finish();
    }

    /// Starts a new process of the program with the same arguments. Returns `None`, and logs the reason, if that fails,
    /// or if the server has a stack.
    pub(crate) fn start_replacement(&self) -> Option<Replacement> {
        if self.has_stack {
            tracing::error!(
                "not replaced, this process continues: a network stack (--dev) cannot be handed to a new process; \
                 restart the server instead"
            );
            return None;
        }
        let sockets = self.control.sockets();
        let started = sockets.and_then(|sockets| Replacement::start(&self.arguments, sockets));
        match started {
            Ok(replacement) => Some(replacement),
            Err(error) => {
                tracing::error!("not replaced, this process continues: {error}");
                None
            }
        }
    }

    /// Leaves new connections to the process `pid`, which is ready, and names it to the service manager.
    pub(crate) async fn hand_over(&self, pid: u32) {
        self.control.hand_over().await;
        notify(State::Replaced(pid));
        tracing::info!(
            target: NOTICE,
            "replaced by a new process: {pid} serves in place of {}, which ends when its connections have",
            process::id()
        );
    }

    /// Reads the configuration file, the site and the certificate again. On an error, the old settings stay.
    pub(crate) async fn reload(&self) {
        notify(State::Reloading(softclock::now().as_ns() / 1000));
        match self.try_reload().await {
            Ok(summary) => tracing::info!(target: NOTICE, "{summary}"),
            Err(error) => tracing::error!("not reloaded, the old settings stay: {error}"),
        }
        notify(State::Ready);
    }

    /// Reloads, and returns the line that summarises the changes.
    async fn try_reload(&self) -> Result<String, String> {
        let (arguments, previous) = (self.arguments.clone(), self.control.settings());
        let old_tls = previous.tls.clone();
        // Reading files may block, so do it outside the event loop.
        let read = move || read(arguments, &previous);
        let (program, settings) = softclock::spawn_blocking(read).await?;
        let has_new_certificate = settings.tls.as_ref().is_some_and(|new| {
            let old = old_tls.as_ref();
            old.is_none_or(|old| !new.has_same_certificates(old))
        });
        // Applying the settings is the last step that can fail, so change nothing else before it.
        let applied = self.control.apply(settings).await;
        applied.map_err(|error| Advised(&error).to_string())?;
        self.logging.set_level(program.server().level());
        let old = self.program.replace(program);
        let program = self.program.borrow();
        let fixed = |options: &ServerOptions| {
            let priority = options.priority;
            let stack = &options.stack;
            (
                options.threads,
                options.spin_cap,
                (options.events, options.busy_poll),
                priority,
                (stack.clone(), options.napi_dev.clone()),
                options.tcp.clone(),
            )
        };
        // The threads are running already, so these settings cannot change.
        if fixed(old.server()) != fixed(program.server()) {
            tracing::warn!(
                "threads, spin-cap, events, busy-poll, priority, napi, signalling and the stack change at the next start only"
            );
        }
        let addresses = self.control.local_addresses().len();
        let summary = changes::summary([&old, &program], has_new_certificate, addresses);
        drop(program);
        self.watch_certificate();
        Ok(summary)
    }

    /// Logs if the certificate is invalid or expires soon, and starts to check regularly whether its files or its
    /// validity have changed. Replaces the task of an earlier call.
    pub(crate) fn watch_certificate(&self) {
        let tls = self.control.settings().tls;
        let mut validity = settings::validity(tls.as_ref());
        settings::log(&validity);
        let every = self.program.borrow().server().operation.tls_check;
        let old = self.watching.take();
        old.into_iter().for_each(|task| task.abort());
        let Some(tls) = tls.filter(|_| !every.is_zero()) else {
            return;
        };
        let watch = softclock::spawn_local(async move {
            loop {
                softclock::sleep(every).await;
                let shown = tls.clone();
                match softclock::spawn_blocking(move || shown.refresh()).await {
                    Ok(true) => tracing::info!("new certificate"),
                    Ok(false) => {}
                    Err(error) => tracing::error!("the old certificate stays: {error}"),
                }
                let now = settings::validity(Some(&tls));
                if now != validity {
                    settings::log(&now);
                    validity = now;
                }
            }
        });
        *self.watching.borrow_mut() = Some(watch);
    }
}

fn read(arguments: Vec<OsString>, previous: &Settings) -> Result<(Program, Settings), String> {
    let program = match cli::parse_reading(arguments, InputKind::Regular) {
        Ok(command) => Program::of(command),
        Err(Shown::Help(_)) => None,
        Err(Shown::Mistake(line) | Shown::BadFile(line)) => return Err(line),
    };
    let program = program.ok_or("the command line has changed")?;
    let settings = settings::make(&program, Some(previous));
    let settings = settings.map_err(|error| Advised(&error).to_string())?;
    Ok((program, settings))
}

/// Limit for writing the access log at an immediate end, so that a slow disk does not delay it.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);
