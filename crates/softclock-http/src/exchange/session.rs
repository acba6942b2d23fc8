//! A client's connection as its exchanges know it.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use http::StatusCode;

use crate::client::by_address::{ConnectionPermit, StreamPermit};
use crate::client::{Client, OnLeave};
use crate::exchange::live::Exchanges;
use crate::net::carrier::Peer;
use crate::observe::access_log::Entry;
use crate::observe::limit::Limit;
use crate::proxy::tunnel::Tunnel;
use crate::syntax::head::Fault;

/// One connection: its client, what answers that, and how many exchanges are in progress.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// Those of the thread.
    pub(crate) exchanges: Rc<Exchanges>,
    /// Exchanges on this connection that have not ended.
    in_progress: Cell<usize>,
    /// Whether one has ended since [`take_activity`](Self::take_activity).
    active: Cell<bool>,
    /// Who waits for the end of all exchanges.
    waiting: Cell<Option<Waker>>,
    tunnel: Cell<Option<Box<Tunnel>>>,
    /// Counts the connection for the client's address.
    permit: OnceCell<ConnectionPermit>,
}

impl Session {
    pub(crate) fn new(exchanges: Rc<Exchanges>, peer: Peer, is_secure: bool) -> Rc<Self> {
        Rc::new(Self {
            client: Client::new(peer, is_secure),
            exchanges,
            in_progress: Cell::new(0),
            active: Cell::new(false),
            waiting: Cell::new(None),
            tunnel: Cell::new(None),
            permit: OnceCell::new(),
        })
    }

    /// With a local client of a server of the bundled site.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Rc<Self> {
        use crate::exchange::live::{Live, WorkerOptions};
        use crate::site::content::Site;

        let live = Live::of_site(Rc::new(Site::bundled()), WorkerOptions::default());
        Self::new(Exchanges::new(live), Peer::Local, false)
    }

    /// Counts the connection for its client's address as long as it lasts.
    pub(crate) fn set_permit(&self, permit: ConnectionPermit) {
        let _ = self.permit.set(permit);
    }

    /// Counts an HTTP/2 stream for the client's address. Returns `None` if that has too many.
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

    /// The connection is to become a tunnel when the response is sent.
    pub(crate) fn set_tunnel(&self, tunnel: Box<Tunnel>) {
        self.tunnel.set(Some(tunnel));
    }

    /// What the connection has become, if it is HTTP's no more.
    pub(crate) fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// Records that a request is refused for `fault`: counts the limit that it exceeds, if the fault is a limit.
    pub(crate) fn on_fault(&self, fault: Fault, action: &str) {
        if let Some(limit) = Limit::passed_by(fault) {
            limit.reached(self.client.peer, action);
        }
    }

    /// A request was answered with `status` without being understood.
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

    /// An exchange has begun.
    pub(crate) fn on_begun(&self) {
        self.in_progress.set(self.in_progress.get() + 1);
    }

    /// An exchange has ended. Wakes the task that waits for the last one.
    pub(crate) fn on_ended(&self) {
        self.in_progress.set(self.in_progress.get() - 1);
        self.active.set(true);
        self.client.set_on_leave(OnLeave::GoOn);
        if self.in_progress.get() == 0
            && let Some(waiting) = self.waiting.take()
        {
            waiting.wake();
        }
    }

    /// Whether an exchange is in progress, or has been since this was last asked.
    pub(crate) fn take_activity(&self) -> bool {
        self.active.replace(false) || self.in_progress.get() > 0
    }

    /// Ready while no exchange is in progress. To be polled by one task only.
    pub(crate) fn poll_idle(&self, cx: &Context<'_>) -> Poll<()> {
        if self.in_progress.get() == 0 {
            return Poll::Ready(());
        }
        self.waiting.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}
