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
}

impl Hops {
    /// Returns the link address of a neighbor, if it is known, and whether to ask for it. A new neighbor displaces
    /// another one if there is no room.
    pub(super) fn find(&mut self, now: Instant, neighbor: IpAddr) -> (Option<LinkAddress>, bool) {
        if !self.0.contains_key(&neighbor) && self.0.len() >= MOST_HOPS {
            self.0.retain(|_, hop| hop.known_until > now);
            if self.0.len() >= MOST_HOPS {
                self.0.pop_first();
            }
        }
        let hop = self.0.entry(neighbor).or_insert(Hop {
            link: None,
            known_until: now,
            ask_again: now,
        });
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
