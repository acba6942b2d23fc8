//! `lrp/…`: Druschel and Banga, *Lazy Receiver Processing (LRP): A Network Subsystem Architecture for Server
//! Systems*, OSDI 1996.

pub mod demultiplexer;
pub mod figure_3;
pub mod figure_4;
pub mod figure_5;
pub mod step;
pub mod table_1;
pub mod table_1_tcp;
pub mod table_2;
