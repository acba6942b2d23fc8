//! The link addresses of the hosts on the link, for IPv4 and IPv6.
//!
//! This is the neighbor cache of RFC 4861 (7.3), whose states also serve ARP (RFC 826), as RFC 1122 (2.3.2.1) demands
//! that link addresses that are out of date are found and removed. [`arp`](crate::ip::arp) and
//! [`ndisc`](crate::ip::ndisc) parse and write the messages.
//!
//! ```text
//!             answer                reachable time over       packet          delay over
//! Incomplete ────────▶ Reachable ─────────────────────▶ Stale ──────▶ Delay ─────────────▶ Probe
//!     │                    ▲                                            │                    │
//!     │ no answer          └──────────── answer, or confirmation ───────┴────────────────────┤
//!     ▼                                                                                      ▼ no answer
//!   failed                                                                                 failed
//! ```
//!
//! Messages of both protocols are not authenticated: any host on the link can claim any address. The limits keep such a
//! host, and one behind a router that makes the stack answer to many addresses (RFC 6583), from using more than a fixed
//! amount of memory, and from displacing the neighbors in use:
//! - At most half of the entries are Incomplete. Then only new resolutions are refused, not neighbors that are known.
//! - A new entry takes the place of a Stale one, of the neighbor to which no packet was sent for the longest time. An
//!   entry made by a request is the first to go until the stack sends a packet to its neighbor.
//!
//! Differences from RFC 4861: the reachable time is not randomized, and a Reachable entry becomes Stale when it is next
//! looked at, without a timer.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use softclock_core::Instant;

use crate::drops::DropReason;
use crate::due::Slack;
use crate::link::LinkAddress;
use crate::routes::can_be_host;

mod entry;

use entry::Entry;
pub use entry::NeighborState;

/// The link addresses of neighbors, and the packets of type `P` that wait for them.
///
/// # Cost
/// Each call takes time logarithmic in the number of entries, and linear in that of the packets that it returns. Only a
/// new entry in a full table takes time linear in the number of entries, to find the one that it replaces.
///
/// # Example
/// ```
/// use softclock_core::Instant;
/// use softclock_net::neighbors::{Answer, NeighborSettings, Neighbors, Resolved, TimerEvent};
///
/// let mut neighbors = Neighbors::new(NeighborSettings::default());
/// let now = Instant::ORIGIN;
/// let address = "10.0.0.7".parse().unwrap();
/// let link = "02:00:00:00:00:07".parse().unwrap();
///
/// // The first packet waits, and a solicitation is due at once.
/// assert_eq!(neighbors.resolve(now, address, "first"), Resolved::Waits);
/// assert_eq!(neighbors.next_timeout(), Some(now));
/// assert_eq!(neighbors.on_timer(now), Some(TimerEvent::Solicit { address, to: None }));
/// assert_eq!(neighbors.on_timer(now), None);
///
/// // The answer releases it, and the next packet is sent at once.
/// assert_eq!(neighbors.on_answer(now, address, link, Answer::ARP_REPLY), [(link, "first")]);
/// assert_eq!(neighbors.resolve(now, address, "second"), Resolved::Send(link, "second"));
/// ```
#[derive(Clone, Debug)]
pub struct Neighbors<P> {
    settings: NeighborSettings,
    entries: BTreeMap<IpAddr, Entry<P>>,
    /// The timers of the entries, the next one first.
    timers: BTreeSet<(Instant, IpAddr)>,
    /// The number of Incomplete entries.
    incomplete: usize,
    /// The number of packets that wait.
    waiting: usize,
}

/// The limits and times of [`Neighbors`]. The default times are those of RFC 4861 (10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborSettings {
    /// The largest number of neighbors, of which half may be Incomplete. At least 1. By default 512. It must be above
    /// the number of hosts to which packets are sent at the same time: entries in use are not replaced.
    pub entries: usize,
    /// The largest number of packets that wait for one neighbor. By default 16, enough for a few small requests, or the
    /// fragments of one packet.
    pub waiting_of_one: usize,
    /// The largest number of packets that wait in all. By default 256.
    pub waiting: usize,
    /// The time between solicitations. By default 1 s.
    pub retransmit: Duration,
    /// The number of solicitations without an answer after which a neighbor is unreachable. At least 1. By default 3.
    pub tries: u32,
    /// The time for which a confirmation proves that the neighbor can be reached. By default 30 s.
    pub reachable: Duration,
    /// The time for a confirmation by other means before a neighbor in use is solicited. By default 5 s.
    pub delay: Duration,
}

/// The fate of a packet for which a link address was needed.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolved<P> {
    /// The packet can be sent to this link address.
    Send(LinkAddress, P),
    /// The packet waits for the answer of the neighbor.
    Waits,
    /// A packet must be dropped: this one, or the one that waited for this neighbor for the longest time, whose place
    /// this one takes.
    Dropped(P, DropReason),
}

/// The properties of an answer that decide whether to believe it (RFC 4861, 7.2.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The message answers a solicitation, so packets reach the neighbor and return.
    pub is_solicited: bool,
    /// The link address replaces a different one that is known.
    pub is_override: bool,
}

