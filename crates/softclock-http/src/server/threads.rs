//! A server of several threads, each with its own runtime, listeners and connections.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use softclock::net::Inherited;
use softclock::net::stack::{self, Stack, StackOptions, StackShare};
use softclock::signalling::Policy;
use softclock::{BusyPoll, Mechanism, Runtime};

use crate::error::StartError;
use crate::exchange::live::WorkerOptions;
use crate::exchange::served::Served;
use crate::net::address::ListenAddress;
use crate::observe::access_log::AccessLog;
use crate::server::control::{Command, Commands, Control, obey};
use crate::server::settings::Settings;
use crate::server::worker::Worker;

/// Configures a [`Server`] before it starts; created by [`Server::builder`] and [`Server::with`].
#[derive(Clone, Debug)]
pub struct Builder {
    settings: Settings,
    threads: usize,
    runtime: softclock::Builder,
    stack: Option<StackOptions>,
}

impl Builder {
    /// Adds an address to listen on. A server without any listens on [`ListenAddress::DEFAULT`].
    #[must_use]
    pub fn listen(mut self, address: ListenAddress) -> Self {
        self.settings.listen.push(address);
        self
    }

    /// Sets the number of threads, at least 1. The kernel distributes connections among them (SO_REUSEPORT).
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            ..self
        }
    }

    /// Sets the share of a processor that an idle thread may spend on spinning to keep timers exact, 0 to 1. The
    /// default is [`DEFAULT_SPIN_CAP`].
    #[must_use]
    pub fn spin_cap(self, share: f64) -> Self {
        Self {
            runtime: self.runtime.spin_cap(share),
            ..self
        }
    }

    /// Sets the mechanism by which the threads learn which sockets are ready. The default is epoll, or poll where epoll
    /// is forbidden.
    #[must_use]
    pub fn events(self, mechanism: Mechanism) -> Self {
        Self {
            runtime: self.runtime.events(mechanism),
            ..self
        }
    }

    /// Sets how the threads learn of the kernel's events. By default each event ends a wait.
    #[must_use]
    pub fn signalling(self, policy: Policy) -> Self {
        Self {
            runtime: self.runtime.signalling(policy),
            ..self
        }
    }

    /// Makes waits of the threads poll the network device before they sleep: see
    /// [`softclock::Builder::busy_poll`]. By default they do not.
    #[must_use]
    pub fn busy_poll(self, polling: BusyPoll) -> Self {
        Self {
            runtime: self.runtime.busy_poll(polling),
            ..self
        }
    }

    /// Sets the options of each thread. The limits of connections and of open files are for all threads together.
    #[must_use]
    pub fn worker(mut self, worker: WorkerOptions) -> Self {
        self.settings.worker = worker;
        self
    }

    /// Gives the server a network stack of its own. Addresses to listen on that are the stack's, or unspecified, are
    /// served by the stack, and so are connections to upstreams that it has a route to; all others are the kernel's.
    /// The number of threads is that of [`threads`](Self::threads), among which the hash of a connection chooses.
    #[must_use]
    pub fn stack(self, options: StackOptions) -> Self {
        Self {
            stack: Some(options),
            ..self
        }
    }

    /// Binds all addresses, and starts all threads but the first, which is the caller of [`Server::run`].
    ///
    /// # Errors
    /// Addresses on which listening fails, contradictory settings, and [`StartError::Runtime`].
    pub fn bind(self) -> Result<Server, StartError> {
        self.take_over(Vec::new())
    }

    /// As [`bind`](Self::bind), but uses `sockets` from another process ([`Control::sockets`]) for those addresses that
    /// the settings name, so that no connection is refused while one process replaces the other. The other process
    /// continues to serve. Call [`Control::settle`] once that process knows that this one is ready.
    ///
    /// # Errors
    /// As [`bind`](Self::bind). The other process can then continue.
    pub fn take_over(self, sockets: Vec<Inherited>) -> Result<Server, StartError> {
        let runtime = start_runtime(&self.runtime)?;
        let stack = self.stack.map(|mut options| {
            options.threads = self.threads;
            let opened = runtime.block_on(async { stack::open(&options) });
            opened.map_err(StartError::Stack)
        });
        let stack = stack.transpose()?;
        let own = stack.iter().flat_map(Stack::addresses);
        let own = own.map(|prefix| prefix.address).collect();
        let ports = stack.as_ref().and_then(Stack::host_ports);
        let ports = ports.map(|ports| ports.into_iter().map(|(_, port)| port).collect());
        let (control, commands) =
            Control::bind(self.settings, self.threads, sockets, (own, ports))?;
        let Commands {
            mut of_threads,
            progress,
        } = commands;
        let first = of_threads.remove(0);
        // Each thread holds a sender until it ends, so that `ended` closes with the last of them.
        let (running, ended) = async_channel::bounded(1);
        let others = of_threads
            .into_iter()
            .map(|commands| {
                spawn(
                    commands,
                    control.worker(),
                    self.runtime.clone(),
                    running.clone(),
                    stack.as_ref().map(Stack::share),
                )
            })
            .collect::<Result<_, _>>()?;
        let (worker, obeying) = runtime.block_on(async {
            let worker = control.worker()();
            let obeying = {
                let worker = Rc::clone(&worker);
                softclock::spawn_local(async move { obey(first, &worker).await })
            };
            match progress.opened.recv().await {
                Ok(error) => Err(error),
                Err(_) => {
                    progress.decide();
                    Ok((worker, obeying))
                }
            }
        })?;
        Ok(Server {
            runtime,
            worker,
            obeying,
            control,
            others,
            ended,
            stack,
        })
    }
}

