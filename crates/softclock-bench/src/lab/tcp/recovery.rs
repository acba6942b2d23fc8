//! Throughput after the end of a flood, by the bytes that arrive at the clients.

use std::fs;
use std::io;
use std::time::Duration;

use super::stage::Stage;
use crate::lab::arrivals::Arrivals;
use crate::lab::lrp::Link;

/// Counts the bytes that arrive at the clients' link for the time `during` after `event`, which is called first.
///
/// # Errors
/// The counter cannot be read.
pub fn arrivals_after(
    stage: &Stage,
    event: impl FnOnce() + Send,
    during: Duration,
) -> io::Result<Arrivals> {
    let path = stage.network.counter(Link::Clients, "rx_bytes");
    let bytes = || {
        let text = fs::read_to_string(&path)?;
        text.trim().parse().map_err(io::Error::other)
    };
    let processor = stage.network.processors.clients;
    Arrivals::after(event, bytes, processor, WINDOW, during)
}

const WINDOW: Duration = Duration::from_millis(20);