/// An action that became due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimerEvent<P> {
    /// The caller must send an ARP request or a neighbor solicitation.
    Solicit {
        /// The address in question.
        address: IpAddr,
        /// The known link address, to which the request is sent to confirm it. `None`: the request goes to all hosts,
        /// or to the [group of the address](crate::ip::ndisc::solicited_node).
        to: Option<LinkAddress>,
    },
    /// The neighbor did not answer and is removed. The next packet to it starts over.
    Failed {
        /// The address of the neighbor.
        address: IpAddr,
        /// The packets that waited for it, oldest first, to be dropped as [`DropReason::NeighborUnreachable`]. Empty if
        /// the neighbor's link address was known before.
        packets: Vec<P>,
    },
}

/// A neighbor, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// The IP address.
    pub address: IpAddr,
    /// The link address, unless the state is [`NeighborState::Incomplete`].
    pub link: Option<LinkAddress>,
    /// The state.
    pub state: NeighborState,
}

impl<P> Neighbors<P> {
    /// Returns an empty table. It allocates nothing until the first neighbor.
    pub const fn new(settings: NeighborSettings) -> Self {
        Self {
            settings,
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            incomplete: 0,
            waiting: 0,
        }
    }

    /// Finds the link address of a neighbor for a packet.
    ///
    /// If it is not known, the packet waits, and the first solicitation is due at once: the caller asks
    /// [`on_timer`](Self::on_timer) for it.
    pub fn resolve(&mut self, now: Instant, address: IpAddr, packet: P) -> Resolved<P> {
        let settings = self.settings;
        match self.entries.get_mut(&address) {
            Some(entry) => {
                if let Some(link) = entry.use_link(now) {
                    return Resolved::Send(link, packet);
                }
            }
            None => {
                let has_room = self.incomplete < settings.entries.div_ceil(2).max(1);
                if !has_room || !self.make_room(now) {
                    return Resolved::Dropped(packet, DropReason::NeighborQueueFull);
                }
                self.insert(address, Entry::incomplete(now));
            }
        }
        let may_wait = self.waiting < settings.waiting;
        self.change(address, |entry| {
            entry.send(now, packet, may_wait, &settings)
        })
        .expect("the entry was there, or was inserted")
    }

    /// Takes in an ARP reply or a neighbor advertisement: `address` has the link address `link`. Returns the packets
    /// that waited for it, oldest first, with the link address to which they must be sent.
    ///
    /// Answers about addresses that the stack did not look for are ignored. A message that announces an address, or an
    /// ARP request that asks for an address of another host, is an [`Answer::ANNOUNCEMENT`] of its sender. An
    /// advertisement without a link address that is solicited is an [`on_confirmed`](Self::on_confirmed).
    #[must_use = "the packets must be sent"]
    pub fn on_answer(
        &mut self,
        now: Instant,
        address: IpAddr,
        link: LinkAddress,
        answer: Answer,
    ) -> Vec<(LinkAddress, P)> {
        if !link.is_host() {
            return Vec::new();
        }
        let settings = self.settings;
        let released = self.change(address, |entry| {
            entry.on_answer(now, link, answer, &settings)
        });
        let packets = released.into_iter().flatten();
        packets.map(|packet| (link, packet)).collect()
    }

    /// Takes in an ARP request or a neighbor solicitation for an address of the stack, from a sender with the link
    /// address `link`. Returns the packets that waited for the sender, like [`on_answer`](Self::on_answer).
    ///
    /// The sender becomes a neighbor, since the stack will probably send packets to it (RFC 826). It is not remembered
    /// if no entry can be replaced, or if one of the addresses cannot be that of a host, such as the unspecified
    /// address of a probe. The caller must have made sure that the sender's address is not one of the stack's.
    #[must_use = "the packets must be sent"]
    pub fn on_request(
        &mut self,
        now: Instant,
        sender: IpAddr,
        link: LinkAddress,
    ) -> Vec<(LinkAddress, P)> {
        let is_new = !self.entries.contains_key(&sender);
        if is_new && link.is_host() && can_be_host(sender) && self.make_room(now) {
            self.insert(sender, Entry::stale(link));
        }
        self.on_answer(now, sender, link, Answer::ANNOUNCEMENT)
    }

    /// Takes in the news that packets to a neighbor arrive, such as a TCP acknowledgement of new data (RFC 4861,
    /// 7.3.1). The neighbor needs no solicitation for the reachable time. Has no effect if its link address is not
    /// known.
    pub fn on_confirmed(&mut self, now: Instant, address: IpAddr) {
        let reachable = self.settings.reachable;
        self.change(address, |entry| entry.confirm(now + reachable));
    }

