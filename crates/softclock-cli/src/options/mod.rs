//! The options of `softclock serve` and `softclock proxy`, with a file for each group.

mod content;
mod limits;
mod operation;
mod pacing;
pub(crate) mod priority;
mod proxy;
mod serve;
mod server;
mod upstream;

pub(crate) use proxy::ProxyOptions;
pub(crate) use serve::ServeOptions;
pub(crate) use server::ServerOptions;
