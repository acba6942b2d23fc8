//! `softclock echo` on a link of its own network namespace, as its users see it: the real program, and the kernel's
//! stack on the other side.

mod answers;
mod ending;
mod errors;
mod floods;
mod frame;
mod host;
mod idle;
mod lab;
mod links;
mod load;
mod malformed;
mod pcap;
mod probe;
mod scapy;
