//! A static web server and a reverse proxy on [hyper] and [softclock].
//!
//! From the outside in:
//!
//! - **Server** ([`Server`]): threads, each with a runtime and its own listeners on the same addresses. What it does is
//!   one value ([`Settings`]) that can be replaced while it runs ([`Control`]): each thread has a channel of commands,
//!   and one that closes tells it to end. Its listeners can be left to another process ([`Builder::take_over`]). Metrics
//!   ([`Settings::metrics`]) are the sum of what the threads report.
//! - **Worker** ([`serve`]): accept loops and connections of one thread, on the current runtime; what a program with a
//!   runtime of its own uses.
//! - **Connection** ([`serve_connection`]): hyper's HTTP/1.1, or HTTP/2 where TLS agreed on it, over the runtime's
//!   sockets ([`ListenAddress`]: TCP, Unix or passed by the service manager; [`Tls`]). Before hyper sees a request of
//!   HTTP/1, a strict scanner ([`head`]) has looked at its head and follows its framing; a timeout for each phase bounds
//!   how long a client may take; refused requests and slow ones get an answer and a close that lets it arrive. Between
//!   requests of HTTP/1 there is no hyper, so that connections that wait are small.
//! - **Exchange**: a request and its response, counted, and told to the access log ([`AccessLog`]) when it has ended.
//!   A thread of the log's own writes it ([`LineLog`]).
//! - **Service** ([`Served`]): a site, which the layers below are about, or a proxy ([`Proxy`]), which passes requests on
//!   to upstreams over connections of its own, and their responses ([`response`]) back as fast as the client takes
//!   them.
//! - **Site** ([`Site`]): a request's path leads to a file, a directory's list, a redirect or a refusal; header
//!   fields by rule ([`HeaderRule`]) and error pages ([`ErrorPage`]).
//! - **Store**: the directory's files; small ones that are asked for often are kept in memory and looked at again after a
//!   second. Compressed siblings are chosen by what the client accepts ([`coding`]).
//! - **Representation**: the file's type and validators; preconditions ([`conditional`]) and ranges ([`range`]) decide
//!   what of it is sent.
//! - **Body** ([`body`]): small parts are read before the response starts, large ones chunk by chunk as the client takes
//!   them. Every read is first tried on the loop, where it answers from the page cache, and else goes to a helper
//!   thread ([`softclock::fs`]). Over plain TCP, what is large and in the page cache is not read but sent from there, past
//!   hyper.
//!
//! Connections can be paced ([`Pace`]): responses then leave in pieces clocked by soft events, below all of this.
//!
//! [`path`], [`range`], [`coding`], [`conditional`], [`head`] and [`response`] are pure: they touch neither files nor
//! clocks. So is the cache.
//!
//! Each system call on the way is a trigger state of the runtime's soft timers.
//!
//! The folders, each of which imports from those above it only. Beside them is what has to do with several:
//! [`StartError`] has a reason from each, and [`read_input`] reads certificates and configurations.
//!
//! | folder | what it holds |
//! |---|---|
//! | `syntax` | HTTP as text: parsers and rules without I/O |
//! | `net` | addresses, listeners and sockets, their timers and buffers |
//! | `observe` | limits that were reached, logs and metrics |
//! | `site` | files as responses |
//! | `client` | what is known of clients, and how much each may have |
//! | `proxy` | upstreams |
//! | `exchange` | connections of clients, their requests and responses |
//! | `server` | threads, settings, and how they change |
#![forbid(unsafe_code)]

mod client;
mod error;
mod exchange;
mod input;
mod net;
mod observe;
mod proxy;
mod server;
mod site;
mod syntax;

pub use client::by_address::ClientLimits;
pub use client::options::{ConnectionOptions, Timeouts};
pub use error::StartError;
pub use exchange::live::WorkerOptions;
pub use exchange::served::Served;
pub use input::{InputKind, read_input};
pub use net::address::{AddressError, ListenAddress, Place};
pub use net::pace::Pace;
pub use net::tls::{Tls, TlsError, Validity};
pub use observe::access_log::{AccessLog, LogFormat, UnknownFormat};
pub use observe::limit::limit_names;
pub use observe::line_log::{LineLog, LogTarget};
pub use observe::telemetry::requests_answered;
pub use proxy::health::HealthOptions;
pub use proxy::options::{Proxy, ProxyOptions, UpstreamTimeouts};
pub use proxy::url::{UpstreamUrl, UpstreamUrlError};
pub use proxy::via::{ViaName, ViaNameError};
pub use server::control::Control;
pub use server::settings::{DEFAULT_SOCKET_MODE, Settings};
pub use server::threads::{Builder, DEFAULT_SPIN_CAP, Server};
pub use server::worker::{serve, serve_connection};
pub use site::body;
pub use site::content::{DEFAULT_CACHE_BYTES, DEFAULT_CACHE_REVALIDATE, DEFAULT_INDEX, Site};
pub use site::error_page::{ErrorPage, ErrorPageError};
pub use site::header_rule::{HeaderRule, HeaderRuleError};
pub use site::refusal::Refusal;
pub use syntax::{coding, conditional, head, path, range, response};

/// The fuzzer's entry to the proxy: checks what must hold for any upstream, target and fields.
///
/// # Panics
/// If anything is wrong.
#[cfg(feature = "fuzz")]
pub fn check_proxy(data: &[u8]) {
    proxy::properties::check(data);
}
