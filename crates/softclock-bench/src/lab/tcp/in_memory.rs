//! A stack alone in memory, with simulated peers: the cost of a connection without a device, a program and descriptors.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use softclock_core::Instant;
use softclock_net::checksum::Verify;
use softclock_net::demux::HashKey;
use softclock_net::link::{Header as LinkHeader, LinkAddress};
use softclock_net::routes::Routes;
use softclock_net::stack::{Interest, Settings, Stack, TcpId, TcpListenSettings, TcpListenerId};
use softclock_net::tcp::segment::Flags;
use softclock_wire::packet::ARP;

use crate::lab::frames::{Ends, Segment};
use crate::servers::resident_bytes;

/// Opens idle connections of this number of peers to a stack; returns the growth of this process's resident memory in
/// bytes.
///
/// # Errors
/// A handshake is not completed.
pub fn idle_connections(count: usize) -> io::Result<u64> {
    let mut host = Host::new()?;
    // The memory of the first connections is that of the stack itself, too.
    host.open(0)?;
    let before = resident_bytes(std::process::id())?;
    for number in 1..=count {
        host.open(number)?;
    }
    let after = resident_bytes(std::process::id())?;
    let states = host
        .stack
        .tcp_states()
        .map(|(_, count)| count)
        .sum::<usize>();
    if states != count + 1 {
        return Err(io::Error::other(format!(
            "{states} of {count} connections are open"
        )));
    }
    Ok(after.saturating_sub(before))
}

struct Host {
    stack: Stack<Vec<u8>>,
    listener: TcpListenerId,
    ids: Vec<TcpId>,
    now: Instant,
}

impl Host {
    fn new() -> io::Result<Self> {
        let settings = Settings::new(STACK_LINK, 1500);
        let prefix = format!("{}/24", SERVER.ip())
            .parse()
            .map_err(io::Error::other)?;
        let routes = Routes::new(vec![prefix], vec![ROUTER.into()]).map_err(io::Error::other)?;
        let mut stack = Stack::new(settings, routes, HashKey([0x6d69, 0x6c6c]));
        let listening = stack.tcp_listen(SERVER.into(), TcpListenSettings::default());
        Ok(Self {
            listener: listening.map_err(io::Error::other)?,
            stack,
            ids: Vec::new(),
            now: Instant::from_ns(1_000_000_000),
        })
    }

    /// Completes the handshake of a peer; the owner accepts the connection and waits for a request.
    fn open(&mut self, number: usize) -> io::Result<()> {
        // As at a server with 100 000 new connections a second.
        self.now += Duration::from_micros(10);
        let [_, high, middle, low] = (number as u32 / PORTS).to_be_bytes();
        let address = Ipv4Addr::new(11, high, middle, low);
        let syn = Segment {
            source: SocketAddrV4::new(address, FIRST_PORT + (number as u32 % PORTS) as u16),
            destination: SERVER,
            sequence: number as u32,
            acknowledgment: 0,
            flags: Flags::SYN,
        };
        let answer = self.exchange(&syn)?.ok_or_else(|| lost("SYN", number))?;
        let ack = Segment {
            sequence: syn.sequence.wrapping_add(1),
            acknowledgment: answer.sequence.wrapping_add(1),
            flags: Flags::ACK,
            ..syn
        };
        self.exchange(&ack)?;
        let accepted = self.stack.tcp_accept(self.now, self.listener);
        let (id, _) = accepted.ok_or_else(|| lost("acknowledgment", number))?;
        let interest = Interest {
            readable: true,
            writable: false,
        };
        self.stack.tcp_wait(self.now, id, interest);
        self.ids.push(id);
        Ok(())
    }

    /// Gives a segment to the stack; returns the one that it answers with.
    fn exchange(&mut self, segment: &Segment) -> io::Result<Option<Segment>> {
        self.take(segment.to_frame(ENDS));
        let mut answer = None;
        while let Some(frame) = self.stack.next_frame() {
            match Segment::of_frame(&frame) {
                Some(segment) => answer = Some(segment),
                // The first answer waits until the router's link address is known.
                None => self.take(router_is_at(&frame)?),
            }
        }
        Ok(answer)
    }

    fn take(&mut self, frame: Vec<u8>) {
        self.stack.on_frame(self.now, self.now, frame, Verify::Yes);
        self.stack.process(self.now, 16);
        self.stack.on_timer(self.now);
    }
}

fn lost(what: &str, number: usize) -> io::Error {
    io::Error::other(format!("the {what} of peer {number} had no effect"))
}

/// Answers the stack's ARP request for its router.
fn router_is_at(request: &[u8]) -> io::Result<Vec<u8>> {
    let Some(asked) = request
        .get(14..42)
        .filter(|_| request[12..14] == ARP.to_be_bytes())
    else {
        return Err(io::Error::other("the stack sends an unexpected frame"));
    };
    let header = LinkHeader {
        destination: STACK_LINK,
        source: ROUTER_LINK,
        ether_type: ARP,
    };
    let mut reply = header.to_bytes().to_vec();
    reply.extend_from_slice(&asked[..7]);
    // A reply, from the router to the sender of the request.
    reply.push(2);
    reply.extend_from_slice(&ROUTER_LINK.0);
    reply.extend_from_slice(&ROUTER.octets());
    reply.extend_from_slice(&asked[8..18]);
    reply.resize(60, 0);
    Ok(reply)
}

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 82, 0, 2), 80);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 1);
const STACK_LINK: LinkAddress = LinkAddress([2, 0, 0, 82, 0, 2]);
const ROUTER_LINK: LinkAddress = LinkAddress([2, 0, 0, 82, 0, 1]);
const ENDS: Ends = Ends {
    source: ROUTER_LINK,
    destination: STACK_LINK,
};
/// The peers at one address.
const PORTS: u32 = 10_000;
const FIRST_PORT: u16 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_connect() {
        let mut host = Host::new().unwrap();
        (0..100).for_each(|number| host.open(number).unwrap());
        assert_eq!(host.ids.len(), 100);
    }
}
