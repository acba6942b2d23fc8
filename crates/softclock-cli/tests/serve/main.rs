//! `softclock serve` as its users see it: the real program, raw HTTP over sockets of the standard library.

mod changes;
mod client;
mod departures;
mod errors;
mod files;
mod hostile;

mod injected;
mod limits;
mod refusals;
mod requests;
mod server;
mod shutdown;

mod slow;
mod streaming;
