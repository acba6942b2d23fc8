//! A server of several threads, each with its own runtime, listeners and connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use async_channel::{Receiver, Sender};
use softclock::Runtime;
use softclock::net::TcpListener;

use crate::address::ListenAddress;
use crate::error::StartError;
use crate::site::Site;
use crate::worker::{WorkerOptions, serve};

/// What to serve, where and how.
#[derive(Clone, Debug)]
pub struct Builder {
    site: Site,
    listen: Vec<ListenAddress>,
    threads: usize,
    spin_cap: f64,
    worker: WorkerOptions,
}

impl Builder {
    /// Adds an address to listen on; [`ListenAddress::DEFAULT`] if there is none.
    #[must_use]
    pub fn listen(mut self, address: ListenAddress) -> Self {
        self.listen.push(address);
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
            spin_cap: share,
            ..self
        }
    }

    /// How each thread serves. The limit of connections is for all threads together.
    #[must_use]
    pub fn worker(self, worker: WorkerOptions) -> Self {
        Self { worker, ..self }
    }

    /// Binds all addresses, and starts all threads but the one that will call [`Server::run`].
    ///
    /// # Errors
    /// [`StartError::Listen`] and [`StartError::Runtime`].
    pub fn bind(mut self) -> Result<Server, StartError> {
        if self.listen.is_empty() {
            self.listen.push(ListenAddress::DEFAULT);
        }
        let share = self.worker.max_connections / self.threads;
        self.worker.max_connections = share.max(1);
        self.site = self.site.for_one_of(self.threads);
        let first = Thread::start(&self, Position::First)?;
        // The others share the ports that the first was given.
        for (address, bound) in self.listen.iter_mut().zip(&first.addresses) {
            *address = address.with_port(bound.port());
        }
        let (shutdown, ended) = async_channel::bounded(1);
        let mut others = Vec::new();
        for _ in 1..self.threads {
            others.push(self.spawn(ended.clone())?);
        }
        Ok(Server {
            first,
            site: self.site,
            worker: self.worker,
            others,
            shutdown,
        })
    }

    fn spawn(&self, ended: Receiver<Infallible>) -> Result<JoinHandle<usize>, StartError> {
        let (report, started) = mpsc::channel();
        let builder = self.clone();
        let handle = thread::Builder::new()
            .name("softclock".into())
            .spawn(move || {
                match Thread::start(&builder, Position::Other) {
                    Ok(thread) => {
                        let _ = report.send(Ok(()));
                        // An error is what closing the channel gives.
                        let shutdown =
                            async move { ended.recv().await.map_or((), |never| match never {}) };
                        thread.run(builder.site, builder.worker, shutdown)
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
                        0
                    }
                }
            });
        let handle = handle.map_err(StartError::Runtime)?;
        match started.recv() {
            Ok(result) => result.map(|()| handle),
            Err(_) => Err(StartError::Runtime(io::Error::other("a thread has died"))),
        }
    }
}

/// A server that listens and is ready to run.
pub struct Server {
    first: Thread,
    site: Site,
    worker: WorkerOptions,
    others: Vec<JoinHandle<usize>>,
    /// Dropped to tell the other threads.
    shutdown: Sender<Infallible>,
}

impl Server {
    /// A server of `site` on one thread, to be completed.
    pub fn builder(site: Site) -> Builder {
        Builder {
            site,
            listen: Vec::new(),
            threads: 1,
            spin_cap: DEFAULT_SPIN_CAP,
            worker: WorkerOptions::default(),
        }
    }

    /// The addresses listened on, with their real ports, in the order they were added.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.first.addresses
    }

    /// Serves until `shutdown` is ready and the connections in progress have ended or had their time.
    ///
    /// Gives the number of connections that were cut.
    pub fn run(self, shutdown: impl Future<Output = ()>) -> usize {
        let Self {
            first,
            site,
            worker,
            others,
            shutdown: sender,
        } = self;
        let shutdown = async move {
            shutdown.await;
            drop(sender);
        };
        let cut = first.run(site, worker, shutdown);
        cut + others
            .into_iter()
            .map(|thread| thread.join().unwrap_or(0))
            .sum::<usize>()
    }
}

/// One thread's runtime and listeners; they never leave it.
struct Thread {
    runtime: Runtime,
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

impl Thread {
    fn start(builder: &Builder, position: Position) -> Result<Self, StartError> {
        let runtime = Runtime::builder().spin_cap(builder.spin_cap).build();
        let runtime = runtime.map_err(StartError::Runtime)?;
        let shared = builder.threads > 1;
        let listeners = runtime.block_on(async {
            if shared && position == Position::First {
                refuse_taken_ports(&builder.listen)?;
            }
            let bind = |&address| bind(address, shared);
            builder
                .listen
                .iter()
                .map(bind)
                .collect::<Result<Vec<_>, _>>()
        })?;
        let (listeners, addresses) = listeners.into_iter().unzip();
        Ok(Self {
            runtime,
            listeners,
            addresses,
        })
    }

    fn run(self, site: Site, worker: WorkerOptions, shutdown: impl Future<Output = ()>) -> usize {
        let Self {
            runtime, listeners, ..
        } = self;
        runtime.block_on(serve(listeners, Rc::new(site), worker, shutdown))
    }
}

/// Which of the threads that share the listeners' ports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    First,
    Other,
}

/// With SO_REUSEPORT the kernel would let us share a port with a server that is already there. A listener without it
/// tells.
fn refuse_taken_ports(addresses: &[ListenAddress]) -> Result<(), StartError> {
    let mut fixed = addresses.iter().filter(|address| address.port() != 0);
    fixed.try_for_each(|&address| bind(address, false).map(drop))
}

fn bind(address: ListenAddress, reuse_port: bool) -> Result<(TcpListener, SocketAddr), StartError> {
    address
        .bind(reuse_port)
        .and_then(|listener| listener.local_addr().map(|bound| (listener, bound)))
        .map_err(|error| StartError::Listen(address, error))
}

/// The share of a processor that keeps timers exact while the server idles; without timers due it is not used.
pub const DEFAULT_SPIN_CAP: f64 = 0.05;
