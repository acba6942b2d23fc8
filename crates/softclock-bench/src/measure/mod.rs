//! How measurements are taken, and the machine that they are taken on.

pub mod calls;
pub mod environment;
pub mod perf;
pub mod processors;
pub mod slice;
pub mod steal;
