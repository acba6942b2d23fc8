//! A network stack whose receive side is lazy (*Lazy Receiver Processing*, Druschel and Banga, OSDI 1996).
//!
//! An eager stack does all protocol work for a packet when it arrives, ahead of every program. Under overload it spends
//! the processor on packets that it then discards, and the work for one program's packets is charged to another. A lazy
//! stack only finds out which endpoint a packet is for (*early demultiplexing*), and puts it into the bounded *channel*
//! of that endpoint, or discards it there and then (*early discard*). The protocols process it when the receiver asks.
//!
//! **Frames, times, keys and random numbers are arguments, and effects are return values:** this crate makes no system
//! calls, reads no clock, has no `unsafe` code, and needs no operating system (`no_std` with `alloc`). Malformed input
//! of any kind is a counted drop, never a panic. Every queue is bounded.
//!
//! # Layers, from the device upwards
//! - [`link`]: addresses and headers of Ethernet.
//! - [`demux`]: from a frame to the endpoint that it is for; exact, and keyed, so that attackers cannot slow it down.
//! - [`channel`]: the bounded queue between demultiplexing and a receiver.
//! - [`ip`]: IPv4 and IPv6, fragments, ARP, neighbor discovery. [`routes`]: own addresses and next hops;
//!   [`neighbors`]: their link addresses.
//! - [`icmp`], [`icmp_v6`]: errors and echo, under the [`rate_limit`].
//! - [`udp`]: datagrams. [`tcp`]: the types of connections.
//! - [`stack`]: all of these together, in four architectures. Begin here.
//! - [`drops`]: the reasons for which packets are dropped. [`checksum`]: those of the transport layer. [`ports`]: those
//!   that are chosen where none is given.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod channel;
pub mod checksum;
pub mod demux;
pub mod drops;
mod due;
#[cfg(test)]
mod fuzz_input;
pub mod icmp;
pub mod icmp_v6;
pub mod ip;
pub mod link;
pub mod neighbors;
pub mod ports;
mod random;
pub mod rate_limit;
pub mod routes;
pub mod stack;
pub mod tcp;
pub mod udp;