    /// Returns the time at which [`on_timer`](Self::on_timer) has something to do next. It may be in the past.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(due, _)| due)
    }

    /// How late [`on_timer`](Self::on_timer) may be.
    pub fn slack(&self) -> Duration {
        Slack::LONG.of_time(self.settings.retransmit)
    }

    /// Returns the next action that is due at `now`. The caller repeats the call until it returns `None`.
    pub fn on_timer(&mut self, now: Instant) -> Option<TimerEvent<P>> {
        let &(_, address) = self.timers.first().filter(|&&(due, _)| due <= now)?;
        let settings = self.settings;
        match self.change(address, |entry| entry.solicit(now, &settings))? {
            Some(to) => Some(TimerEvent::Solicit { address, to }),
            None => {
                let packets = self.forget(address);
                Some(TimerEvent::Failed { address, packets })
            }
        }
    }

    /// Removes a neighbor. Returns the packets that waited for it, oldest first.
    #[must_use = "the packets must be counted as dropped"]
    pub fn forget(&mut self, address: IpAddr) -> Vec<P> {
        let Some(entry) = self.entries.remove(&address) else {
            return Vec::new();
        };
        self.account(address, Accounted::of(&entry), Accounted::NOTHING);
        entry.into_waiting().into()
    }

    /// Returns a neighbor.
    pub fn find(&self, now: Instant, address: IpAddr) -> Option<Neighbor> {
        let entry = self.entries.get(&address)?;
        Some(entry.neighbor(now, address))
    }

    /// Returns all neighbors, in the order of their addresses.
    pub fn iter(&self, now: Instant) -> impl Iterator<Item = Neighbor> {
        let entries = self.entries.iter();
        entries.map(move |(&address, entry)| entry.neighbor(now, address))
    }

    /// The number of neighbors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no neighbor.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of packets that wait.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns whether there is room for a new entry, after removing the least important one if there is none.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.entries.len() < self.settings.entries.max(1) {
            return true;
        }
        let idle = self.entries.iter().filter(|(_, entry)| entry.is_idle(now));
        let least_important = idle.min_by_key(|(_, entry)| entry.last_used());
        let Some((&address, _)) = least_important else {
            return false;
        };
        // No packets wait for an idle neighbor.
        drop(self.forget(address));
        true
    }

    fn insert(&mut self, address: IpAddr, entry: Entry<P>) {
        self.account(address, Accounted::NOTHING, Accounted::of(&entry));
        self.entries.insert(address, entry);
    }

    /// Changes an entry, and with it the timers and totals.
    fn change<R>(&mut self, address: IpAddr, change: impl FnOnce(&mut Entry<P>) -> R) -> Option<R> {
        let entry = self.entries.get_mut(&address)?;
        let before = Accounted::of(entry);
        let result = change(entry);
        let after = Accounted::of(entry);
        self.account(address, before, after);
        if cfg!(debug_assertions) {
            self.invariants();
        }
        Some(result)
    }

    fn account(&mut self, address: IpAddr, before: Accounted, after: Accounted) {
        if before.due != after.due {
            if let Some(due) = before.due {
                self.timers.remove(&(due, address));
            }
            if let Some(due) = after.due {
                self.timers.insert((due, address));
            }
        }
        self.incomplete = self.incomplete - before.incomplete + after.incomplete;
        self.waiting = self.waiting - before.waiting + after.waiting;
    }

    /// The totals are those of the entries, and the limits hold.
    fn invariants(&self) {
        let accounted = || self.entries.values().map(Accounted::of);
        let incomplete: usize = accounted().map(|entry| entry.incomplete).sum();
        let waiting: usize = accounted().map(|entry| entry.waiting).sum();
        assert_eq!((self.incomplete, self.waiting), (incomplete, waiting));
        assert_eq!(
            self.timers.len(),
            accounted().filter_map(|entry| entry.due).count()
        );
        assert!(self.timers.iter().all(|(due, address)| {
            let entry = self.entries.get(address);
            entry.is_some_and(|entry| entry.due() == Some(*due))
        }));
        assert!(self.entries.len() <= self.settings.entries.max(1));
        assert!(self.waiting <= self.settings.waiting);
        assert!(accounted().all(|entry| entry.waiting <= self.settings.waiting_of_one));
    }
}

/// The part of an entry's state that the timers and totals repeat.
#[derive(Clone, Copy)]
struct Accounted {
    due: Option<Instant>,
    incomplete: usize,
    waiting: usize,
}

impl Accounted {
    const NOTHING: Self = Self {
        due: None,
        incomplete: 0,
        waiting: 0,
    };

    fn of<P>(entry: &Entry<P>) -> Self {
        let waiting = entry.waiting();
        Self {
            due: entry.due(),
            incomplete: waiting.map_or(0, |_| 1),
            waiting: waiting.map_or(0, VecDeque::len),
        }
    }
}

impl Answer {
    /// An ARP reply to the stack.
    pub const ARP_REPLY: Self = Self {
        is_solicited: true,
        is_override: true,
    };

    /// The addresses of the sender of a message that the stack has not asked for.
    pub const ANNOUNCEMENT: Self = Self {
        is_solicited: false,
        is_override: true,
    };
}

impl Default for NeighborSettings {
    fn default() -> Self {
        Self {
            entries: 512,
            waiting_of_one: 16,
            waiting: 256,
            retransmit: Duration::from_secs(1),
            tries: 3,
            reachable: Duration::from_secs(30),
            delay: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests;
