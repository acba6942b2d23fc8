//! The state that the exchanges of one connection share.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::StatusCode;

use crate::client::by_address::{ConnectionPermit, StreamPermit};
use crate::client::{Client, OnLeave};
use crate::exchange::live::Exchanges;
use crate::net::carrier::Peer;
use crate::observe::access_log::Entry;
use crate::observe::limit::Limit;
use crate::proxy::tunnel::Tunnel;
use crate::syntax::head::Fault;

/// A connection's client, its limits, and the number of its exchanges in progress.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The state that all connections of the thread share.
    pub(crate) exchanges: Rc<Exchanges>,
    /// The value of [`Exchanges::reloads`] when the connection's options were set.
    reloads: Cell<u32>,
    /// Exchanges on this connection that have begun; wraps around.
    begun: Cell<u32>,
    /// Exchanges on this connection that have not ended.
    in_progress: Cell<usize>,
    /// Whether an exchange has ended since the last call of [`take_activity`](Self::take_activity).
    active: Cell<bool>,
    /// Wakes the task that waits for the end of all exchanges.
    waiting: Cell<Option<Waker>>,
    /// The tunnel that this connection becomes after a response with status 101.
    tunnel: Cell<Option<Box<Tunnel>>>,
    /// The latest piece of a response's content that is in memory and was passed to hyper, until hyper has written it.
    /// The stream may refer to bytes that lie in it instead of copying them.
    pub(crate) content: RefCell<Bytes>,
    /// Counts the connection for the client's address.
    permit: OnceCell<ConnectionPermit>,
}

impl Session {
    pub(crate) fn new(exchanges: Rc<Exchanges>, peer: Peer, is_secure: bool) -> Rc<Self> {
        Rc::new(Self {
            client: Client::new(peer, is_secure),
            reloads: Cell::new(exchanges.reloads()),
            exchanges,
            begun: Cell::new(0),
            in_progress: Cell::new(0),
            active: Cell::new(false),
            waiting: Cell::new(None),
            tunnel: Cell::new(None),
            content: RefCell::default(),
            permit: OnceCell::new(),
        })
    }

    /// Creates a session of a local client with a server of the bundled site.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Rc<Self> {
        use crate::exchange::live::{Live, WorkerOptions};
        use crate::site::content::Site;

        let live = Live::of_site(Rc::new(Site::bundled()), WorkerOptions::default());
        Self::new(Exchanges::new(live), Peer::Local, false)
    }

    /// Records that the connection has the current options.
    pub(crate) fn on_options_set(&self) {
        self.reloads.set(self.exchanges.reloads());
    }

    /// Returns whether the settings were replaced since the connection got its options.
    pub(crate) fn has_old_options(&self) -> bool {
        self.reloads.get() != self.exchanges.reloads()
    }

    /// Keeps the permit that counts this connection for its client's address, until the session is dropped.
    pub(crate) fn set_permit(&self, permit: ConnectionPermit) {
        let _ = self.permit.set(permit);
    }

    /// Counts an HTTP/2 stream for the client's address. Returns `None` if the address has reached its limit.
    pub(crate) fn open_stream(&self) -> Option<StreamPermit> {
        let limit = self.exchanges.live().options.clients.streams;
        let permit = self
            .permit
            .get_or_init(ConnectionPermit::default)
            .open_stream(limit);
        if permit.is_none() {
            Limit::ClientStreams.reached(self.client.peer, "stream refused");
        }
        permit
    }

    /// Makes the connection become a tunnel when the response has been sent.
    pub(crate) fn set_tunnel(&self, tunnel: Box<Tunnel>) {
        self.tunnel.set(Some(tunnel));
    }

    /// Takes the tunnel that the connection has become, if an upgrade was accepted.
    pub(crate) fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// Records that a request is refused for `fault`: counts the limit that it exceeds, if the fault is a limit.
    pub(crate) fn on_fault(&self, fault: Fault, action: &str) {
        if let Some(limit) = Limit::passed_by(fault) {
            limit.reached(self.client.peer, action);
        }
    }

    /// Counts and logs a request that was refused with `status` before hyper saw it.
    pub(crate) fn on_refused(&self, status: StatusCode) {
        self.exchanges.telemetry.on_refused(status);
        if let Some(log) = &self.exchanges.live().access_log {
            log.record(&Entry {
                time: SystemTime::now(),
                peer: self.client.peer,
                request: None,
                status,
                bytes: 0,
                duration: Duration::ZERO,
                referer: None,
                user_agent: None,
                upstream: None,
            });
        }
    }

    /// Counts the begin of an exchange.
    pub(crate) fn on_begun(&self) {
        self.begun.set(self.begun.get().wrapping_add(1));
        self.in_progress.set(self.in_progress.get() + 1);
    }

    /// Returns the number of exchanges that have begun, which wraps around.
    pub(crate) fn begun(&self) -> u32 {
        self.begun.get()
    }

    /// Counts the end of an exchange. The end of the last one wakes the task in [`poll_idle`](Self::poll_idle).
    pub(crate) fn on_ended(&self) {
        self.in_progress.set(self.in_progress.get() - 1);
        self.active.set(true);
        // A client that leaves between exchanges ends nothing.
        self.client.set_on_leave(OnLeave::GoOn);
        if self.in_progress.get() == 0
            && let Some(waiting) = self.waiting.take()
        {
            waiting.wake();
        }
    }

    /// Returns whether an exchange is in progress, or has ended since the last call.
    pub(crate) fn take_activity(&self) -> bool {
        self.active.replace(false) || self.in_progress.get() > 0
    }

    /// Ready while no exchange is in progress. Keeps one waker only: to be polled by a single task.
    pub(crate) fn poll_idle(&self, cx: &Context<'_>) -> Poll<()> {
        if self.in_progress.get() == 0 {
            return Poll::Ready(());
        }
        self.waiting.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}
