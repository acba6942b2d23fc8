//! Changes a server while it runs, and collects reports from its threads.
//!
//! One thread prepares a change, where it can fail without consequence: it binds the new addresses, and sends the
//! change to the threads only if all of them were bound. Each thread opens the new listeners, and waits for the others:
//! only if all could, the threads replace their settings, accept from the new listeners, and close old ones.
//! Connections are not affected: a request is served with the settings that apply when its head is complete.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use async_lock::Mutex;
use softclock::net::Inherited;
use softclock::net::stack::Stack;

use crate::client::by_address::Clients;
use crate::client::capacity::Capacity;
use crate::error::StartError;
use crate::net::address::ListenAddress;
use crate::net::listener::{Binder, Bound};
use crate::observe::access_log::AccessLog;
use crate::observe::metrics::endpoint::{Endpoint, Endpoints, Reporter};
use crate::observe::metrics::families;
use crate::observe::metrics::text::MetricsPage;
use crate::observe::telemetry::Report;
use crate::server::settings::Settings;
use crate::server::worker::{ListenerId, Worker};

/// What the threads of a new server receive.
pub(crate) struct Commands {
    /// For each thread its commands, of which the first is to listen.
    pub(crate) of_threads: Vec<Receiver<Command>>,
    pub(crate) progress: Progress,
}

/// A handle that changes a server while it runs. It stays on the thread of [`Server::run`](crate::Server::run); clones
/// refer to the same server.
///
/// ```
/// use softclock_http::{Server, Site};
///
/// let server = Server::builder(Site::bundled())
///     .listen("127.0.0.1:0".parse()?)
///     .bind()?;
/// let control = server.control();
/// server.run(async {
///     let mut settings = control.settings();
///     settings.listen.push("127.0.0.1:0".parse().unwrap());
///     control.apply(settings).await.unwrap();
///     assert_eq!(control.local_addresses().len(), 2);
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Control {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    threads: Vec<Sender<Command>>,
    /// Held while a change is applied: the next one is prepared for its result.
    changing: Mutex<()>,
    binder: RefCell<Binder>,
    settings: RefCell<Settings>,
    /// Each configured address with the real addresses that it resolved to.
    listening: RefCell<Vec<(ListenAddress, Vec<ListenAddress>)>>,
    metrics: Endpoints,
    /// The stack that is part of the metrics, until the server drains.
    stack: RefCell<Option<Stack>>,
    /// The count of connections, and those of client addresses, shared by all threads.
    capacity: Arc<Capacity>,
    clients: Arc<Clients>,
    /// The latest report of each thread, in their order; `None` before the first.
    reports: RefCell<Vec<Option<Report>>>,
}

/// A command to one thread.
pub(crate) enum Command {
    /// Replace the settings; close and open listeners.
    Apply(Box<Change>),
    /// Another process accepts connections on the same sockets: let clients move there.
    HandOver,
    /// Send a report of the counters, with this number of the thread.
    Report(usize, Sender<(usize, Report)>),
}

pub(crate) struct Change {
    /// The thread's own copy, as its cache of files does not leave the thread.
    settings: Settings,
    threads: usize,
    close: Vec<ListenAddress>,
    open: Vec<(ListenAddress, Vec<Bound>)>,
    /// Closes when every thread has opened its listeners, or sent the error.
    opened: Sender<StartError>,
    /// Has a message for each thread if the change is to be made; otherwise closes.
    decided: Receiver<()>,
    /// Closes when every thread has made its change.
    made: Sender<()>,
}

/// A change of which all that the first thread can try has succeeded.
struct Prepared {
    settings: Settings,
    close: Vec<ListenAddress>,
    /// The new listeners of each thread.
    open: Vec<Vec<(ListenAddress, Vec<Bound>)>>,
    /// The new addresses, each with the real addresses that it resolved to.
    real: Vec<(ListenAddress, Vec<ListenAddress>)>,
    metrics: Vec<Endpoint>,
}

