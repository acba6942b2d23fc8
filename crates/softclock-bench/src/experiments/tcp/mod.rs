//! `tcp/…`: the TCP of this project's stack beside the kernel's.

pub mod cost;
pub mod loss;
pub mod serve;
