//! TCP (RFC 9293), made for lazy processing and for pacing.
//!
//! A connection is a state machine whose times, keys and segments are arguments, and whose effects are return values.
//! Segments wait in its channel until its owner reads, writes or waits, so each is processed with the time of its
//! arrival beside the current one: estimators use the former, timers the latter.
//!
//! - [`seq`]: sequence numbers. [`segment`]: headers and options. [`payload`]: received bytes in the memory of their
//!   packet.
//! - [`peer`]: the options that both ends agree on.
//! - [`listen`]: handshakes of connections that others open, with SYN cookies. [`time_wait`]: the rest of a
//!   connection after its end. Both keep small records instead of connections.
//! - [`challenge`]: limits on the answers that forged segments cause.
//! - [`send`]: the sending half of a connection, and the repair of losses.
//! - [`congestion`]: how many bytes may be in flight. [`pacing`]: when to send them.

pub mod challenge;
pub mod congestion;
mod flow_map;
pub mod listen;
pub mod pacing;
pub mod payload;
pub mod peer;
pub mod segment;
pub mod send;
pub mod seq;
pub mod time_wait;
