//! The link addresses of the neighbors to which a stack without the link sends by a queue of its own.
//!
//! The stack with the link has the cache of neighbors. The other stack asks it for a neighbor with the first packet,
//! and again while it sends, so that the cache keeps the neighbor as one in use and notices when it has gone. While
//! there is no answer, packets go by the stack with the link.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::Deref;
use core::time::Duration;

use softclock_core::Instant;

use super::{Frame, Stack};
use crate::link::LinkAddress;
use crate::neighbors::Resolved;

/// The answers of the stack with the link, and the times at which to ask again.
#[derive(Debug, Default)]
pub(super) struct Hops(BTreeMap<IpAddr, Hop>);

#[derive(Debug)]
struct Hop {
    link: Option<LinkAddress>,
    known_until: Instant,
    ask_again: Instant,
    /// When a packet was last sent to the neighbor.
    used: Instant,
}

impl Hops {
    /// Returns the link address of a neighbor, if it is known, and whether to ask for it. A new neighbor displaces
    /// the one that was used least recently if there is no room.
    pub(super) fn find(&mut self, now: Instant, neighbor: IpAddr) -> (Option<LinkAddress>, bool) {
        if !self.0.contains_key(&neighbor) && self.0.len() >= MOST_HOPS {
            self.0.retain(|_, hop| hop.known_until > now);
            if self.0.len() >= MOST_HOPS {
                let oldest = self.0.iter().min_by_key(|(_, hop)| hop.used);
                let oldest = oldest.map(|(&neighbor, _)| neighbor);
                oldest.and_then(|neighbor| self.0.remove(&neighbor));
            }
        }
        let hop = self.0.entry(neighbor).or_insert(Hop {
            link: None,
            known_until: now,
            ask_again: now,
            used: now,
        });
        hop.used = now;
        let asks = hop.ask_again <= now;
        if asks {
            hop.ask_again = now + PAUSE;
        }
        (hop.link.filter(|_| now < hop.known_until), asks)
    }

    /// Takes an answer. One about a neighbor that is not asked for is ignored.
    pub(super) fn learn(&mut self, now: Instant, neighbor: IpAddr, link: LinkAddress) {
        if let Some(hop) = self.0.get_mut(&neighbor) {
            *hop = Hop {
                link: Some(link),
                known_until: now + LIFETIME,
                ask_again: now + LIFETIME / 4,
                used: hop.used,
            };
        }
    }
}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Sets whether a stack without the link has a queue of the link to send by. By default it has none. With one, it
    /// asks by [`next_question`](Self::next_question) for the neighbors that it sends to, and its frames have link
    /// addresses ([`Frame::is_complete`]) once [`on_neighbor`](Self::on_neighbor) has answered.
    pub const fn set_sends(&mut self, sends: bool) {
        self.sends = sends;
    }

    /// Returns the link address of a neighbor to which another stack sends, for its [`on_neighbor`](Self::on_neighbor),
    /// or `None` if it is not known. Asks no neighbor: a packet of the other stack does, which is
    /// [forwarded](Self::forward).
    pub fn link_address_of(&mut self, now: Instant, neighbor: IpAddr) -> Option<LinkAddress> {
        self.neighbors.find(now, neighbor)?.link?;
        // Marks it as in use. No packet waits for a link address that is known.
        match self
            .neighbors
            .resolve(now, neighbor, Frame::from(Vec::new()))
        {
            Resolved::Send(link, _) => Some(link),
            Resolved::Waits | Resolved::Dropped(..) => None,
        }
    }
}

/// The time for which an answer holds. It is asked for again after a quarter.
const LIFETIME: Duration = Duration::from_secs(2);

/// The time between two questions without an answer.
const PAUSE: Duration = Duration::from_millis(10);

/// As many as the neighbors of the stack with the link.
const MOST_HOPS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_neighbor_displaces_the_one_used_least_recently() {
        let neighbor = |number: usize| IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
        let link = LinkAddress([2, 0, 0, 0, 0, 1]);
        let begin = Instant::from_ns(1_000_000_000);
        let mut hops = Hops::default();
        for number in 0..MOST_HOPS {
            let now = begin.add_ns(number as u64);
            hops.find(now, neighbor(number));
            hops.learn(now, neighbor(number), link);
        }
        let mut now = begin.add_ns(1_000_000);
        let mut is_known = |number| {
            now = now.add_ns(1);
            hops.find(now, neighbor(number)).0.is_some()
        };
        // The lowest address is in use.
        assert!(is_known(0));
        assert!(!is_known(MOST_HOPS));
        assert!(is_known(0) && is_known(2) && is_known(MOST_HOPS - 1));
        assert!(!is_known(1), "it made room");
    }
}
