//! `soft-timers/…`: Aron and Druschel, *Soft Timers: Efficient Microsecond Software Timer Support for Network
//! Processing*, TOCS 2000.

pub mod check;
pub mod figure_3;
pub mod sleep_precision;
pub mod table_1;
pub mod table_12;
pub mod table_13;
pub mod table_2;
pub mod table_4;
pub mod table_5;
pub mod table_6;
pub mod table_8;
pub mod wheel;