/// The other ends of the channels of a [`Change`]. If it is dropped without a decision, no thread makes the change.
pub(crate) struct Progress {
    /// The errors of threads that cannot listen; closes when all threads have tried.
    pub(crate) opened: Receiver<StartError>,
    decide: Sender<()>,
    made: Receiver<()>,
}

impl Progress {
    /// Lets the threads make the change.
    pub(crate) fn decide(&self) {
        for _ in 0..self.decide.capacity().unwrap_or(0) {
            let _ = self.decide.try_send(());
        }
    }
}

impl Control {
    /// Binds the addresses of the settings, except those for which a socket `left` by another process listens already,
    /// and those that the runtime's own `stack` serves: these addresses, and only these ports of them, if given.
    /// Returns the commands to the threads, which already contain that to listen.
    pub(crate) fn bind(
        settings: Settings,
        threads: usize,
        left: Vec<Inherited>,
        stack: (Vec<IpAddr>, Option<Vec<u16>>),
    ) -> Result<(Self, Commands), StartError> {
        let settings = settings.checked()?;
        let (addresses, ports) = stack;
        let (senders, receivers) = (0..threads)
            .map(|_| async_channel::bounded(COMMANDS))
            .unzip();
        let control = Self {
            shared: Rc::new(Shared {
                threads: senders,
                changing: Mutex::default(),
                binder: Binder::taking_over(left)
                    .with_stack(addresses, ports, threads)
                    .into(),
                settings: RefCell::new(settings.clone()),
                listening: RefCell::default(),
                metrics: Endpoints::default(),
                stack: RefCell::default(),
                capacity: Capacity::new(settings.worker.max_connections, threads),
                clients: Arc::default(),
                reports: RefCell::new((0..threads).map(|_| None).collect()),
            }),
        };
        let mut prepared = control.prepare(settings)?;
        let (changes, progress) = control.changes(&mut prepared);
        // The threads start only after this: the channels hold the command to listen until then.
        for (sender, change) in control.shared.threads.iter().zip(changes) {
            let sent = sender.try_send(Command::Apply(Box::new(change)));
            sent.unwrap_or_else(|_| unreachable!("the channel is new"));
        }
        control.record(prepared);
        Ok((
            control,
            Commands {
                of_threads: receivers,
                progress,
            },
        ))
    }

    /// Replaces the settings of the server without dropping a connection. Listeners whose address remains are kept,
    /// others are bound or closed. After an error the server continues with its previous settings. Returns when all
    /// threads have the new settings, but for threads that make no turn within a second: those follow.
    ///
    /// # Errors
    /// Addresses on which listening fails, and contradictory settings.
    ///
    /// # Cancel safety
    /// If the future is dropped, some threads may keep the previous settings and listeners, and new addresses of
    /// metrics are not served. Run it to its end, such as in a task of its own; it ends within about two seconds unless
    /// a thread hangs, once changes that began before have ended.
    pub async fn apply(&self, settings: Settings) -> Result<(), StartError> {
        let settings = settings.checked()?;
        let _changing = self.shared.changing.lock().await;
        let mut prepared = self.prepare(settings)?;
        let (changes, progress) = self.changes(&mut prepared);
        for (sender, change) in self.shared.threads.iter().zip(changes) {
            // The channel is closed only if the thread has ended, and then there is nothing to change.
            let _ = sender.send(Command::Apply(Box::new(change))).await;
        }
        let mut opened = Ok(());
        let all_opened = async {
            while let Ok(error) = progress.opened.recv().await {
                opened = Err(error);
            }
        };
        let _ = softclock::timeout(ANSWER_TIME, all_opened).await;
        opened?;
        let mode = prepared.settings.socket_mode;
        if mode != self.shared.settings.borrow().socket_mode {
            self.shared.binder.borrow().set_mode(mode)?;
        }
        self.record(prepared);
        progress.decide();
        let _ = softclock::timeout(ANSWER_TIME, progress.made.recv()).await;
        self.start_metrics();
        Ok(())
    }

