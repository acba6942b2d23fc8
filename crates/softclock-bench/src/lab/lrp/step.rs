//! The rate of delivery after a step of the load.

use std::io;
use std::time::Duration;

use super::{Stage, Target};
use crate::lab::arrivals::Arrivals;

/// Counts the datagrams that the first service of a stage delivers, from the moment at which the flood goes to `rate`.
///
/// # Errors
/// The counting thread fails.
pub fn after_step(stage: &Stage, rate: u64, during: Duration) -> io::Result<Arrivals> {
    let step = || stage.flood.set(rate, Target::Server);
    let delivered = || Ok(stage.server.delivered(0));
    let processor = stage.network.processors.clients;
    Arrivals::after(step, delivered, processor, WINDOW, during)
}

const WINDOW: Duration = Duration::from_millis(5);
