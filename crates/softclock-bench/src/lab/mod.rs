//! The setups in which experiments take place.

pub mod arrivals;
mod at_end;
pub mod bridge;
pub mod busy_server;
pub mod frames;
pub mod hostile;
pub mod lrp;
pub mod media;
pub mod proxy_stage;
pub mod quic;
pub mod readiness;
pub mod signalling;
pub mod simulation;
pub mod sleepers;
pub mod tcp;
pub mod timers;
