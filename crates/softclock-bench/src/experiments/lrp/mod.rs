//! The experiments of *LRP*, section 4: overload, latency beside it, and fair shares of a processor.

pub mod figure_3;
