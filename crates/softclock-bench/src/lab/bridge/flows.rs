//! Datagrams to many ports in turn: a load for more classes than iperf3 has streams (128).

use std::hint::spin_loop;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use softclock_core::Rate;

/// What is sent.
#[derive(Args, Clone, Debug)]
pub struct Flows {
    /// Where to.
    address: IpAddr,
    /// Of whole frames, all ports together, at which the first to each port go.
    begin: Rate,
    /// The same, from then on.
    rate: Rate,
    /// How many ports, from [`FIRST_PORT`] on.
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    flows: u16,
    /// In each datagram.
    data_bytes: u16,
}

impl Flows {
    /// Sends until it is killed: first one to each port, each at its own time; then what is due each millisecond, a datagram
    /// to each port in turn.
    ///
    /// # Errors
    /// There is no way to the address.
    pub fn send(&self) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let data = vec![0; self.data_bytes.into()];
        let ports = FIRST_PORT..FIRST_PORT + self.flows;
        // A full queue on the way loses datagrams, as it would those of others.
        let send = |port| drop(socket.send_to(&data, (self.address, port)));
        thread::sleep(BEFORE);
        self.send_first(ports.clone(), send);
        let begun = Instant::now();
        let mut sent = 0;
        let mut ports = ports.cycle();
        loop {
            let mut due = self.rate.bytes_in(begun.elapsed()) / self.frame_bytes();
            // Who was kept from sending for long does not make up for all of it.
            sent = sent.max(due.saturating_sub(MOST_LATE));
            while sent < due {
                send(ports.next().expect("it has no end"));
                sent += 1;
                due = due.min(sent + MOST_LATE);
            }
            thread::sleep(EACH);
        }
    }

    /// One to each port. The clock of a class begins with its first frame, so that those that came together would be due
    /// together for ever: each has its place in a period of all, and one that was missed waits for the next period.
    fn send_first(&self, ports: Range<u16>, send: impl Fn(u16)) {
        let each_ns = self.begin.time_of(self.frame_bytes()).as_nanos().max(1);
        let mut waiting: Vec<Option<u16>> = ports.map(Some).collect();
        let mut left = waiting.len();
        let begun = Instant::now();
        while left > 0 && begun.elapsed() < PATIENCE {
            let place = begun.elapsed().as_nanos() / each_ns % waiting.len() as u128;
            match waiting[place as usize].take() {
                Some(port) => {
                    send(port);
                    left -= 1;
                }
                None => spin_loop(),
            }
        }
        waiting.into_iter().flatten().for_each(send);
    }

    fn frame_bytes(&self) -> u64 {
        u64::from(self.data_bytes) + HEADER_BYTES
    }
}

/// The first port that is sent to.
pub const FIRST_PORT: u16 = 20_000;

/// Of Ethernet, IPv4 and UDP.
const HEADER_BYTES: u64 = 14 + 20 + 8;

/// On a machine so crowded that this is not enough, first frames come as they can.
const PATIENCE: Duration = Duration::from_millis(600);
/// Classes of a shaper that has just begun have not been idle for as long as they may make up for, so that their clocks
/// would all begin with it.
const BEFORE: Duration = Duration::from_millis(300);
const EACH: Duration = Duration::from_millis(1);
const MOST_LATE: u64 = 2_000;
