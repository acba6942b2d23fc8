//! One thread's share of a server: accept loops and connections on the current runtime.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use softclock::JoinHandle;
use softclock::net::{Pacer, TcpListener, TcpStream, all_paced_sent};

use crate::client::by_address::{Clients, ConnectionPermit};
use crate::client::members::{Members, Membership};
use crate::client::options::ConnectionOptions;
use crate::exchange::connection::serve_tls;
use crate::exchange::http1::Conversation;
use crate::exchange::live::{Exchanges, Live, WorkerOptions};
use crate::exchange::session::Session;
use crate::net::carrier::{Carrier, Peer, Stream};
use crate::net::listener::Listener;
use crate::net::tls::Tls;
use crate::observe::limit::Limit;
use crate::observe::telemetry::UpstreamReport;
use crate::site::content::Site;
use crate::site::open_files;

/// Serves `site` to all who connect, on the current runtime, until `shutdown` is ready; then stops accepting, closes
/// idle connections, and waits for the others as long as `options.drain` allows.
///
/// Gives the number of connections that were still busy then. They end with the runtime.
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

/// Answers the requests on `stream` until either side closes it.
///
/// # Errors
/// hyper's: lost connections, timeouts, files that shrink while they are sent. A refused request is none.
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

/// The server's part in one thread.
pub(crate) struct Worker {
    pub(crate) exchanges: Rc<Exchanges>,
    pub(crate) members: Rc<Members>,
    /// The counts of client addresses, shared by all threads.
    clients: Arc<Clients>,
    /// Has all TCP connections, whether or not there is a rate.
    pacer: Pacer,
    /// Listeners by the number that [`listen`](Self::listen) gave.
    accepting: RefCell<Vec<Option<Accepting>>>,
}

struct Accepting {
    task: JoinHandle<()>,
    /// Dropped to have the task end when nobody waits to be accepted.
    _open: Sender<Infallible>,
}

impl Worker {
    pub(crate) fn new(live: Live) -> Rc<Self> {
        Self::sharing(Arc::default(), live)
    }

    /// As [`new`](Self::new), for one of several threads, which count the connections of clients together.
    pub(crate) fn sharing(clients: Arc<Clients>, live: Live) -> Rc<Self> {
        let pacer = Pacer::default();
        live.options.pace.apply(&pacer);
        open_files::set_limit(live.options.max_open_files);
        Rc::new(Self {
            pacer,
            clients,
            members: Members::new(live.options.max_connections),
            exchanges: Exchanges::new(live),
            accepting: RefCell::default(),
        })
    }

    pub(crate) fn of_site(site: Rc<Site>, options: WorkerOptions) -> Rc<Self> {
        Self::new(Live::of_site(site, options))
    }

    /// Serves new requests by `live` from now on.
    pub(crate) fn set_live(&self, live: Live) {
        self.members.set_limit(live.options.max_connections);
        live.options.pace.apply(&self.pacer);
        open_files::set_limit(live.options.max_open_files);
        self.exchanges.set_live(live);
    }

    /// What is known of upstreams, where there are any.
    pub(crate) fn upstreams(&self) -> Vec<UpstreamReport> {
        let live = self.exchanges.live();
        let forwarder = live.served.forwarder();
        forwarder.map_or_else(Vec::new, |forwarder| forwarder.reports().collect())
    }

    /// Accepts from `listener` from now on.
    pub(crate) fn listen(self: &Rc<Self>, listener: Listener) -> ListenerId {
        let (open, closed) = async_channel::bounded(1);
        let task = softclock::spawn_local(accept_loop(Rc::clone(self), listener, closed));
        let mut accepting = self.accepting.borrow_mut();
        accepting.push(Some(Accepting { task, _open: open }));
        ListenerId(accepting.len() - 1)
    }

    /// Has the listener closed when those that wait in the kernel's queue are accepted. Connections go on.
    pub(crate) fn unlisten(&self, id: ListenerId) {
        let accepting = self.accepting.borrow_mut()[id.0].take();
        drop(accepting);
    }

