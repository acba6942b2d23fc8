//! Frames on their way, and what treats them on it.

use std::collections::BTreeMap;

use softclock_core::Instant;
use softclock_core::packet::Offload;

/// A frame of Ethernet.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    /// What is left to do with it.
    pub(crate) offload: Offload,
    /// When the kernel received it.
    pub(crate) arrived: Instant,
}

/// What becomes of the frames of one direction. Pure: time is an argument.
pub(crate) trait Discipline: 'static {
    /// Takes a frame, or drops it and counts that.
    fn on_frame(&mut self, frame: Frame, now: Instant);

    /// The next frame that may leave at `now`, or when that will be.
    fn next(&mut self, now: Instant) -> Next;

    /// What happened so far, by class.
    fn rows(&self) -> Vec<Row>;
}

/// What is to be done now.
#[derive(Debug)]
pub(crate) enum Next {
    Send(Frame),
    /// Nothing before this instant.
    Wait(Instant),
    /// Nothing until another frame arrives.
    Empty,
}

/// What one class did so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// How it is treated.
    pub(crate) rule: String,
    pub(crate) sent_packets: u64,
    /// On the wire.
    pub(crate) sent_bytes: u64,
    pub(crate) queued_packets: usize,
    pub(crate) queued_bytes: u64,
    pub(crate) events: Counts,
}

/// Counts by name: drops and other events.
pub(crate) type Counts = BTreeMap<&'static str, u64>;
