//! Datagrams to many ports in turn: a load for more classes than iperf3 has streams (128).

use std::hint::spin_loop;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use softclock_core::Rate;

/// The arguments of the sender.
#[derive(Args, Clone, Debug)]
pub struct Flows {
    /// Destination address
    address: IpAddr,
    /// Rate of the first datagrams, one to each port, in whole frames over all ports
    begin: Rate,
    /// Rate of the datagrams after those, likewise
    rate: Rate,
    /// Number of ports, from [`FIRST_PORT`] on
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    flows: u16,
    /// Bytes of data in each datagram
    data_bytes: u16,
}

impl Flows {
    /// Sends until the process is killed: first one datagram to each port, each at its own time; then every millisecond
    /// the datagrams that are due, to the ports in turn.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub fn send(&self) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let data = vec![0; self.data_bytes.into()];
        let ports = FIRST_PORT..FIRST_PORT + self.flows;
        // A full queue on the path loses datagrams; a load ignores that.
        let send = |port| drop(socket.send_to(&data, (self.address, port)));
        thread::sleep(BEFORE);
        self.send_first(ports.clone(), send);
        let begun = Instant::now();
        let mut sent = 0;
        let mut ports = ports.cycle();
        loop {
            let mut due = self.rate.bytes_in(begun.elapsed()) / self.frame_bytes();
            // After a long pause, for example without a processor, drop the backlog instead of sending it as a burst.
            sent = sent.max(due.saturating_sub(MOST_LATE));
            while sent < due {
                send(ports.next().expect("it has no end"));
                sent += 1;
                due = due.min(sent + MOST_LATE);
            }
            thread::sleep(EACH);
        }
    }

    /// Sends one datagram to each port. The clock of a class begins with its first frame, so classes whose first frames
    /// came together would stay in step. Each port therefore has its slot in a period of all ports, and one whose slot
    /// was missed waits for the next period.
    fn send_first(&self, ports: Range<u16>, send: impl Fn(u16)) {
        let each_ns = self.begin.time_of(self.frame_bytes()).as_nanos().max(1);
        let mut waiting: Vec<Option<u16>> = ports.map(Some).collect();
        let mut left = waiting.len();
        let begun = Instant::now();
        while left > 0 && begun.elapsed() < PATIENCE {
            // The slot of the current moment belongs to the port of the same index.
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

/// The first destination port.
pub const FIRST_PORT: u16 = 20_000;

/// The headers of Ethernet, IPv4 and UDP.
const HEADER_BYTES: u64 = 14 + 20 + 8;

/// The time after which the remaining first datagrams are sent at once, on a machine too busy to keep their slots.
const PATIENCE: Duration = Duration::from_millis(600);
/// The pause before the first datagram. A class may make up for some idle time before its first frame; in a shaper that
/// has just started, this time would reach back to the start for all classes, and align their clocks.
const BEFORE: Duration = Duration::from_millis(300);
const EACH: Duration = Duration::from_millis(1);
const MOST_LATE: u64 = 2_000;
