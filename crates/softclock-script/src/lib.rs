//! Runs scripts in packetdrill's language against a TCP, in virtual time.
//!
//! A script states, with times, the system calls of a program, the packets that arrive from the network, and the
//! packets that the host must send. The runner makes the calls, delivers the packets, and compares. No clock is read
//! and nothing sleeps: a script about two hours of keep-alive takes milliseconds, and always has the same result.
//!
//! ```text
//! --ip_version=ipv4
//!
//!  0.0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
//! +0.0 bind(3, ..., ...) = 0
//! +0.0 listen(3, 1) = 0
//! +0.0 < S  0:0(0)       win 65535 <mss 1460,sackOK>
//! +0.0 > S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK>
//! ```
//!
//! # Layers
//! - [`syntax`]: from text to a [`Script`](syntax::Script).
//! - [`wire`]: packets as bytes, both ways.
//! - [`host`]: what a script drives: the trait [`Host`](host::Host), with the verbs of sockets.
//! - [`settings`]: from `sysctl` variables to settings of the host.
//! - [`stack_host`]: softclock's stack as a host.
//! - [`run`]: makes the calls, delivers the packets, compares. Begin here.
//!
//! # Differences from other runners of the language
//! - **Payload is checked.** Bytes that arrive, and bytes that the program writes, follow a pattern of their positions
//!   in the stream; those that the program reads, and those that the host sends, must have it.
//! - **Padding is free.** The options of an expected segment are a set: `nop` and `eol` are not compared, and the other
//!   options may come in any order. The ranges of `sack` must be in the stated order.
//! - **Packets behind the last expected one are ignored**, as other runners do, unless the script says `//@ silent`.
//! - `#ifdef NAME` … `#else` … `#endif` choose lines. `STANDARD` is defined unless the caller says otherwise.
//!
//! # Directives
//! A comment that begins with `//@` is a directive for this runner. It stands where an event does.
//!
//! | directive | meaning |
//! |---|---|
//! | `//@ owner prompt` | the program processes each segment as it arrives (the default) |
//! | `//@ owner calls` | the program processes segments in its system calls only |
//! | `//@ owner every 0.05` | the program processes segments in its system calls and each 50 ms |
//! | `//@ visit` | the program processes now what has arrived |
//! | `//@ set NAME=VALUE` | changes a setting of the host: see [`settings`] |
//! | `//@ flow 2` | the packets that follow belong to the connection of the remote end's second port |
//! | `//@ silent` | the host has sent no packet that the script did not expect |
//!
//! # System calls
//! `socket`, `bind`, `listen`, `accept`, `accept4`, `connect`, `read`, `recv`, `write`, `send`, `shutdown`, `close`,
//! `fcntl` and `ioctl` (non-blocking mode, bytes to read), `getsockopt`, `setsockopt`. A script with others is
//! not applicable.
#![forbid(unsafe_code)]

pub mod errno;
pub mod host;
pub mod run;
pub mod settings;
pub mod stack_host;
pub mod syntax;
mod verdict;
pub mod wire;

pub use verdict::Verdict;