    /// Returns descriptors of all listening sockets, for a process that is to replace this one. Each has the name under
    /// which [`Builder::take_over`](crate::Builder::take_over) recognises it in that process.
    ///
    /// # Errors
    /// The errors of `dup(2)`.
    pub fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.shared.binder.borrow().sockets()
    }

    /// Prepares the server to end without losing a request. Call it when another process listens on all
    /// [`sockets`](Self::sockets), before the `shutdown` of [`Server::run`](crate::Server::run) becomes ready.
    ///
    /// The other process then owns the files of Unix sockets. After the shutdown, idle connections stay open for half
    /// of [`drain`](crate::WorkerOptions::drain); HTTP/1 connections close after their next response, which has
    /// `Connection: close`.
    ///
    /// # Cancel safety
    /// If the future is dropped, some threads may not have learned of it: call it again.
    pub async fn hand_over(&self) {
        self.shared.binder.borrow().leave_paths();
        for thread in &self.shared.threads {
            let _ = thread.send(Command::HandOver).await;
        }
    }

    /// Takes ownership of the Unix sockets that this process has [taken over](crate::Builder::take_over): their files
    /// are removed when this server ends, and at once if the settings do not name them. Call it when the process that
    /// left the sockets is about to end.
    pub fn settle(&self) {
        let mode = self.shared.settings.borrow().socket_mode;
        self.shared.binder.borrow_mut().settle(mode);
    }

    /// Returns a copy of the current settings.
    pub fn settings(&self) -> Settings {
        self.shared.settings.borrow().clone()
    }

    /// Returns the addresses on which the server listens, with their real ports.
    pub fn local_addresses(&self) -> Vec<ListenAddress> {
        let listening = self.shared.listening.borrow();
        listening
            .iter()
            .flat_map(|(_, real)| real.clone())
            .collect()
    }

    /// Returns the addresses at which metrics are served, with their real ports.
    pub fn metrics_addresses(&self) -> Vec<ListenAddress> {
        self.shared.metrics.local_addresses()
    }

    /// Binds the new addresses, which changes nothing yet.
    fn prepare(&self, settings: Settings) -> Result<Prepared, StartError> {
        let shared = &self.shared;
        let mut binder = shared.binder.borrow_mut();
        let listening = shared.listening.borrow();
        binder.check_stack(settings.listen.iter().chain(&settings.metrics))?;
        // Addresses may repeat (port 0), so that each current address cancels only one equal new address.
        let mut added = settings.listen.clone();
        let stays = |address: &ListenAddress, added: &mut Vec<ListenAddress>| {
            let place = added.iter().position(|new| new == address);
            place.map(|place| added.remove(place)).is_some()
        };
        let close = listening
            .iter()
            .filter(|(address, _)| !stays(address, &mut added))
            .map(|(address, _)| address.clone())
            .collect();
        let mut open: Vec<_> = shared.threads.iter().map(|_| Vec::new()).collect();
        let mut real = Vec::new();
        for address in &added {
            let bound = binder.bind(address, settings.socket_mode, shared.threads.len())?;
            real.push((address.clone(), addresses(address, &bound[0])?));
            for (open, bound) in open.iter_mut().zip(bound) {
                open.push((address.clone(), bound));
            }
        }
        let metrics = shared
            .metrics
            .bind(&settings.metrics, &mut binder, settings.socket_mode)?;
        Ok(Prepared {
            settings,
            close,
            open,
            real,
            metrics,
        })
    }

    /// Returns one change for each thread, with the new listeners, and the channels by which to follow them.
    fn changes(&self, prepared: &mut Prepared) -> (Vec<Change>, Progress) {
        let threads = self.shared.threads.len();
        let (opened, all_opened) = async_channel::bounded(threads);
        let (decide, decided) = async_channel::bounded(threads);
        let (made, all_made) = async_channel::bounded(1);
        let change = |open| Change {
            settings: prepared.settings.clone(),
            threads,
            close: prepared.close.clone(),
            open,
            opened: opened.clone(),
            decided: decided.clone(),
            made: made.clone(),
        };
        let changes = mem::take(&mut prepared.open).into_iter().map(change);
        // Only the changes hold senders from here on, so that the receivers close with the last of them.
        (
            changes.collect(),
            Progress {
                opened: all_opened,
                decide,
                made: all_made,
            },
        )
    }

    /// Takes over the prepared addresses and settings.
    fn record(&self, prepared: Prepared) {
        let shared = &self.shared;
        let mut listening = shared.listening.borrow_mut();
        for address in &prepared.close {
            let place = listening.iter().position(|(own, _)| own == address);
            place.map(|place| listening.remove(place));
        }
        listening.extend(prepared.real);
        let wanted = &prepared.settings.metrics;
        shared.metrics.replace(wanted, prepared.metrics);
        *shared.settings.borrow_mut() = prepared.settings;
    }

    /// Returns a function that makes a thread's worker, to be called on that thread.
    pub(crate) fn worker(&self) -> impl FnOnce() -> Rc<Worker> + Send + 'static {
        let settings = self.settings();
        let threads = self.shared.threads.len();
        let capacity = Arc::clone(&self.shared.capacity);
        let clients = Arc::clone(&self.shared.clients);
        move || {
            let worker = Worker::sharing(capacity, clients, settings.live(threads, None));
            if threads > 1 {
                softclock::spawn_local(Rc::clone(&worker.members).make_room());
            }
            worker
        }
    }

    /// Starts to serve metrics at the prepared addresses, in the current runtime.
    pub(crate) fn start_metrics(&self) {
        if let Err(error) = self.shared.metrics.start(self) {
            // The server itself does not depend on its metrics.
            tracing::error!("metrics: {error}");
        }
    }

    /// Adds a stack, of this thread's runtime, to the metrics.
    pub(crate) fn observe_stack(&self, stack: Stack) {
        *self.shared.stack.borrow_mut() = Some(stack);
    }

    /// Returns the reports of all threads: of those that do not answer within `ANSWER_TIME` the last one, as counters
    /// must not fall.
    async fn reports(&self) -> Vec<Report> {
        let (reply, reports) = async_channel::bounded(self.shared.threads.len());
        for (number, thread) in self.shared.threads.iter().enumerate() {
            // A thread whose queue of commands is full would not answer in time.
            let _ = thread.try_send(Command::Report(number, reply.clone()));
        }
        // Only the threads hold senders from here on, so that `recv` fails once all have answered.
        drop(reply);
        let all = async {
            while let Ok((number, report)) = reports.recv().await {
                self.shared.reports.borrow_mut()[number] = Some(report);
            }
        };
        let _ = softclock::timeout(ANSWER_TIME, all).await;
        self.shared
            .reports
            .borrow()
            .iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Closes the channels of commands, upon which the threads drain and end.
    pub(crate) fn close(&self) {
        self.shared.metrics.close();
        self.shared.stack.take();
        for thread in &self.shared.threads {
            thread.close();
        }
    }
}

