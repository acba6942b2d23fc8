//! `clocked-interrupts/…`: Chung, Traw and Smith, *Event-signaling within Higher Performance Network Subsystems*, 1995.

pub mod latency;
mod signals;
pub mod table_1;
