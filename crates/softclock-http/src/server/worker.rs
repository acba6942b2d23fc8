//! One thread's share of a server: accept loops and connections on the current runtime.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use softclock::JoinHandle;
use softclock::net::{Pacer, TcpListener, TcpStream, all_paced_sent, stack};

use crate::client::by_address::{Clients, ConnectionPermit};
use crate::client::capacity::Capacity;
use crate::client::members::{Members, Membership};
use crate::client::options::ConnectionOptions;
use crate::exchange::connection::serve_tls;
use crate::exchange::http1::Conversation;
use crate::exchange::live::{Exchanges, Live, WorkerOptions};
use crate::exchange::session::Session;
use crate::net::carrier::{Carrier, Peer, Stream};
use crate::net::listener::{Bound, Listener};
use crate::net::tls::Tls;
use crate::observe::limit::Limit;
use crate::observe::telemetry::UpstreamReport;
use crate::site::content::Site;
use crate::site::open_files;

/// Serves `site` on `listeners`, on the current runtime, until `shutdown` is ready. Then stops accepting, closes idle
/// connections, and waits for the others for up to `options.drain`.
///
/// Returns the number of connections that were still busy at the end of that time. They end with the runtime.
///
/// # Cancel safety
/// If the future is dropped, the listeners go on accepting in tasks of the runtime, which end with it. Make `shutdown`
/// ready instead.
///
/// # Example
/// ```
/// use softclock::net::TcpListener;
/// use softclock_http::{Site, WorkerOptions, serve};
/// use std::{net::SocketAddr, rc::Rc, time::Duration};
///
/// softclock::Runtime::new()?.block_on(async {
///     let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
///     let shutdown = softclock::sleep(Duration::from_millis(1));
///     let site = Rc::new(Site::bundled());
///     let busy = serve(vec![listener], site, WorkerOptions::default(), shutdown).await;
///     assert_eq!(busy, 0);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn serve(
    listeners: Vec<TcpListener>,
    site: Rc<Site>,
    options: WorkerOptions,
    shutdown: impl Future<Output = ()>,
) -> usize {
    let worker = Worker::of_site(site, options);
    for listener in listeners {
        worker.listen(Listener::tcp(listener));
    }
    shutdown.await;
    worker.drain().await
}

/// Answers the requests on `stream`, as HTTP/1, until either side closes it. For programs with their own accept loop.
///
/// # Errors
/// hyper's errors: lost connections, timeouts, files that shrink while they are sent. A refused request is not an
/// error.
///
/// # Cancel safety
/// If the future is dropped, the connection is closed, and the response in progress is cut off.
pub async fn serve_connection(
    stream: TcpStream,
    site: Rc<Site>,
    options: &ConnectionOptions,
) -> Result<(), hyper::Error> {
    let peer = stream.peer_addr();
    let peer = peer.map_or(Peer::Local, |address| Peer::Internet(address.ip()));
    let worker = Worker::of_site(
        site,
        WorkerOptions {
            connection: *options,
            ..WorkerOptions::default()
        },
    );
    let session = Session::new(Rc::clone(&worker.exchanges), peer, false);
    Conversation::new(stream.into(), session, options, None)
        .run()
        .await
}

/// One thread's share of a server: its listeners and connections.
pub(crate) struct Worker {
    pub(crate) exchanges: Rc<Exchanges>,
    pub(crate) members: Rc<Members>,
    /// The counts of client addresses, shared by all threads.
    clients: Arc<Clients>,
    /// Paces all TCP connections. Without a rate it delays nothing, but a reload may set one.
    pacer: Pacer,
    /// The accept loops, by the number in [`ListenerId`]; `None` once closed.
    accepting: RefCell<Vec<Option<Accepting>>>,
    /// The listeners of all accept loops that have not ended, in the order in which they were opened.
    listeners: RefCell<Vec<Weak<Listener>>>,
}

struct Accepting {
    task: JoinHandle<()>,
    /// Dropped to end the task once the kernel's queue of connections is empty.
    _open: Sender<Infallible>,
}

impl Worker {
    pub(crate) fn new(live: Live) -> Rc<Self> {
        let capacity = Capacity::new(live.options.max_connections, 1);
        Self::sharing(capacity, Arc::default(), live)
    }

    /// As [`new`](Self::new), for one of several threads, which count their connections together in `capacity`, and
    /// those of client addresses in `clients`.
    pub(crate) fn sharing(capacity: Arc<Capacity>, clients: Arc<Clients>, live: Live) -> Rc<Self> {
        let pacer = Pacer::default();
        live.options.pace.apply(&pacer);
        open_files::set_limit(live.options.max_open_files);
        Rc::new(Self {
            pacer,
            clients,
            members: Members::new(capacity),
            exchanges: Exchanges::new(live),
            accepting: RefCell::default(),
            listeners: RefCell::default(),
        })
    }

    pub(crate) fn of_site(site: Rc<Site>, options: WorkerOptions) -> Rc<Self> {
        Self::new(Live::of_site(site, options))
    }

