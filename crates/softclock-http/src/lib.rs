//! A static web server on [hyper] and [softclock].
//!
//! From the outside in:
//!
//! - **Server** ([`Server`]): threads, each with a runtime and its own listeners on the same addresses. A channel that
//!   closes tells them to end.
//! - **Worker** ([`serve`]): accept loops and connections of one thread, on the current runtime; what a program with a
//!   runtime of its own uses.
//! - **Connection** ([`serve_connection`]): hyper's HTTP/1.1 over the runtime's socket. Before hyper sees a request, a
//!   strict scanner ([`head`]) has looked at its head and follows its framing; a timeout for each phase bounds how long
//!   a client may take; refused requests and slow ones get an answer and a close that lets it arrive.
//! - **Service** ([`Site`]): a request's path leads to a file, a redirect or a refusal.
//! - **Representation**: the file's type and validators; preconditions ([`conditional`]) and ranges ([`range`]) decide
//!   what of it is sent.
//! - **Body** ([`body`]): small parts are read before the response starts, large ones chunk by chunk as the client takes
//!   them. Every read is first tried on the loop, where it answers from the page cache, and else goes to a helper
//!   thread ([`softclock::fs`]).
//!
//! [`path`], [`range`] and [`conditional`] are pure: they touch neither files nor clocks.
//!
//! Each system call on the way is a trigger state of the runtime's soft timers.
#![forbid(unsafe_code)]

mod address;
pub mod body;
mod bundled;
mod closing;
pub mod conditional;
mod connection;
mod error;
pub mod head;
mod media;
mod members;
pub mod path;
mod patience;
pub mod range;
mod representation;
mod server;
mod service;
mod socket;
mod stream;
mod worker;

pub use address::{AddressError, ListenAddress};
pub use connection::{ConnectionOptions, Timeouts, serve_connection};
pub use error::{Refusal, StartError};
pub use server::{Builder, DEFAULT_SPIN_CAP, Server};
pub use service::{DEFAULT_INDEX, Site, requests_answered};
pub use worker::{WorkerOptions, serve};
