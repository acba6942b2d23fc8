//! A server of several threads, each with its own runtime, listeners and connections.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use softclock::net::Inherited;
use softclock::{Mechanism, Runtime};

use crate::error::StartError;
use crate::exchange::live::WorkerOptions;
use crate::exchange::served::Served;
use crate::net::address::ListenAddress;
use crate::observe::access_log::AccessLog;
use crate::server::control::{Command, Control, obey};
use crate::server::settings::Settings;
use crate::server::worker::Worker;

/// What to serve, where and how.
#[derive(Clone, Debug)]
pub struct Builder {
    settings: Settings,
    threads: usize,
    runtime: softclock::Builder,
}

impl Builder {
    /// Adds an address to listen on; [`ListenAddress::DEFAULT`] if there is none.
    #[must_use]
    pub fn listen(mut self, address: ListenAddress) -> Self {
        self.settings.listen.push(address);
        self
    }

    /// How many threads serve; the kernel spreads connections over them (SO_REUSEPORT).
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            ..self
        }
    }

    /// The share of its processor that an idle thread may spin to keep timers exact, 0 to 1.
    #[must_use]
    pub fn spin_cap(self, share: f64) -> Self {
        Self {
            runtime: self.runtime.spin_cap(share),
            ..self
        }
    }

    /// How the threads learn which sockets are ready; by epoll unless it is said, or by poll where epoll is forbidden.
    #[must_use]
    pub fn events(self, mechanism: Mechanism) -> Self {
        Self {
            runtime: self.runtime.events(mechanism),
            ..self
        }
    }

    /// How each thread serves. The limit of connections is for all threads together.
    #[must_use]
    pub fn worker(mut self, worker: WorkerOptions) -> Self {
        self.settings.worker = worker;
        self
    }

    /// Binds all addresses, and starts all threads but the one that will call [`Server::run`].
    ///
    /// # Errors
    /// Addresses that can't be listened on, settings that contradict themselves, and [`StartError::Runtime`].
    pub fn bind(self) -> Result<Server, StartError> {
        self.take_over(Vec::new())
    }

    /// As [`bind`](Self::bind), and listens by `sockets`, which another process has left ([`Control::sockets`]), where the
    /// settings name their place; the other process goes on meanwhile. Once it has learnt that this one is ready, call
    /// [`Control::settle`].
    ///
    /// # Errors
    /// As [`bind`](Self::bind). The other process may then go on.
    pub fn take_over(self, sockets: Vec<Inherited>) -> Result<Server, StartError> {
        let (control, mut commands) = Control::bind(self.settings, self.threads, sockets)?;
        let first = commands.remove(0);
        let runtime = start_runtime(&self.runtime)?;
        let (running, ended) = async_channel::bounded(1);
        let others = commands
            .into_iter()
            .map(|commands| {
                spawn(
                    commands,
                    control.worker(),
                    self.runtime.clone(),
                    running.clone(),
                )
            })
            .collect::<Result<_, _>>()?;
        Ok(Server {
            runtime,
            commands: first,
            control,
            others,
            ended,
        })
    }
}

fn start_runtime(settings: &softclock::Builder) -> Result<Runtime, StartError> {
    settings.build().map_err(StartError::Runtime)
}

fn spawn(
    commands: Receiver<Command>,
    worker: impl FnOnce() -> Rc<Worker> + Send + 'static,
    settings: softclock::Builder,
    running: Sender<Infallible>,
) -> Result<JoinHandle<usize>, StartError> {
    let (report, started) = mpsc::channel();
    let run = move || {
        let started = start_runtime(&settings);
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
        Err(_) => Err(StartError::Runtime(io::Error::other("a thread has died"))),
    }
}

/// A server that listens and is ready to run.
pub struct Server {
    runtime: Runtime,
    commands: Receiver<Command>,
    control: Control,
    others: Vec<JoinHandle<usize>>,
    /// Closed when the other threads have ended.
    ended: Receiver<Infallible>,
}

impl Server {
    /// A server of a site or a proxy on one thread, to be completed.
    pub fn builder(served: impl Into<Served>) -> Builder {
        Self::with(Settings::new(served))
    }

    /// A server of these settings on one thread, to be completed.
    pub fn with(settings: Settings) -> Builder {
        Builder {
            settings,
            threads: 1,
            runtime: Runtime::builder().spin_cap(DEFAULT_SPIN_CAP),
        }
    }

    /// The addresses listened on, with their real ports, in the order they were added.
    pub fn local_addresses(&self) -> Vec<ListenAddress> {
        self.control.local_addresses()
    }

    /// How it learns which sockets are ready.
    pub fn mechanism(&self) -> Mechanism {
        self.runtime.mechanism()
    }

    /// The handle by which the server is changed while it runs, in the runtime of [`run`](Self::run).
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Serves until `shutdown` is ready and the connections in progress have ended or had their time. Then waits up to
    /// two seconds for access logs to be written.
    ///
    /// Gives the number of connections that were cut.
    pub fn run(self, shutdown: impl Future<Output = ()>) -> usize {
        let Self {
            runtime,
            commands,
            control,
            others,
            ended,
        } = self;
        let cut = runtime.block_on(async {
            let worker = control.worker()();
            let obeying = {
                let worker = Rc::clone(&worker);
                softclock::spawn_local(async move { obey(commands, &worker).await })
            };
            control.start_metrics();
            shutdown.await;
            control.close();
            obeying.await;
            let cut = worker.drain().await;
            // Here, not in join, so that tasks of the caller's, such as one that waits for signals, go on.
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

/// The share of a processor that keeps timers exact while the server idles; without timers due it is not used.
pub const DEFAULT_SPIN_CAP: f64 = 0.05;

/// How long access logs may take to be written at the end: a disk does it sooner, and a pipe that is not read never.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);
