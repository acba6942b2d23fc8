//! `burst/…`: the analyser of captures.

pub mod speed;
