//! `embed/…`: the library inside other programs, beside the libraries that they use today.

pub mod runtimes;
