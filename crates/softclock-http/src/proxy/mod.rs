//! A reverse proxy: forwards requests to upstreams, and their responses to clients.
//!
//! | part | file |
//! |---|---|
//! | options of a proxy | `options.rs` |
//! | URLs of upstreams | `url.rs` |
//! | addresses of an upstream, resolved again from time to time, shared by the threads | `target.rs` |
//! | the health of an upstream, and the choice of the next one | `health.rs` |
//! | one thread's state of an upstream: health, connections, counters | `upstream.rs` |
//! | connections kept for the next request | `pool.rs` |
//! | the limit of connections to all upstreams together | `budget.rs` |
//! | a connection to an upstream | `link.rs` |
//! | its halves: requests, responses | `sending.rs`, `receiving.rs` |
//! | the timeouts of an upstream | `patience.rs` |
//! | the body of a request from the client, and how slowly it may arrive | `upload.rs`, `upload_patience.rs` |
//! | the limit of bodies that are still arriving while they hold upstreams | `upload_share.rs` |
//! | a request as it is sent to upstreams | `outgoing.rs` |
//! | header fields in both directions | `headers/` |
//! | the body of a response | `body.rs` |
//! | the course of a request: tries and retries | `forward.rs` |
//! | failures of a try, and whether another try may help | `failure.rs` |
//! | detection of loops by the name in Via | `via.rs` |
//! | bytes in both directions after a 101 response | `tunnel.rs` |
//!
//! Connections to upstreams have no tasks: the task of the client's connection also drives the connection to the
//! upstream, as both wait for the same events. So forwarding a request needs no switch of tasks, and neither side is
//! read faster than the other accepts data.
//!
//! [`response`](crate::syntax::response) parses responses. It, `health.rs`, `headers/`, `failure.rs` and `url.rs` are
//! pure; `properties.rs` states the properties that hold for any input to them.

pub(crate) mod body;
mod budget;
mod failure;
pub(crate) mod forward;
mod headers;
pub(crate) mod health;
mod link;
pub(crate) mod options;
mod outgoing;
mod patience;
mod pool;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod properties;
mod receiving;
mod sending;
mod target;
pub(crate) mod tunnel;
mod upload;
mod upload_patience;
mod upload_share;
pub(crate) mod upstream;
pub(crate) mod url;
pub(crate) mod via;
