//! The options of `softclock serve` and `softclock proxy`, with a file for each group. `softclock echo` has those of a
//! stack, too.

mod content;
mod limits;
mod operation;
mod pacing;
pub(crate) mod priority;
mod proxy;
mod serve;
mod server;
mod stack;
mod upstream;

pub(crate) use proxy::ProxyOptions;
pub(crate) use serve::ServeOptions;
pub(crate) use server::ServerOptions;
pub(crate) use stack::StackArgs;
