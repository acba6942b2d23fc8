//! `embed/…`: the library inside other programs, beside the libraries that they use today.

pub mod media;
pub mod runtimes;