    /// Replaces the settings for new requests and connections.
    pub(crate) fn set_live(&self, live: Live) {
        self.members.set_limit(live.options.max_connections);
        live.options.pace.apply(&self.pacer);
        open_files::set_limit(live.options.max_open_files);
        self.exchanges.set_live(live);
    }

    /// Returns reports of the upstreams; empty for a site.
    pub(crate) fn upstreams(&self) -> Vec<UpstreamReport> {
        let live = self.exchanges.live();
        let forwarder = live.served.forwarder();
        forwarder.map_or_else(Vec::new, |forwarder| forwarder.reports().collect())
    }

    /// Opens a listener, which does not accept connections yet.
    pub(crate) fn open(&self, bound: Bound) -> io::Result<Listener> {
        let open = self.listeners.borrow();
        let open: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
        bound.listen(&open)
    }

    /// Starts to accept connections from `listener`.
    pub(crate) fn listen(self: &Rc<Self>, listener: Listener) -> ListenerId {
        let (open, closed) = async_channel::bounded(1);
        let listener = Rc::new(listener);
        self.add(&listener);
        let tls = self.exchanges.live().tls.clone();
        let task = softclock::spawn_local(accept_loop(Rc::clone(self), listener, tls, closed));
        let mut accepting = self.accepting.borrow_mut();
        accepting.push(Some(Accepting { task, _open: open }));
        ListenerId(accepting.len() - 1)
    }

    fn add(&self, listener: &Rc<Listener>) {
        let mut listeners = self.listeners.borrow_mut();
        listeners.retain(|other| other.strong_count() > 0);
        listeners.push(Rc::downgrade(listener));
    }

    /// Closes the listener once the connections in the kernel's queue have been accepted, unless a listener that was
    /// opened since takes the queue over. Does not affect connections.
    pub(crate) fn unlisten(&self, id: ListenerId) {
        let accepting = self.accepting.borrow_mut()[id.0].take();
        drop(accepting);
    }

    /// Stops accepting, closes idle connections, and waits for the others as long as the options allow. Returns the
    /// number of connections that were still busy at the end of that time.
    ///
    /// If another process accepts ([`Exchanges::hand_over`]), idle connections first stay open for half of that time,
    /// in which they can send another request.
    pub(crate) async fn drain(&self) -> usize {
        let drain = self.exchanges.live().options.drain;
        let end = softclock::now() + drain;
        // Keeping only the tasks drops the senders, upon which the accept loops empty the kernel's queues and end.
        let accepting = self.accepting.take().into_iter().flatten();
        let mut tasks: Vec<_> = accepting.map(|accepting| accepting.task).collect();
        if self.exchanges.is_replaced() {
            // The next request of an idle connection may be in flight; on a new connection it most likely is. A
            // response to it tells the client to connect anew, while a close would lose the request.
            let left = async {
                for task in &mut tasks {
                    task.await;
                }
                self.members.empty().await;
            };
            let _ = softclock::timeout(drain / 2, left).await;
        } else {
            // Lets the accept loops take connections that are in the kernel's queues already.
            softclock::yield_now().await;
            softclock::yield_now().await;
        }
        tasks.into_iter().for_each(|task| task.abort());
        self.members.end();
        let all = async {
            self.members.empty().await;
            all_paced_sent().await;
            // The kernel's sockets outlive the process.
            stack::flushed().await;
        };
        let _ = softclock::timeout(end.since(softclock::now()), all).await;
        self.members.count() + stack::unflushed()
    }

    /// Returns whether a listener that was opened after this one accepts from the same queue.
    fn has_successor(&self, listener: &Rc<Listener>) -> bool {
        let listeners = self.listeners.borrow();
        let mut open = listeners.iter().rev().filter_map(Weak::upgrade);
        let last = open.find(|other| other.shares_queue_with(listener));
        last.is_some_and(|last| !Rc::ptr_eq(&last, listener))
    }

    /// Counts a connection for its client's address. Returns `None` if the address has reached its limit.
    fn admit_address(&self, peer: Peer) -> Option<ConnectionPermit> {
        let limits = self.exchanges.live().options.clients;
        let permit = self.clients.connect(peer, &limits);
        if permit.is_none() {
            Limit::ClientConnections.reached(peer, "connection reset");
        }
        permit
    }

    /// Spawns the task of an accepted connection. If it speaks TLS, `tls` has the certificate.
    fn start(
        self: &Rc<Self>,
        carrier: Carrier,
        peer: Peer,
        tls: Option<&Tls>,
        permit: ConnectionPermit,
        membership: Membership,
    ) {
        tracing::trace!(%peer, "accepted");
        self.exchanges.telemetry.on_accepted();
        let carrier = match carrier {
            // Even without a rate, as a reload may set one. A paced stream also has TCP_NODELAY: without it the last
            // segment of a response could wait for the client's delayed acknowledgement.
            Carrier::Tcp(stream) => {
                let _ = stream.set_notsent_lowat(UNSENT_BYTES);
                Carrier::Tcp(stream.paced(&self.pacer))
            }
            carrier @ Carrier::Unix(_) => carrier,
        };
        let live = self.exchanges.live();
        let options = &live.options.connection;
        let session = Session::new(Rc::clone(&self.exchanges), peer, tls.is_some());
        session.set_permit(permit);
        let Some(acceptor) = tls.map(Tls::acceptor) else {
            let stream = Stream::Plain(carrier);
            let conversation = Conversation::new(stream, session, options, Some(membership));
            softclock::spawn_local(conversation.run());
            return;
        };
        let options = *options;
        softclock::spawn_local(async move {
            let served = serve_tls(carrier, acceptor, session, options, membership);
            if let Err(error) = served.await {
                tracing::debug!(%error, %peer, "connection ended");
            }
        });
    }
}

