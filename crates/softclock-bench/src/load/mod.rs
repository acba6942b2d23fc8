//! Load for HTTP servers: of the two kinds that *Event Delivery* (section 7) needs, and in a [`closed_loop`].
//!
//! - **Hot** clients ([`hot`]) ask at a given rate whatever the server does, as S-Clients do: an open loop, in which a
//!   slow server has more requests outstanding. A request's latency counts from the time at which it was to be sent, so
//!   that no slow time is left out because the client was waiting (coordinated omission).
//! - **Cold** ones ([`cold`]) are connections that are held open and send nothing, or a byte now and then. They are
//!   spread over processes, for each may have only so many descriptors, and over addresses of the loopback interface.

pub mod closed_loop;
pub mod cold;
mod command;
mod exchange;
pub mod hot;
mod progress;
mod target;

pub use cold::{Cold, ColdOptions};
pub use command::{Hold, Load};
pub use hot::{HotOptions, HotResult};
pub use target::{Target, TargetError};
