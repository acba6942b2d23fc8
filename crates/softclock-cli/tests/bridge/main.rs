//! `softclock pace` and `softclock wan` between two network namespaces, as their users see them: the real program.

mod bond;
mod errors;
mod lab;
mod pace;
mod ping;
mod signalling;
mod takeover;
mod tap;
#[path = "../tools/terminal.rs"]
mod terminal;
mod wan;
mod xdp;
