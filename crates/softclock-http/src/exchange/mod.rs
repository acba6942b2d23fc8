//! Connections of clients, and the requests and responses that they carry.
//!
//! | part | file |
//! |---|---|
//! | the TLS handshake, and the choice of HTTP version | `connection.rs` |
//! | an HTTP/1 connection, which runs hyper while it is in use | `http1.rs` |
//! | the socket below hyper: checks requests, limits times | `stream.rs` |
//! | the close of an HTTP/1 connection, with a last response if one is due | `closing.rs` |
//! | the wait before a close, in which input is discarded | `linger.rs` |
//! | an HTTP/2 connection, on h2 | `http2.rs`, `http2/` |
//! | a request and its response: answered, counted and logged | `answer.rs` |
//! | the state that all exchanges of a connection share | `session.rs` |
//! | the state that all exchanges of a thread share: settings and counters | `live.rs` |
//! | the service that answers requests: a site or a proxy | `served.rs` |
//! | request bodies that the service does not read | `unread.rs` |

pub(crate) mod answer;
pub(crate) mod closing;
pub(crate) mod connection;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod linger;
pub(crate) mod live;
pub(crate) mod served;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod unread;
