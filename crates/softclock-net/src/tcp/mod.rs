//! TCP (RFC 9293), made for lazy processing and for pacing.
//!
//! A connection is a state machine whose times, keys and segments are arguments, and whose effects are return values.
//! Segments wait in its channel until its owner reads, writes or waits, so each is processed with the time of its
//! arrival beside the current one: estimators use the former, timers the latter.
//!
//! - [`seq`]: sequence numbers. [`segment`]: headers and options. [`payload`]: received bytes in the memory of their
//!   packet.
//! - [`congestion`]: how many bytes may be in flight. [`pacing`]: when to send them.

pub mod congestion;
pub mod pacing;
pub mod payload;
pub mod segment;
pub mod seq;
