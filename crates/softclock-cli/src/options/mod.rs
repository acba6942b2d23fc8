//! Groups of options of servers, each in a file of its own.

mod content;
mod operation;
mod pacing;
pub(crate) mod priority;
mod server;
mod upstream;

pub(crate) use content::ContentOptions;
pub(crate) use operation::OperationOptions;
pub(crate) use pacing::PacingOptions;
pub(crate) use server::ServerOptions;
pub(crate) use upstream::UpstreamOptions;
