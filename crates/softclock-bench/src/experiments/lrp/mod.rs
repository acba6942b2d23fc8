//! The experiments of *LRP*, section 4: overload, latency beside it, and fair shares of a processor.

mod cells;
pub mod figure_3;
pub mod figure_4;
pub mod step;
pub mod table_1;
pub mod table_2;
