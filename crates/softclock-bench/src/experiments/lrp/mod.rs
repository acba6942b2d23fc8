//! `lrp/…`: Druschel and Banga, *Lazy Receiver Processing (LRP): A Network Subsystem Architecture for Server
//! Systems*, OSDI 1996.

pub mod demultiplexer;
