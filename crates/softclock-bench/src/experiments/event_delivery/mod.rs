//! `event-delivery/…`: Banga, Mogul and Druschel, *A Scalable and Explicit Event Delivery Mechanism for UNIX*,
//! USENIX 1999.

pub mod bench;
pub mod figure_6;
pub mod figure_7;
pub mod figure_8;
pub mod figure_9;
pub mod table_2;
pub mod wake_one;
