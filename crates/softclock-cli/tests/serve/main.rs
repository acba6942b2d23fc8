//! `softclock serve` as its users see it: the real program, raw HTTP over sockets of the standard library.

mod cache;
mod client;
mod codings;
mod errors;
mod files;
mod hostile;
mod multirange;
mod pages;
mod pipelining;
mod requests;
mod server;
mod shutdown;
mod streaming;
