//! The tables and figures of the papers, measured on this machine beside other programs of today.
//!
//! An experiment is one file in [`experiments`], in the folder of its paper and with the name by which it runs:
//! `soft-timers/table-1` is `experiments/soft_timers/table_1.rs`. The rest of this crate is shared by the experiments:
//!
//! - [`lab`]: the setups in which they take place.
//! - [`servers`], [`peers`] and [`command`]: the programs that are compared.
//! - [`load`]: clients of HTTP servers.
//! - [`measure`]: processor time, samples, steal time and the description of the machine.
//! - [`output`]: reports, and their forms in the terminal, as JSON, as pictures and in the documentation.
#![forbid(unsafe_code)]

pub mod command;
pub mod experiments;
pub mod lab;
pub mod load;
pub mod measure;
pub mod output;
pub mod peers;
pub mod random;
pub mod servers;
