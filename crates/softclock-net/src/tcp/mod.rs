//! TCP (RFC 9293), made for lazy processing and for pacing.
//!
//! A connection is a state machine whose times, keys and segments are arguments, and whose effects are return values.
//! Segments wait in its channel until its owner reads, writes or waits, so each is processed with the time of its
//! arrival beside the current one: estimators use the former, timers the latter.
//!
//! - [`seq`]: sequence numbers. [`segment`]: headers and options. [`payload`]: received bytes in the memory of their
//!   packet.
//! - [`listen`]: from a SYN to a connection. [`peer`]: the options that both ends agree on. [`challenge`]: limits on
//!   answers to segments that may be forged.
//! - [`connection`]: the state machine of a connection, in [states](state). Its halves: [`receive`], with
//!   [`paws`] against wrapped sequence numbers; and [`send`], with [`congestion`] for how many bytes may be in flight
//!   and [`pacing`] for when to send them.
//! - [`time_wait`]: connections that are over, while old duplicates may be on their way.
//! - [`settings`], [`keepalive`], [`stats`].

pub mod challenge;
pub mod congestion;
pub mod connection;
mod flow_map;
pub mod keepalive;
pub mod listen;
pub mod pacing;
mod path_mtu;
pub mod paws;
pub mod payload;
pub mod peer;
pub mod receive;
pub mod segment;
pub mod send;
pub mod seq;
pub mod settings;
pub mod state;
pub mod stats;
pub mod time_wait;
