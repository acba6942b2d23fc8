//! Early demultiplexing: finds the endpoint of a frame before any protocol work (*Lazy Receiver Processing*,
//! section 3).
//!
//! [`classify`] reads the headers of a frame, and [`Table`] maps its flow to the endpoint's handle. Together they are
//! all that a frame costs whose channel is full, so both take constant time and allocate nothing: [`classify`] reads
//! at most eight extension headers, and the [`Table`] is hashed with a secret key, so remote hosts cannot make its
//! look-ups slow.
//!
//! ```text
//! frame -> classify -> Class::Flow -----> Table::find -> Some: the channel of the endpoint
//!             |                                       -> None: Drop(PortUnreachable)
//!             +------> Class::Fragment: the channel of fragments; demultiplexed again when the packet is whole
//!             +------> Class::Control: the channel of ARP, ICMP and other protocols
//! ```
//!
//! Each connection has a channel of its own, as in the paper, so the table holds as many flows as a server has
//! connections.

mod class;
mod flat;
mod hash;
mod key;
mod table;

pub use class::{Class, ControlKind, Flow, Protocol, classify};
pub use hash::HashKey;
pub(crate) use key::hash_of;
pub use table::{InUse, MOST_SHARING, Table};

use crate::drops::DropReason;

/// The place that demultiplexing chooses for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict<T> {
    /// The channel of the endpoint with this handle.
    Channel(T),
    /// The channel of fragments, since the endpoint is unknown until the packet is whole.
    Fragment,
    /// The channel of packets without an endpoint.
    Control(ControlKind),
    /// None: the frame is dropped.
    Drop(DropReason),
}

impl<T: Copy> Verdict<T> {
    /// Classifies a frame and finds its endpoint. Takes constant time.
    ///
    /// A flow without endpoint is dropped as [`DropReason::PortUnreachable`], which the caller may answer by a reset or
    /// an ICMP error. A datagram to a group or to all hosts can have several endpoints: for these,
    /// use [`classify`] and [`Table::find_all_bound`].
    ///
    /// ```
    /// use softclock_net::demux::{HashKey, Protocol, Table, Verdict};
    /// use softclock_net::drops::DropReason;
    ///
    /// let mut table = Table::new(HashKey([1, 2]));
    /// table.bind(Protocol::Udp, ("0.0.0.0".parse().unwrap(), 53), 7_u32).unwrap();
    ///
    /// let mut frame = [0; 42];
    /// frame[12] = 0x08; // IPv4
    /// frame[14] = 0x45;
    /// frame[17] = 28; // the length of the packet
    /// frame[23] = 17; // UDP
    /// frame[37] = 53; // the destination port
    /// assert_eq!(Verdict::of(&table, &frame), Verdict::Channel(7));
    /// frame[37] = 54;
    /// assert_eq!(Verdict::of(&table, &frame), Verdict::Drop(DropReason::PortUnreachable));
    /// ```
    #[must_use]
    pub fn of(table: &Table<T>, frame: &[u8]) -> Self {
        match classify(frame) {
            Ok(Class::Flow(flow)) => table
                .find(&flow)
                .map_or(Self::Drop(DropReason::PortUnreachable), Self::Channel),
            Ok(Class::Fragment) => Self::Fragment,
            Ok(Class::Control(kind)) => Self::Control(kind),
            Err(reason) => Self::Drop(reason),
        }
    }
}
