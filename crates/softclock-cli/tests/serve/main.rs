//! `softclock serve` as its users see it: the real program, raw HTTP over sockets of the standard library.

mod access_log;
mod client;
mod config;
mod errors;
mod files;
mod hostile;
mod metrics;
mod requests;
mod server;
mod shutdown;
mod sockets;
mod streaming;
mod tls;
