//! What is known of clients, and how much each may have: time, connections, streams.
//!
//! | what | file |
//! |---|---|
//! | who sends requests over a connection | this one |
//! | the options of connections | `options.rs` |
//! | how long a client may take, in each phase | `patience.rs` |
//! | the limit of connections, and those that make room | `members.rs` |
//! | limits for each client address | `by_address.rs` |
//! | the body of a request as it arrives | `request_body.rs` |

pub(crate) mod by_address;
pub(crate) mod members;
pub(crate) mod options;
pub(crate) mod patience;
pub(crate) mod request_body;

use std::cell::{Cell, OnceCell};

use http::header::HeaderValue;

use crate::net::carrier::Peer;

/// Who sends requests over one connection.
pub(crate) struct Client {
    pub(crate) peer: Peer,
    /// Whether the connection is one through TLS.
    pub(crate) is_secure: bool,
    on_leave: Cell<OnLeave>,
    /// As a field's value, once it was asked for.
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

    /// The client's address, if it has one, for upstreams.
    pub(crate) fn address(&self) -> Option<&HeaderValue> {
        let Peer::Internet(address) = self.peer else {
            return None;
        };
        let text = || HeaderValue::try_from(address.to_canonical().to_string());
        Some(self.address.get_or_init(|| text().expect("ASCII")))
    }

    /// Ends the connection, and the exchange in progress, if the client ends its side while the guard lives.
    pub(crate) fn end_on_leave(&self) -> EndOnLeave<'_> {
        self.set_on_leave(OnLeave::End);
        EndOnLeave(self)
    }

    /// Returns what becomes of the connection if the client ends its side.
    pub(crate) fn on_leave(&self) -> OnLeave {
        self.on_leave.get()
    }

    /// Sets what becomes of the connection if the client ends its side.
    pub(crate) fn set_on_leave(&self, on_leave: OnLeave) {
        self.on_leave.set(on_leave);
    }
}

/// What becomes of an HTTP/1 connection, with the exchange in progress, if the client ends its side.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum OnLeave {
    /// The exchange goes on, and the connection ends behind it.
    #[default]
    GoOn,
    /// The connection ends once nothing of the response has come for [`HALF_CLOSED_SILENCE`].
    ///
    /// [`HALF_CLOSED_SILENCE`]: crate::client::patience::HALF_CLOSED_SILENCE
    LimitSilence,
    /// The connection ends at once.
    End,
}

/// The guard of [`Client::end_on_leave`]. Of use in HTTP/1, where a connection has one exchange at a time; in HTTP/2
/// the end of the client's side ends the connection anyway.
pub(crate) struct EndOnLeave<'a>(&'a Client);

impl Drop for EndOnLeave<'_> {
    fn drop(&mut self) {
        self.0.set_on_leave(OnLeave::GoOn);
    }
}
