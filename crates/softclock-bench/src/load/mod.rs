//! Load for HTTP servers: hot and cold clients, which *Event Delivery* (section 7) needs, a [`closed_loop`], and an
//! [`open_loop`] from a processor of its own.
//!
//! - **Hot** clients ([`hot`]) send requests at a given rate however fast the server answers, as S-Clients do: an open
//!   loop, in which a slow server has more requests outstanding. A request's latency counts from the time at which it
//!   was due, so slow phases are not left out because the client was waiting (coordinated omission).
//! - **Cold** clients ([`cold`]) are connections that are held open and send nothing, or rarely a byte. They are spread
//!   over processes, because of the limit of descriptors, and over addresses of the loopback interface.
//!
//! [`echo`] exchanges messages with servers that send them back.

pub mod closed_loop;
pub mod cold;
mod command;
pub mod echo;
mod exchange;
pub mod hot;
pub mod open_loop;
mod progress;
mod target;

pub use cold::{Cold, ColdOptions};
pub use command::{Hold, Load};
pub use hot::{HotOptions, HotResult};
pub use target::{Target, TargetError};
