//! What the exchanges of one thread share: what answers them, and their counters.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::client::by_address::ClientLimits;
use crate::client::options::ConnectionOptions;
use crate::exchange::served::LiveServed;
use crate::net::pace::Pace;
use crate::net::tls::Tls;
use crate::observe::access_log::AccessLog;
use crate::observe::telemetry::Telemetry;
use crate::site::content::Site;

/// How a thread serves.
#[derive(Clone, Copy, Debug)]
pub struct WorkerOptions {
    /// Connections at a time; more wait in the kernel's queue.
    pub max_connections: usize,
    /// Files that responses hold open at a time. When more are being sent, those not read recently are closed, and
    /// reopened to continue.
    pub max_open_files: usize,
    /// The limits for each client address, over all threads.
    pub clients: ClientLimits,
    /// How long connections in progress may take to end.
    pub drain: Duration,
    /// How connections are treated.
    pub connection: ConnectionOptions,
    /// How fast responses are sent.
    pub pace: Pace,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_open_files: 10_000,
            clients: ClientLimits::default(),
            drain: Duration::from_secs(10),
            connection: ConnectionOptions::default(),
            pace: Pace::default(),
        }
    }
}

/// What new requests are served by. A change makes a new one; those in progress keep theirs.
pub(crate) struct Live {
    pub(crate) served: LiveServed,
    pub(crate) options: WorkerOptions,
    pub(crate) tls: Option<Tls>,
    pub(crate) access_log: Option<AccessLog>,
}

impl Live {
    /// A site without TLS and without a log.
    pub(crate) fn of_site(site: Rc<Site>, options: WorkerOptions) -> Self {
        Self {
            served: LiveServed::Site(site),
            options,
            tls: None,
            access_log: None,
        }
    }
}

/// The exchanges of one thread.
pub(crate) struct Exchanges {
    live: RefCell<Rc<Live>>,
    pub(crate) telemetry: Telemetry,
    /// Whether another process accepts what this one does not.
    is_replaced: Cell<bool>,
}

impl Exchanges {
    pub(crate) fn new(live: Live) -> Rc<Self> {
        Rc::new(Self {
            live: RefCell::new(Rc::new(live)),
            telemetry: Telemetry::default(),
            is_replaced: Cell::new(false),
        })
    }

    /// What new requests are served by.
    pub(crate) fn live(&self) -> Rc<Live> {
        Rc::clone(&self.live.borrow())
    }

    /// Serves new requests by `live` from now on.
    pub(crate) fn set_live(&self, live: Live) {
        let old = self.live.replace(Rc::new(live));
        drop(old);
    }

    /// Another process accepts what this one does not: from now on a response ends its connection, so that the next
    /// request of its client goes there.
    pub(crate) fn hand_over(&self) {
        self.is_replaced.set(true);
    }

    /// Whether clients have another process to connect to.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.get()
    }
}
