//! The examples on a network stack of their own, with programs of others as clients, which use the kernel's stack on
//! the other side of a link.

mod dns;
mod iperf;
mod lab;