    /// Stops accepting, closes idle connections, and waits for the others as long as the options allow. Gives the
    /// number of those still busy then. Where another process accepts ([`Exchanges::hand_over`]), idle connections have
    /// a while to ask for more.
    pub(crate) async fn drain(&self) -> usize {
        let drain = self.exchanges.live().options.drain;
        let end = softclock::now() + drain;
        let accepting = self.accepting.take().into_iter().flatten();
        let mut tasks: Vec<_> = accepting.map(|accepting| accepting.task).collect();
        if self.exchanges.is_replaced() {
            // The next request of a connection that is idle may be on its way, and most so the first.
            let left = async {
                for task in &mut tasks {
                    task.await;
                }
                self.members.empty().await;
            };
            let _ = softclock::timeout(drain / 2, left).await;
        } else {
            // One turn for those in the queue.
            softclock::yield_now().await;
            softclock::yield_now().await;
        }
        tasks.into_iter().for_each(|task| task.abort());
        self.members.end();
        let all = async {
            self.members.empty().await;
            all_paced_sent().await;
        };
        let _ = softclock::timeout(end.since(softclock::now()), all).await;
        self.members.count()
    }

    /// Counts a connection for its client's address. Returns `None` if that has too many.
    fn admit_address(&self, peer: Peer) -> Option<ConnectionPermit> {
        let limits = self.exchanges.live().options.clients;
        let permit = self.clients.connect(peer, &limits);
        if permit.is_none() {
            Limit::ClientConnections.reached(peer, "connection reset");
        }
        permit
    }

    fn start(
        self: &Rc<Self>,
        carrier: Carrier,
        peer: Peer,
        tls: bool,
        permit: ConnectionPermit,
        membership: Membership,
    ) {
        tracing::trace!(%peer, "accepted");
        self.exchanges.telemetry.on_accepted();
        let carrier = match carrier {
            // Though there may be no rate yet. Without a delay of small segments, too, as the last of a response might
            // wait for the client's delayed acknowledgement.
            Carrier::Tcp(stream) => {
                let _ = stream.set_notsent_lowat(UNSENT_BYTES);
                Carrier::Tcp(stream.paced(&self.pacer))
            }
            carrier @ Carrier::Unix(_) => carrier,
        };
        let live = self.exchanges.live();
        let options = &live.options.connection;
        let session = Session::new(Rc::clone(&self.exchanges), peer, tls);
        session.set_permit(permit);
        if !tls {
            let stream = Stream::Plain(carrier);
            let conversation = Conversation::new(stream, session, options, Some(membership));
            softclock::spawn_local(conversation.run());
            return;
        }
        // Settings are checked for this before they are applied.
        let Some(acceptor) = live.tls.as_ref().map(Tls::acceptor) else {
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

/// A listener of a [`Worker`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListenerId(usize);

/// Accepts connections until `closed`, and then those that wait in the kernel, at most [`QUEUE`]. No error ends it:
/// most concern one connection that is gone already, and the others, such as descriptors running out, pass.
///
/// At the limit of connections one more is accepted and held: it shows that somebody waits for room.
async fn accept_loop(worker: Rc<Worker>, listener: Listener, closed: Receiver<Infallible>) {
    let mut closing = pin!(closed.recv());
    let mut next = async || {
        poll_fn(|cx| match listener.poll_accept(cx) {
            Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
            Poll::Pending => closing.as_mut().poll(cx).map(|_| None),
        })
        .await
    };
    let mut left = QUEUE;
    let mut in_turn = 0;
    while left > 0
        && let Some(accepted) = next().await
    {
        // New clients must not keep a closing listener open for ever.
        left -= usize::from(closed.is_closed());
        match accepted {
            Ok((carrier, peer)) => {
                // Before the wait for room, so that a client with too many holds up no other.
                let Some(permit) = worker.admit_address(peer) else {
                    carrier.reset();
                    continue;
                };
                let membership = worker.members.admit().await;
                worker.start(carrier, peer, listener.tls, permit, membership);
                in_turn += 1;
                if in_turn == ACCEPTED_A_TURN {
                    in_turn = 0;
                    softclock::yield_now().await;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                Limit::Accept.reached(error, "cannot accept; trying again");
                worker.members.shed(softclock::now());
                open_files::close_one();
                softclock::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Connections accepted before others have their turn. Each costs 40 us until it waits for its first request.
const ACCEPTED_A_TURN: u32 = 8;

/// What may wait in the kernel for a client's window: without a limit a client that hardly reads has the kernel copy
/// megabytes at once while the others wait.
const UNSENT_BYTES: u32 = 512 << 10;

/// The most that wait in the kernel to be accepted (`net.core.somaxconn` is 4096 unless it was raised).
const QUEUE: usize = 4096;

/// After an error in accepting that would come again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