impl Reporter for Control {
    async fn page(&self) -> MetricsPage {
        let reports = self.reports().await;
        let has_log = self.shared.settings.borrow().access_log.is_some();
        let mut page = families::page(&reports, has_log.then(AccessLog::counts));
        if let Some(stack) = &*self.shared.stack.borrow() {
            page.stack(stack);
        }
        page
    }
}

/// Executes the commands to a thread until the channel closes.
pub(crate) async fn obey(commands: Receiver<Command>, worker: &Rc<Worker>) {
    let mut listening: Vec<(ListenAddress, Vec<ListenerId>)> = Vec::new();
    while let Ok(command) = commands.recv().await {
        match command {
            Command::Apply(change) => apply(*change, worker, &mut listening).await,
            Command::HandOver => worker.exchanges.hand_over(),
            Command::Report(number, reply) => {
                let report = Report {
                    counts: worker.exchanges.telemetry.counts(),
                    open: worker.members.count(),
                    limit: worker.members.limit(),
                    upstreams: worker.upstreams(),
                    statistics: softclock::statistics(),
                };
                let _ = reply.try_send((number, report));
            }
        }
    }
}

async fn apply(
    change: Change,
    worker: &Rc<Worker>,
    listening: &mut Vec<(ListenAddress, Vec<ListenerId>)>,
) {
    // New listeners open before old ones close.
    let (mut opened, mut failed) = (Vec::new(), Vec::new());
    for (address, bound) in change.open {
        let listeners = bound.into_iter().map(|bound| worker.open(bound));
        match listeners.collect::<io::Result<Vec<_>>>() {
            Ok(listeners) => opened.push((address, listeners)),
            Err(error) => {
                let error = StartError::Listen(address, error);
                failed.push(error.to_string());
                let _ = change.opened.try_send(error);
            }
        }
    }
    drop(change.opened);
    if change.decided.recv().await.is_err() {
        return;
    }
    // The change was decided before this thread had tried.
    failed.iter().for_each(|error| tracing::error!("{error}"));
    let previous = worker.exchanges.live();
    worker.set_live(change.settings.live(change.threads, Some(&previous)));
    for (address, listeners) in opened {
        let ids = listeners
            .into_iter()
            .map(|listener| worker.listen(listener));
        listening.push((address, ids.collect()));
    }
    for address in change.close {
        let Some(place) = listening.iter().position(|(own, _)| *own == address) else {
            continue;
        };
        for id in listening.remove(place).1 {
            worker.unlisten(id);
        }
    }
    drop(change.made);
}

