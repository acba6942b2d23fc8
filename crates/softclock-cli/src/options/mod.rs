//! The options that commands share, with a file for each group: those of `softclock serve` and `softclock proxy`, and
//! of commands with a network stack.

mod content;
mod limits;
mod napi;
mod operation;
mod pacing;
mod pcap;
pub(crate) mod priority;
mod proxy;
mod serve;
mod server;
pub(crate) mod signalling;
mod stack;
mod tcp;
mod upstream;

pub(crate) use pcap::{Pcap, PcapOptions, not_captured};
pub(crate) use proxy::ProxyOptions;
pub(crate) use serve::ServeOptions;
pub(crate) use server::ServerOptions;
pub(crate) use stack::StackArgs;
pub(crate) use tcp::contradiction;
