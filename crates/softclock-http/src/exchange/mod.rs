//! Connections of clients, and the requests and responses that they carry.
//!
//! | what | file |
//! |---|---|
//! | from the handshake of TLS to the version of HTTP that it agrees on | `connection.rs` |
//! | a connection of HTTP/1, with hyper while it is in use | `http1.rs` |
//! | its socket as hyper sees it: strict about requests, limited in time | `stream.rs` |
//! | its end, with a last response where one is due | `closing.rs` |
//! | a connection of HTTP/2, on h2 | `http2.rs`, `http2/` |
//! | a request and its response: answered, counted and logged | `answer.rs` |
//! | a connection as its exchanges know it | `session.rs` |
//! | what the exchanges of a thread share: settings and counters | `live.rs` |
//! | what answers requests: a site or a proxy | `served.rs` |
//! | bodies of requests that are not read | `unread.rs` |

pub(crate) mod answer;
pub(crate) mod closing;
pub(crate) mod connection;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod live;
pub(crate) mod served;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod unread;
