//! A static web server and a reverse proxy on [hyper] and [softclock].
//!
//! The layers, from the outside in:
//!
//! - **Server** ([`Server`]): threads, each with a runtime and its own listeners on the same addresses. One value
//!   ([`Settings`]) describes the service and can be replaced while the server runs ([`Control`]): each thread receives
//!   commands through a channel, and ends when its channel closes. Another process can take the listeners over
//!   ([`Builder::take_over`]). Metrics ([`Settings::metrics`]) add up the reports of the threads; other programs serve
//!   a page of their own ([`MetricsEndpoint`]).
//! - **Worker** ([`serve`]): accept loops and connections of one thread, on the current runtime. Programs that already
//!   have a runtime use this layer directly.
//! - **Connection** ([`serve_connection`]): hyper's HTTP/1.1, or h2's HTTP/2 where TLS negotiated it, over the
//!   runtime's sockets ([`ListenAddress`]: TCP, Unix or passed by the service manager; [`Tls`]). A strict scanner
//!   ([`head`]) checks each HTTP/1 head before hyper sees it, and follows the framing of the body. Each phase has a
//!   timeout that bounds how long a client may take. Refused and late requests get a response and a close that lets it
//!   arrive. An idle HTTP/1 connection holds no state of hyper, and so is small.
//! - **Exchange**: a request and its response, counted, and recorded in the access log ([`AccessLog`]) at its end.
//!   A separate thread writes the log ([`LineLog`]).
//! - **Service** ([`Served`]): a site, which the layers below implement, or a proxy ([`Proxy`]), which forwards
//!   requests to upstreams over its own connections and sends their responses ([`response`]) back as fast as the client
//!   reads them.
//! - **Site** ([`Site`]): maps a request's path to a file, a directory listing, a redirect or a refusal. Adds header
//!   fields by rule ([`HeaderRule`]) and serves error pages ([`ErrorPage`]).
//! - **Store**: the files of the directory. It keeps small files that are requested often in memory, and checks them
//!   for changes after a second. It selects compressed siblings by the codings that the client accepts ([`coding`]).
//! - **Representation**: the file's type and validators. Preconditions ([`conditional`]) and ranges ([`range`]) decide
//!   which parts of the file are sent.
//! - **Body** ([`body`]): reads small parts before the response starts, and large ones chunk by chunk as the client
//!   reads them. Each read is first tried on the event loop, where it succeeds from the page cache; otherwise a helper
//!   thread reads ([`softclock::fs`]). Over plain TCP, large parts that are in the page cache are sent by
//!   `sendfile(2)`, past hyper.
//!
//! Connections can be paced ([`Pace`]): soft events then clock responses out in pieces, below all these layers.
//!
//! [`path`], [`range`], [`coding`], [`conditional`], [`head`] and [`response`] are pure: they touch neither files nor
//! clocks. The cache of the store is pure, too.
//!
//! Each system call made by these layers is a trigger state of the runtime's soft timers.
//!
//! # Example
//!
//! A server of the bundled site, on one thread and a free port. A real program passes a future that resolves on a
//! signal in place of `ready`:
//!
//! ```
//! use softclock_http::{Server, Site};
//!
//! let server = Server::builder(Site::bundled())
//!     .listen("127.0.0.1:0".parse()?)
//!     .bind()?;
//! println!("listening on {}", server.local_addresses()[0]);
//! let cut = server.run(std::future::ready(()));
//! assert_eq!(cut, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Folders
//!
//! Each folder imports only from folders above it in this table. Two files beside them serve several folders:
//! [`StartError`] collects their reasons not to start, and [`read_input`] reads certificates and configurations.
//!
//! | folder | contents |
//! |---|---|
//! | `syntax` | HTTP as text: parsers and rules without I/O |
//! | `net` | addresses, listeners and sockets, their timers and buffers |
//! | `observe` | limits that were reached, logs and metrics |
//! | `site` | files as responses |
//! | `client` | clients, and the limits for each |
//! | `proxy` | upstreams |
//! | `exchange` | client connections, their requests and responses |
//! | `server` | threads, settings and reloads |
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
pub use observe::metrics::endpoint::MetricsEndpoint;
pub use observe::metrics::text::{MetricType, MetricsPage};
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

/// The fuzzer's entry to the proxy: checks the properties that hold for any upstream, target and fields.
///
/// # Panics
/// If anything is wrong.
#[cfg(feature = "fuzz")]
pub fn check_proxy(data: &[u8]) {
    proxy::properties::check(data);
}
