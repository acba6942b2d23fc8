//! Changing a server while it runs, and asking its threads what they have done.
//!
//! A change is prepared in one thread, where it can fail without consequence: addresses that are new are bound, and
//! only if all are do the threads learn of it. Each thread then replaces what it serves by, opens and closes listeners,
//! and leaves connections alone: a request is served by the settings of the moment at which its head is complete.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use softclock::net::Inherited;

use crate::client::by_address::Clients;
use crate::error::StartError;
use crate::net::address::ListenAddress;
use crate::net::listener::{Binder, Bound};
use crate::observe::metrics::endpoint::{Endpoints, Reporter};
use crate::observe::telemetry::Report;
use crate::server::settings::Settings;
use crate::server::worker::{ListenerId, Worker};

/// The handle by which a server is changed while it runs. It stays in the thread of
/// [`Server::run`](crate::Server::run).
#[derive(Clone, Debug)]
pub struct Control {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    threads: Vec<Sender<Command>>,
    binder: RefCell<Binder>,
    settings: RefCell<Settings>,
    /// The addresses asked for, and the real ones that each gave.
    listening: RefCell<Vec<(ListenAddress, Vec<ListenAddress>)>>,
    metrics: Endpoints,
    /// The counts of client addresses, shared by all threads.
    clients: Arc<Clients>,
}

/// What a thread is told.
pub(crate) enum Command {
    /// Serve by these settings; close and open listeners.
    Apply(Box<Change>),
    /// Another process accepts what this one does not.
    HandOver,
    /// Tell what was done so far.
    Report(Sender<Report>),
}

pub(crate) struct Change {
    /// The thread's own copy: its cache of files stays on the thread.
    settings: Settings,
    threads: usize,
    close: Vec<ListenAddress>,
    open: Vec<(ListenAddress, Vec<Bound>)>,
}

impl Control {
    /// Binds what the settings name, where none of the sockets `left` by another process listens, and leaves it to the
    /// threads that will listen to the receivers.
    pub(crate) fn bind(
        settings: Settings,
        threads: usize,
        left: Vec<Inherited>,
    ) -> Result<(Self, Vec<Receiver<Command>>), StartError> {
        let settings = settings.checked()?;
        let (senders, receivers) = (0..threads)
            .map(|_| async_channel::bounded(COMMANDS))
            .unzip();
        let control = Self {
            shared: Rc::new(Shared {
                threads: senders,
                binder: Binder::taking_over(left).into(),
                settings: RefCell::new(settings.clone()),
                listening: RefCell::default(),
                metrics: Endpoints::default(),
                clients: Arc::default(),
            }),
        };
        for (sender, change) in control
            .shared
            .threads
            .iter()
            .zip(control.prepare(settings)?)
        {
            let sent = sender.try_send(Command::Apply(Box::new(change)));
            sent.unwrap_or_else(|_| unreachable!("the channel is new"));
        }
        Ok((control, receivers))
    }

    /// Makes the server what `settings` say, without dropping a connection. Listeners whose address stays are kept,
    /// others bound or closed. After an error everything is as it was.
    ///
    /// # Errors
    /// Addresses that can't be listened on, and settings that contradict themselves.
    pub async fn apply(&self, settings: Settings) -> Result<(), StartError> {
        let changes = self.prepare(settings.checked()?)?;
        for (sender, change) in self.shared.threads.iter().zip(changes) {
            // A thread that is gone serves nothing that could change.
            let _ = sender.send(Command::Apply(Box::new(change))).await;
        }
        self.start_metrics();
        Ok(())
    }

