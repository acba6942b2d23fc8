//! The methods of measurement, and the machine on which results were measured.

pub mod accounts;
pub mod busy;
pub mod calls;
pub mod environment;
pub mod perf;
pub mod processors;
pub mod slice;
pub mod steal;
pub mod turns;
