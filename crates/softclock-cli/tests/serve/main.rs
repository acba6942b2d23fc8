//! `softclock serve` as its users see it: the real program, raw HTTP over sockets of the standard library.

mod client;
mod errors;
mod files;
mod hostile;
mod requests;
mod server;
mod shutdown;
mod streaming;