fn start_runtime(settings: &softclock::Builder) -> Result<Runtime, StartError> {
    settings.build().map_err(StartError::Runtime)
}

/// Starts a thread that serves until `commands` closes, and then returns the number of connections it cut. Returns once
/// the thread has its runtime, or could not create it.
fn spawn(
    commands: Receiver<Command>,
    worker: impl FnOnce() -> Rc<Worker> + Send + 'static,
    settings: softclock::Builder,
    running: Sender<Infallible>,
    stack: Option<StackShare>,
) -> Result<JoinHandle<usize>, StartError> {
    let (report, started) = mpsc::channel();
    let run = move || {
        // The runtime must be created on the thread that runs it.
        let started = start_runtime(&settings).and_then(|runtime| {
            let joined = stack.map(|stack| runtime.block_on(async { stack.join() }));
            joined.transpose().map_err(StartError::Stack)?;
            Ok(runtime)
        });
        let (runtime, result) = match started {
            Ok(runtime) => (Some(runtime), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let _ = report.send(result);
        let serve = async {
            let worker = worker();
            obey(commands, &worker).await;
            worker.drain().await
        };
        let cut = runtime.map_or(0, |runtime| runtime.block_on(serve));
        drop(running);
        cut
    };
    let handle = thread::Builder::new().name("softclock".into()).spawn(run);
    let handle = handle.map_err(StartError::Runtime)?;
    match started.recv() {
        Ok(result) => result.map(|()| handle),
        Err(_) => Err(StartError::Runtime(io::Error::other("a thread panicked"))),
    }
}

/// A server that listens and is ready to run.
pub struct Server {
    runtime: Runtime,
    worker: Rc<Worker>,
    /// Obeys the commands to the first thread.
    obeying: softclock::JoinHandle<()>,
    control: Control,
    others: Vec<JoinHandle<usize>>,
    /// Closes when the other threads have ended.
    ended: Receiver<Infallible>,
    stack: Option<Stack>,
}

impl Server {
    /// Returns a builder of a server for a site or a proxy, with one thread and default options.
    pub fn builder(served: impl Into<Served>) -> Builder {
        Self::with(Settings::new(served))
    }

    /// Returns a builder of a server with these settings and one thread.
    pub fn with(settings: Settings) -> Builder {
        Builder {
            settings,
            threads: 1,
            runtime: Runtime::builder().spin_cap(DEFAULT_SPIN_CAP),
            stack: None,
        }
    }

    /// Returns the addresses on which the server listens, in the order they were added. Port 0 is replaced by the port
    /// that the kernel chose.
    pub fn local_addresses(&self) -> Vec<ListenAddress> {
        self.control.local_addresses()
    }

    /// Returns the mechanism by which the server learns which sockets are ready.
    pub fn mechanism(&self) -> Mechanism {
        self.runtime.mechanism()
    }

    /// Returns the server's own stack, if it has one.
    pub fn stack(&self) -> Option<&Stack> {
        self.stack.as_ref()
    }

    /// Returns a handle that changes the server while it runs. Use it in tasks of the runtime of [`run`](Self::run).
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Serves until `shutdown` is ready, then drains: accepts no more connections, and waits for those in progress for
    /// up to [`WorkerOptions::drain`]. Finally waits up to two seconds for access logs to be written.
    ///
    /// Runs `shutdown` in the runtime of this thread, where tasks that it spawns run, too. Returns the number of
    /// connections that were cut at the end of the drain time.
    pub fn run(self, shutdown: impl Future<Output = ()>) -> usize {
        let Self {
            runtime,
            worker,
            obeying,
            control,
            others,
            ended,
            stack,
        } = self;
        let cut = runtime.block_on(async {
            if let Some(stack) = &stack {
                control.observe_stack(stack.clone());
            }
            control.start_metrics();
            if let Some(stack) = stack {
                let captured = stack.clone();
                softclock::spawn_local(async move {
                    let end = captured.capture_ended().await;
                    tracing::error!("the capture ends, and the server goes on: {end}");
                });
                let sharing = stack.clone();
                softclock::spawn_local(async move {
                    loop {
                        let change = sharing.host_address_changed().await;
                        tracing::warn!("{change}");
                    }
                });
                softclock::spawn_local(async move {
                    let error = stack.ended().await;
                    tracing::error!("{error}: its addresses are served no more");
                });
            }
            shutdown.await;
            // The other threads drain at the same time as this one.
            control.close();
            obeying.await;
            let cut = worker.drain().await;
            // Awaited here rather than in `join` below, so that tasks of the caller, such as a handler of signals, run
            // until the last thread has ended.
            let _ = ended.recv().await;
            cut
        });
        drop(runtime);
        let others = others.into_iter().map(|thread| thread.join().unwrap_or(0));
        let cut = cut + others.sum::<usize>();
        AccessLog::flush_all(FLUSH_LIMIT);
        cut
    }
}

/// The default share of a processor that an idle thread may spend on spinning to keep timers exact. A thread spins only
/// while a timer is about to expire.
pub const DEFAULT_SPIN_CAP: f64 = 0.05;

/// The limit of the wait for access logs at the end. A disk needs less; a pipe without a reader would never finish.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);
