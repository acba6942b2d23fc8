//! `pspacer/…`: Takano et al., *High-resolution Timer-based Packet Pacing Mechanism on the Linux Operating System*,
//! 2010.

pub mod cost;
pub mod figure_9;
pub mod table_1;
pub mod table_2;
pub mod table_5;
pub mod table_6;
pub mod table_7;
pub mod table_8;
pub mod tolerance;
