//! Datagrams to many ports in turn: a load for more classes than iperf3 has streams (128).

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use softclock_core::Rate;

/// What is sent.
#[derive(Args, Clone, Debug)]
pub struct Flows {
    /// Where to.
    address: IpAddr,
    /// Of whole frames, all ports together.
    rate: Rate,
    /// How many ports, from [`FIRST_PORT`] on.
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    flows: u16,
    /// In each datagram.
    data_bytes: u16,
}

impl Flows {
    /// Sends until it is killed: what is due each millisecond, a datagram to each port in turn.
    ///
    /// # Errors
    /// There is no way to the address.
    pub fn send(&self) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let data = vec![0; self.data_bytes.into()];
        let frame_bytes = u64::from(self.data_bytes) + HEADER_BYTES;
        let begun = Instant::now();
        let mut sent = 0;
        let mut ports = (FIRST_PORT..FIRST_PORT + self.flows).cycle();
        loop {
            let mut due = self.rate.bytes_in(begun.elapsed()) / frame_bytes;
            // Who was kept from sending for long does not make up for all of it.
            sent = sent.max(due.saturating_sub(MOST_LATE));
            while sent < due {
                let port = ports.next().expect("it has no end");
                // A full queue on the way loses datagrams, as it would those of others.
                let _ = socket.send_to(&data, (self.address, port));
                sent += 1;
                due = due.min(sent + MOST_LATE);
            }
            thread::sleep(EACH);
        }
    }
}

/// The first port that is sent to.
pub const FIRST_PORT: u16 = 20_000;

/// Of Ethernet, IPv4 and UDP.
const HEADER_BYTES: u64 = 14 + 20 + 8;

const EACH: Duration = Duration::from_millis(1);
const MOST_LATE: u64 = 2_000;
