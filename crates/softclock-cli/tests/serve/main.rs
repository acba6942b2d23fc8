//! `softclock serve` as its users see it: the real program, raw HTTP over sockets of the standard library.

mod access_log;
mod cache;
mod changes;
mod client;
mod codings;
mod config;
mod departures;
mod errors;
mod files;
mod hostile;
mod injected;
mod limits;
mod metrics;
mod multirange;
mod pace;
mod pages;
mod pipelining;
mod refusals;
mod requests;
mod server;
mod shutdown;
mod slow;
mod sockets;
mod streaming;
mod tls;
mod top;
