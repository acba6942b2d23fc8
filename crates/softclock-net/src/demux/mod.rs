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

pub use class::{Class, ControlKind, Flow, classify};
pub use hash::HashKey;
pub(crate) use key::hash_of;
pub use softclock_wire::packet::Transport;
pub use table::{InUse, Table};