fn addresses(asked: &ListenAddress, bound: &[Bound]) -> Result<Vec<ListenAddress>, StartError> {
    let real = bound.iter().map(Bound::local_address);
    let real = real.collect::<io::Result<_>>();
    real.map_err(|error| StartError::Listen(asked.clone(), error))
}

/// The capacity of a thread's queue of commands.
const COMMANDS: usize = 16;

/// The limit of the wait for what a command asks of all threads.
const ANSWER_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::site::content::Site;

    /// Two threads of a server in one, of which the second stops to obey.
    #[test]
    fn counters_do_not_fall_when_a_thread_is_late() {
        let mut settings = Settings::new(Site::bundled());
        settings.listen = vec!["127.0.0.1:0".parse().unwrap()];
        let (control, commands) =
            Control::bind(settings, 2, Vec::new(), Default::default()).expect("a free port");
        softclock::Runtime::new().unwrap().block_on(async {
            commands.progress.decide();
            let is_late = Rc::new(Cell::new(false));
            for (number, of_thread) in commands.of_threads.into_iter().enumerate() {
                let worker = control.worker()();
                worker.exchanges.telemetry.on_accepted();
                let (sender, receiver) = async_channel::unbounded();
                softclock::spawn_local(async move { obey(receiver, &worker).await });
                let is_late = Rc::clone(&is_late);
                softclock::spawn_local(async move {
                    let mut held = Vec::new();
                    while let Ok(command) = of_thread.recv().await {
                        match is_late.get() && number == 1 {
                            true => held.push(command),
                            false => sender.send(command).await.unwrap(),
                        }
                    }
                });
            }
            for late in [false, true] {
                is_late.set(late);
                let reports = control.reports().await;
                let accepted = reports.iter().map(|report| report.counts.accepted);
                assert_eq!(accepted.sum::<u64>(), 2);
            }
        });
    }
}