/// Identifies a listener of a [`Worker`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListenerId(usize);

/// Accepts connections until `closed`, and then those that wait in the kernel's queue, at most [`QUEUE`]. No error ends
/// the loop: most errors concern one connection that is already lost, and others, such as a lack of descriptors, are
/// temporary.
///
/// A closed loop leaves the queue to the loop that a reload has started for the same queue, if any. Otherwise reloads
/// that remove a busy address and add it again would start loops faster than they end, and delay all other listeners.
///
/// At the limit of connections the loop accepts one more and holds it until there is room: only an accepted connection
/// makes [`Members::admit`] ask idle ones to leave.
///
/// `tls` is the certificate at the beginning. It serves the clients that wait when a reload removes the certificate with
/// the last address that speaks TLS.
async fn accept_loop(
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    tls: Option<Tls>,
    closed: Receiver<Infallible>,
) {
    let mut closing = pin!(closed.recv());
    let mut next = async || {
        poll_fn(|cx| {
            // Before the listener is polled: on a stack both loops have one socket, which wakes only the task that was
            // the last to poll it.
            if closed.is_closed() && worker.has_successor(&listener) {
                return Poll::Ready(None);
            }
            match listener.poll_accept(cx) {
                Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
                Poll::Pending => closing.as_mut().poll(cx).map(|_| None),
            }
        })
        .await
    };
    let mut left = QUEUE;
    let mut in_turn = 0;
    while left > 0
        && let Some(accepted) = next().await
    {
        // Once closed, the loop accepts a bounded number, so that new clients cannot keep the listener open.
        left -= usize::from(closed.is_closed());
        match accepted {
            Ok((carrier, peer)) => {
                // Checked before the wait for room, so that a client above its limit delays no other client.
                let Some(permit) = worker.admit_address(peer) else {
                    carrier.reset();
                    continue;
                };
                let membership = worker.members.admit().await;
                let live = worker.exchanges.live();
                let tls = live.tls.as_ref().or(tls.as_ref());
                let tls = tls.filter(|_| listener.tls);
                worker.start(carrier, peer, tls, permit, membership);
                // Connections in progress run between batches of new ones.
                in_turn += 1;
                if in_turn == ACCEPTED_A_TURN {
                    in_turn = 0;
                    softclock::yield_now().await;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Most likely descriptors or memory ran out: free some, and pause, as the error would return at once.
                Limit::Accept.reached(error, "cannot accept; trying again");
                worker.members.shed(softclock::now());
                open_files::close_one();
                softclock::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The number of connections that a listener accepts before other tasks run. Each takes about 40 us until it waits for
/// its first request.
const ACCEPTED_A_TURN: u32 = 8;

/// The limit of unsent bytes in the kernel for each connection (TCP_NOTSENT_LOWAT). Without it the kernel copies
/// megabytes at once for a client that hardly reads, and delays all other clients meanwhile.
const UNSENT_BYTES: u32 = 512 << 10;

/// The most connections that wait in the kernel's queue: the default of `net.core.somaxconn`.
const QUEUE: usize = 4096;

/// The pause after an error of `accept(2)` that is likely to persist.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    use crate::net::listener::Binder;

    /// Reloads that come faster than clients are accepted.
    #[test]
    fn an_address_that_goes_and_comes_has_one_accept_loop() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = format!("unix:{}", path.display()).parse().unwrap();
        softclock::Runtime::new().unwrap().block_on(async {
            let worker = Worker::of_site(Rc::new(Site::bundled()), WorkerOptions::default());
            let mut binder = Binder::default();
            for _ in 0..10 {
                let bound = binder
                    .bind(&address, 0o600, 1)
                    .unwrap()
                    .pop()
                    .unwrap()
                    .pop();
                let id = worker.listen(worker.open(bound.unwrap()).unwrap());
                worker.unlisten(id);
            }
            let loops = || {
                worker
                    .listeners
                    .borrow()
                    .iter()
                    .filter(|one| one.strong_count() > 0)
                    .count()
            };
            let accepted = || worker.exchanges.telemetry.counts().accepted;
            // More than all loops would accept in a turn.
            let clients = [(); 100].map(|()| UnixStream::connect(&path).unwrap());
            while accepted() == 0 {
                softclock::yield_now().await;
            }
            assert_eq!((loops(), accepted()), (1, u64::from(ACCEPTED_A_TURN)));
            while loops() > 0 {
                softclock::yield_now().await;
            }
            assert_eq!(accepted(), clients.len() as u64);
        });
    }
}
