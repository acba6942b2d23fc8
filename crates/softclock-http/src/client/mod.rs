//! Clients: their connections, options and limits.
//!
//! | subject | file |
//! |---|---|
//! | the client at the other end of a connection | this one |
//! | options of connections | `options.rs` |
//! | timeouts for each phase of a connection | `patience.rs` |
//! | the limit of connections, over all threads | `capacity.rs` |
//! | the connections of a thread, and which end to make room | `members.rs` |
//! | limits for each client address | `by_address.rs` |
//! | request bodies as they arrive | `request_body.rs` |

pub(crate) mod by_address;
pub(crate) mod capacity;
pub(crate) mod members;
pub(crate) mod options;
pub(crate) mod patience;
pub(crate) mod request_body;

use std::cell::{Cell, OnceCell};

use http::header::HeaderValue;

use crate::net::carrier::Peer;

/// The client that sends requests over one connection.
pub(crate) struct Client {
    pub(crate) peer: Peer,
    /// Whether the connection uses TLS.
    pub(crate) is_secure: bool,
    on_leave: Cell<OnLeave>,
    /// The address as a field value, formatted at its first use.
    address: OnceCell<HeaderValue>,
}

impl Client {
    pub(crate) fn new(peer: Peer, is_secure: bool) -> Self {
        Self {
            peer,
            is_secure,
            on_leave: Cell::default(),
            address: OnceCell::new(),
        }
    }

    /// Returns the client's IP address as a field value for upstreams; `None` for Unix sockets.
    pub(crate) fn address(&self) -> Option<&HeaderValue> {
        let Peer::Internet(address) = self.peer else {
            return None;
        };
        let text = || HeaderValue::try_from(address.to_canonical().to_string());
        Some(self.address.get_or_init(|| text().expect("ASCII")))
    }

    /// Lets the connection and the exchange in progress end at once if the client ends its direction while the guard
    /// lives.
    pub(crate) fn end_on_leave(&self) -> EndOnLeave<'_> {
        self.set_on_leave(OnLeave::End);
        EndOnLeave(self)
    }

    /// Returns the effect on the connection if the client ends its direction.
    pub(crate) fn on_leave(&self) -> OnLeave {
        self.on_leave.get()
    }

    /// Sets the effect on the connection if the client ends its direction.
    pub(crate) fn set_on_leave(&self, on_leave: OnLeave) {
        self.on_leave.set(on_leave);
    }
}

/// The effect on an HTTP/1 connection and the exchange in progress if the client ends its direction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum OnLeave {
    /// The exchange continues, and the connection ends after it.
    #[default]
    GoOn,
    /// The connection ends once no more of the response has arrived for [`HALF_CLOSED_SILENCE`].
    ///
    /// [`HALF_CLOSED_SILENCE`]: crate::client::patience::HALF_CLOSED_SILENCE
    LimitSilence,
    /// The connection ends at once.
    End,
}

/// The guard of [`Client::end_on_leave`]. It matters only in HTTP/1, where a connection has one exchange at a time; in
/// HTTP/2 the connection ends with the client's direction anyway.
pub(crate) struct EndOnLeave<'a>(&'a Client);

impl Drop for EndOnLeave<'_> {
    fn drop(&mut self) {
        self.0.set_on_leave(OnLeave::GoOn);
    }
}
