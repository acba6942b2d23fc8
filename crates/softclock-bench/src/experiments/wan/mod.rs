//! `wan/…`: the WAN emulator beside netem.

pub mod delay;
