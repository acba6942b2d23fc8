//! Round trips of ICMP echo, from the kernel's raw socket in the clients' namespace.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};
use softclock_linux::priority::Priority;

use crate::lab::lrp::Network;
use crate::measure::processors::pin;
use crate::random::Random;

/// The pings to send.
#[derive(Clone, Copy, Debug)]
pub struct Pings {
    /// The bytes of payload.
    pub bytes: usize,
    /// Their number.
    pub count: usize,
    /// The mean time between an answer and the next request. It is random, so that pings come at any time of a clock.
    pub pause: Duration,
}

/// The round trips of pings.
#[derive(Clone, Debug, Default)]
pub struct RoundTrips {
    /// Of those that were answered, in ascending order.
    pub times: Vec<Duration>,
    /// Requests without an answer within 200 ms.
    pub lost: usize,
}

/// Sends pings one by one, from the clients' processor, before all else that runs there.
///
/// # Errors
/// Those of the socket; needs CAP_NET_RAW.
pub fn run(
    network: &Network,
    destination: Ipv4Addr,
    pings: Pings,
    seed: u64,
) -> io::Result<RoundTrips> {
    network.clients.inside(|| {
        pin(network.processors.clients);
        // Without the right to it, round trips contain waits for the sender.
        let _ = Priority::Fifo(5).apply();
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(ipproto::ICMP),
        )?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        let destination = SocketAddr::from((destination, 0));
        let (mut random, mut found) = (Random(seed), RoundTrips::default());
        for sequence in 0..pings.count {
            let mean = pings.pause.as_nanos() as u64;
            thread::sleep(Duration::from_nanos(mean / 2 + random.below(mean.max(1))));
            let request = echo_request(sequence as u16, pings.bytes);
            let begun = Instant::now();
            sendto(&socket, &request, SendFlags::empty(), &destination)?;
            match is_answered(&socket, sequence as u16, begun) {
                true => found.times.push(begun.elapsed()),
                false => found.lost += 1,
            }
        }
        found.times.sort();
        Ok(found)
    })?
}

/// Waits for the answer; late ones to requests that were given up are passed over.
fn is_answered(socket: &impl std::os::fd::AsFd, sequence: u16, begun: Instant) -> bool {
    let mut packet = vec![0; MOST_PACKET];
    while begun.elapsed() < PATIENCE {
        let Ok((bytes, _)) = recv(socket, &mut packet[..], RecvFlags::empty()) else {
            return false;
        };
        if is_answer(&packet[..bytes], sequence) {
            return true;
        }
    }
    false
}

/// Returns an echo request (RFC 792) with a payload of zeros.
fn echo_request(sequence: u16, bytes: usize) -> Vec<u8> {
    let mut message = vec![0; HEADER + bytes];
    message[0] = ECHO_REQUEST;
    message[4..6].copy_from_slice(&IDENTIFIER.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    // All words are 0 but these.
    let mut sum = u32::from(ECHO_REQUEST) << 8;
    sum += u32::from(IDENTIFIER) + u32::from(sequence);
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// Whether an IPv4 packet is the answer to the request with this number.
fn is_answer(packet: &[u8], sequence: u16) -> bool {
    let header = packet
        .first()
        .map_or(0, |first| usize::from(first & 0xf) * 4);
    let Some(message) = packet.get(header..header + HEADER) else {
        return false;
    };
    message[0] == ECHO_REPLY
        && message[4..6] == IDENTIFIER.to_be_bytes()
        && message[6..8] == sequence.to_be_bytes()
}

const HEADER: usize = 8;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
const IDENTIFIER: u16 = 0x736f;
const MOST_PACKET: usize = 1 << 16;
const PATIENCE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_internet_checksum() {
        let request = echo_request(0xfffe, 4);
        let words = request.chunks(2);
        let sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn only_the_answer_to_the_request_counts() {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet.extend(echo_request(7, 4));
        assert!(!is_answer(&packet, 7));
        packet[20] = ECHO_REPLY;
        assert!(is_answer(&packet, 7));
        assert!(!is_answer(&packet, 8));
        assert!(!is_answer(&packet[..24], 7));
        assert!(!is_answer(&[], 7));
    }
}
