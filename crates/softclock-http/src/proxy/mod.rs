//! A reverse proxy: requests are passed on to upstreams, and their responses back.
//!
//! | part | file |
//! |---|---|
//! | what is passed on, and how | `options.rs` |
//! | where upstreams are, as people write it | `url.rs` |
//! | their addresses, resolved again from time to time, shared by the threads | `target.rs` |
//! | whether one gets requests; which is next | `health.rs` |
//! | an upstream as one thread knows it: health, connections, counters | `upstream.rs` |
//! | connections kept for the next request | `pool.rs` |
//! | how many connections there are to all upstreams together | `budget.rs` |
//! | a connection to an upstream, and who drives it | `link.rs` |
//! | its halves: requests, responses | `sending.rs`, `receiving.rs` |
//! | how long they may take | `patience.rs` |
//! | a request's body as it comes from the client; and how slowly it may arrive | `upload.rs`, `upload_patience.rs` |
//! | how many bodies may still be arriving while they hold upstreams | `upload_share.rs` |
//! | a request as upstreams get it | `outgoing.rs` |
//! | header fields both ways | `headers/` |
//! | the body of a response | `body.rs` |
//! | a request's way: tries, and what comes of them | `forward.rs` |
//! | what went wrong, and whether to try again | `failure.rs` |
//! | requests that come back, known by the name in Via | `via.rs` |
//! | what follows on 101 | `tunnel.rs` |
//!
//! There are no tasks for connections to upstreams: the task of the client's connection drives that of the upstream
//! too, as both wait for the same things. So a request passes through without a switch of tasks, and neither side is
//! read faster than the other takes it.
//!
//! Responses are read by [`response`](crate::syntax::response). That, `health.rs`, `headers/`, `failure.rs` and
//! `url.rs` are pure; `properties.rs` says what holds for any input of theirs.

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
