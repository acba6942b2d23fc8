//! The state that the exchanges of one thread share: current settings and counters.

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

/// The options of a server's threads.
#[derive(Clone, Copy, Debug)]
pub struct WorkerOptions {
    /// The most connections at a time. Further connections wait in the kernel's queue, and idle ones are closed to make
    /// room. A [`Server`](crate::Server) divides the limit among its threads.
    pub max_connections: usize,
    /// The most files that responses hold open at a time. To send more, the server closes those that were not read
    /// recently, and reopens them to continue. A [`Server`](crate::Server) divides the limit among its threads.
    pub max_open_files: usize,
    /// The limits for each client address, over all threads.
    pub clients: ClientLimits,
    /// The time that connections in progress have to finish at a shutdown.
    pub drain: Duration,
    /// The options of each connection: limits of heads, and timeouts.
    pub connection: ConnectionOptions,
    /// The rates at which responses are sent.
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

/// The settings that apply to new requests. A reload replaces the value; requests in progress keep the old one.
pub(crate) struct Live {
    pub(crate) served: LiveServed,
    pub(crate) options: WorkerOptions,
    pub(crate) tls: Option<Tls>,
    pub(crate) access_log: Option<AccessLog>,
}

impl Live {
    /// Serves a site, without TLS and without an access log.
    pub(crate) fn of_site(site: Rc<Site>, options: WorkerOptions) -> Self {
        Self {
            served: LiveServed::Site(site),
            options,
            tls: None,
            access_log: None,
        }
    }
}

/// The state that the exchanges of one thread share.
pub(crate) struct Exchanges {
    live: RefCell<Rc<Live>>,
    /// The number of times that `live` was replaced.
    reloads: Cell<u32>,
    pub(crate) telemetry: Telemetry,
    /// Whether another process accepts connections on the same addresses.
    is_replaced: Cell<bool>,
}

impl Exchanges {
    pub(crate) fn new(live: Live) -> Rc<Self> {
        Rc::new(Self {
            live: RefCell::new(Rc::new(live)),
            reloads: Cell::new(0),
            telemetry: Telemetry::default(),
            is_replaced: Cell::new(false),
        })
    }

    /// Returns the settings that apply to new requests.
    pub(crate) fn live(&self) -> Rc<Live> {
        Rc::clone(&self.live.borrow())
    }

    /// Replaces the settings for new requests.
    pub(crate) fn set_live(&self, live: Live) {
        let old = self.live.replace(Rc::new(live));
        self.reloads.set(self.reloads.get().wrapping_add(1));
        drop(old);
    }

    /// Returns a number that is another one after each reload.
    pub(crate) fn reloads(&self) -> u32 {
        self.reloads.get()
    }

    /// Records that another process accepts connections on the same addresses. Each response then ends its HTTP/1
    /// connection, so that the client sends its next request to the other process.
    pub(crate) fn hand_over(&self) {
        self.is_replaced.set(true);
    }

    /// Returns whether another process accepts connections on the same addresses.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.get()
    }
}