    /// Returns descriptors of all listening sockets, for a process that is to replace this one: each with the name that
    /// [`Builder::take_over`](crate::Builder::take_over) knows it by there.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.shared.binder.borrow().sockets()
    }

    /// To be called when another process listens by all [`sockets`](Self::sockets), before the server is told to end:
    /// the end then loses no request. Files of Unix sockets are left to the other process. Connections stay for half of
    /// [`drain`](crate::WorkerOptions::drain), those of HTTP/1 until their next response, which says that it is the last.
    pub async fn hand_over(&self) {
        self.shared.binder.borrow().leave_paths();
        for thread in &self.shared.threads {
            let _ = thread.send(Command::HandOver).await;
        }
    }

    /// To be called when the process whose sockets this one has [taken over](crate::Builder::take_over) is about to end:
    /// removes the files of its Unix sockets at this one's end, and at once those that the settings do not name.
    pub fn settle(&self) {
        self.shared.binder.borrow_mut().settle();
    }

    /// The settings of now.
    pub fn settings(&self) -> Settings {
        self.shared.settings.borrow().clone()
    }

    /// The addresses listened on, with their real ports.
    pub fn local_addresses(&self) -> Vec<ListenAddress> {
        let listening = self.shared.listening.borrow();
        listening
            .iter()
            .flat_map(|(_, real)| real.clone())
            .collect()
    }

    /// The addresses at which metrics are told, with their real ports.
    pub fn metrics_addresses(&self) -> Vec<ListenAddress> {
        self.shared.metrics.local_addresses()
    }

    /// One change for each thread, with everything bound that it needs.
    fn prepare(&self, settings: Settings) -> Result<Vec<Change>, StartError> {
        let shared = &self.shared;
        let mut binder = shared.binder.borrow_mut();
        let mut listening = shared.listening.borrow_mut();
        // Each address of now takes one equal address of the new ones with it.
        let mut added = settings.listen.clone();
        let stays = |address: &ListenAddress, added: &mut Vec<ListenAddress>| {
            let place = added.iter().position(|new| new == address);
            place.map(|place| added.remove(place)).is_some()
        };
        let removed: Vec<_> = listening
            .iter()
            .filter(|(address, _)| !stays(address, &mut added))
            .map(|(address, _)| address.clone())
            .collect();
        let change = |_: &Sender<Command>| Change {
            settings: settings.clone(),
            threads: shared.threads.len(),
            close: removed.clone(),
            open: Vec::new(),
        };
        let mut changes: Vec<_> = shared.threads.iter().map(change).collect();
        let mut real = Vec::new();
        for address in &added {
            let bound = binder.bind(address, settings.socket_mode, shared.threads.len())?;
            real.push((address.clone(), addresses(address, &bound[0])?));
            for (change, bound) in changes.iter_mut().zip(bound) {
                change.open.push((address.clone(), bound));
            }
        }
        shared
            .metrics
            .prepare(&settings.metrics, &mut binder, settings.socket_mode)?;
        for address in &removed {
            let place = listening.iter().position(|(own, _)| own == address);
            place.map(|place| listening.remove(place));
        }
        listening.extend(real);
        *shared.settings.borrow_mut() = settings;
        Ok(changes)
    }

    /// Returns a function that makes a thread's worker, to be called on that thread.
    pub(crate) fn worker(&self) -> impl FnOnce() -> Rc<Worker> + Send + 'static {
        let settings = self.settings();
        let threads = self.shared.threads.len();
        let clients = Arc::clone(&self.shared.clients);
        move || Worker::sharing(clients, settings.live(threads, None))
    }

    /// Lets metrics be asked for at the addresses prepared, in the current runtime.
    pub(crate) fn start_metrics(&self) {
        self.shared.metrics.start(self);
    }

    /// Tells the threads to end.
    pub(crate) fn close(&self) {
        self.shared.metrics.close();
        for thread in &self.shared.threads {
            thread.close();
        }
    }
}

impl Reporter for Control {
    /// The reports of all threads that answer soon.
    async fn reports(&self) -> Vec<Report> {
        let (reply, reports) = async_channel::bounded(self.shared.threads.len());
        for thread in &self.shared.threads {
            // A thread whose queue of commands is full would not answer soon.
            let _ = thread.try_send(Command::Report(reply.clone()));
        }
        drop(reply);
        let mut received = Vec::new();
        let all = async {
            while let Ok(report) = reports.recv().await {
                received.push(report);
            }
        };
        let _ = softclock::timeout(REPORT_TIME, all).await;
        received
    }

    fn has_access_log(&self) -> bool {
        self.shared.settings.borrow().access_log.is_some()
    }
}

/// Does what a thread is told until the channel closes.
pub(crate) async fn obey(commands: Receiver<Command>, worker: &Rc<Worker>) {
    let mut listening: Vec<(ListenAddress, Vec<ListenerId>)> = Vec::new();
    while let Ok(command) = commands.recv().await {
        match command {
            Command::Apply(change) => apply(*change, worker, &mut listening),
            Command::HandOver => worker.exchanges.hand_over(),
            Command::Report(reply) => {
                let _ = reply.try_send(Report {
                    counts: worker.exchanges.telemetry.counts(),
                    open: worker.members.count(),
                    limit: worker.members.limit(),
                    upstreams: worker.upstreams(),
                    statistics: softclock::statistics(),
                });
            }
        }
    }
}

fn apply(
    change: Change,
    worker: &Rc<Worker>,
    listening: &mut Vec<(ListenAddress, Vec<ListenerId>)>,
) {
    let previous = worker.exchanges.live();
    worker.set_live(change.settings.live(change.threads, Some(&previous)));
    for (address, bound) in change.open {
        let mut ids = Vec::new();
        for bound in bound {
            match bound.listen() {
                Ok(listener) => ids.push(worker.listen(listener)),
                Err(error) => tracing::error!(%address, %error, "cannot listen"),
            }
        }
        listening.push((address, ids));
    }
    for address in change.close {
        let Some(place) = listening.iter().position(|(own, _)| *own == address) else {
            continue;
        };
        for id in listening.remove(place).1 {
            worker.unlisten(id);
        }
    }
}

fn addresses(asked: &ListenAddress, bound: &[Bound]) -> Result<Vec<ListenAddress>, StartError> {
    let real = bound.iter().map(Bound::local_address);
    let real = real.collect::<io::Result<_>>();
    real.map_err(|error| StartError::Listen(asked.clone(), error))
}

/// Commands that may wait for a busy thread.
const COMMANDS: usize = 16;

/// A thread that does not answer in this time is left out.
const REPORT_TIME: Duration = Duration::from_secs(1);
