//! The state of one neighbor (RFC 4861, 7.3.2 and appendix C).

use alloc::collections::VecDeque;
use core::mem;
use core::net::IpAddr;

use softclock_core::Instant;

use super::{Answer, Neighbor, NeighborSettings, Resolved};
use crate::drops::DropReason;
use crate::link::LinkAddress;

/// A neighbor whose link address is known or looked for.
#[derive(Clone, Debug)]
pub(super) struct Entry<P> {
    state: State<P>,
    /// The time of the latest packet to the neighbor; `None` if there was none.
    last_used: Option<Instant>,
}

/// The states of a neighbor (RFC 4861, 7.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighborState {
    /// The link address is looked for.
    Incomplete,
    /// It was confirmed a short time ago that packets reach the neighbor.
    Reachable,
    /// The latest confirmation is long ago, and no packet was sent since.
    Stale,
    /// A packet was sent to a Stale neighbor, and other protocols may still confirm that it arrived.
    Delay,
    /// Solicitations are sent to the known link address to confirm it.
    Probe,
}

#[derive(Clone, Debug)]
enum State<P> {
    Incomplete {
        /// The solicitations that were sent.
        tries: u32,
        due: Instant,
        waiting: VecDeque<P>,
    },
    Reachable {
        link: LinkAddress,
        until: Instant,
    },
    Stale {
        link: LinkAddress,
    },
    Delay {
        link: LinkAddress,
        due: Instant,
    },
    Probe {
        link: LinkAddress,
        /// The solicitations that were sent.
        tries: u32,
        due: Instant,
    },
}

impl<P> Entry<P> {
    /// Returns a neighbor whose link address is not known. A solicitation is due at once.
    pub(super) const fn incomplete(now: Instant) -> Self {
        let state = State::Incomplete {
            tries: 0,
            due: now,
            waiting: VecDeque::new(),
        };
        Self {
            state,
            last_used: None,
        }
    }

    /// Returns a neighbor with a link address that was not confirmed, to which no packet was sent.
    pub(super) const fn stale(link: LinkAddress) -> Self {
        Self {
            state: State::Stale { link },
            last_used: None,
        }
    }

    /// Returns the link address for a packet, if no state changes by sending it.
    pub(super) fn use_link(&mut self, now: Instant) -> Option<LinkAddress> {
        let link = match self.state {
            State::Reachable { link, until } if now < until => link,
            State::Delay { link, .. } | State::Probe { link, .. } => link,
            State::Incomplete { .. } | State::Reachable { .. } | State::Stale { .. } => {
                return None;
            }
        };
        self.last_used = Some(now);
        Some(link)
    }

    /// Sends a packet, or lets it wait; `may_wait` says whether the limit of all packets that wait permits one more.
    pub(super) fn send(
        &mut self,
        now: Instant,
        packet: P,
        may_wait: bool,
        settings: &NeighborSettings,
    ) -> Resolved<P> {
        if let Some(link) = self.use_link(now) {
            return Resolved::Send(link, packet);
        }
        self.last_used = Some(now);
        match &mut self.state {
            State::Incomplete { waiting, .. } => {
                wait(waiting, packet, may_wait, settings.waiting_of_one)
            }
            &mut (State::Reachable { link, .. }
            | State::Stale { link }
            | State::Delay { link, .. }
            | State::Probe { link, .. }) => {
                let due = now + settings.delay;
                self.state = State::Delay { link, due };
                Resolved::Send(link, packet)
            }
        }
    }

    /// Takes in that the neighbor has this link address. Returns the packets that waited for it.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        link: LinkAddress,
        answer: Answer,
        settings: &NeighborSettings,
    ) -> VecDeque<P> {
        let reachable = State::Reachable {
            link,
            until: now + settings.reachable,
        };
        let Some(known) = self.link() else {
            let waiting = self.take_waiting();
            self.state = if answer.is_solicited {
                reachable
            } else if waiting.is_empty() {
                State::Stale { link }
            } else {
                // The packets that waited are sent to a Stale neighbor.
                let due = now + settings.delay;
                State::Delay { link, due }
            };
            return waiting;
        };
        let is_other = known != link;
        if is_other && !answer.is_override {
            // Two hosts seem to have the address. The known one stays, but must be confirmed.
            if matches!(self.state, State::Reachable { .. }) {
                self.state = State::Stale { link: known };
            }
        } else if answer.is_solicited {
            self.state = reachable;
        } else if is_other {
            self.state = State::Stale { link };
        }
        VecDeque::new()
    }

    /// Takes in that packets reach the neighbor.
    pub(super) fn confirm(&mut self, until: Instant) {
        if let Some(link) = self.link() {
            self.state = State::Reachable { link, until };
        }
    }

    /// Handles a timer that is due. Returns the link address for the next solicitation, `Some(None)` if it goes to all
    /// hosts, or `None` if the neighbor did not answer the last one.
    pub(super) fn solicit(
        &mut self,
        now: Instant,
        settings: &NeighborSettings,
    ) -> Option<Option<LinkAddress>> {
        let next = now + settings.retransmit;
        let most = settings.tries.max(1);
        match &mut self.state {
            State::Incomplete { tries, due, .. } if *tries < most => {
                *tries += 1;
                *due = next;
                Some(None)
            }
            State::Probe { link, tries, due } if *tries < most => {
                *tries += 1;
                *due = next;
                Some(Some(*link))
            }
            &mut State::Delay { link, .. } => {
                self.state = State::Probe {
                    link,
                    tries: 1,
                    due: next,
                };
                Some(Some(link))
            }
            _ => None,
        }
    }

    /// The time of the timer, in the states that have one.
    pub(super) const fn due(&self) -> Option<Instant> {
        match self.state {
            State::Incomplete { due, .. } | State::Delay { due, .. } | State::Probe { due, .. } => {
                Some(due)
            }
            State::Reachable { .. } | State::Stale { .. } => None,
        }
    }

    /// The packets that wait, if the link address is not known.
    pub(super) const fn waiting(&self) -> Option<&VecDeque<P>> {
        match &self.state {
            State::Incomplete { waiting, .. } => Some(waiting),
            _ => None,
        }
    }

    pub(super) fn into_waiting(mut self) -> VecDeque<P> {
        self.take_waiting()
    }

    /// Whether the entry can be removed without loss but for the time of a new resolution.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.state_at(now) == NeighborState::Stale
    }

    pub(super) const fn last_used(&self) -> Option<Instant> {
        self.last_used
    }

    pub(super) fn neighbor(&self, now: Instant, address: IpAddr) -> Neighbor {
        Neighbor {
            address,
            link: self.link(),
            state: self.state_at(now),
        }
    }

    fn state_at(&self, now: Instant) -> NeighborState {
        match self.state {
            State::Incomplete { .. } => NeighborState::Incomplete,
            State::Reachable { until, .. } if now < until => NeighborState::Reachable,
            State::Reachable { .. } | State::Stale { .. } => NeighborState::Stale,
            State::Delay { .. } => NeighborState::Delay,
            State::Probe { .. } => NeighborState::Probe,
        }
    }

    const fn link(&self) -> Option<LinkAddress> {
        match self.state {
            State::Incomplete { .. } => None,
            State::Reachable { link, .. }
            | State::Stale { link }
            | State::Delay { link, .. }
            | State::Probe { link, .. } => Some(link),
        }
    }

    fn take_waiting(&mut self) -> VecDeque<P> {
        match &mut self.state {
            State::Incomplete { waiting, .. } => mem::take(waiting),
            _ => VecDeque::new(),
        }
    }
}

/// Lets a packet wait. If too many wait for this neighbor, it takes the place of the oldest (RFC 4861, 7.2.2).
fn wait<P>(waiting: &mut VecDeque<P>, packet: P, may_wait: bool, most: usize) -> Resolved<P> {
    let dropped = if waiting.len() >= most {
        match waiting.pop_front() {
            Some(oldest) => {
                waiting.push_back(packet);
                oldest
            }
            None => packet,
        }
    } else if may_wait {
        waiting.push_back(packet);
        return Resolved::Waits;
    } else {
        packet
    };
    Resolved::Dropped(dropped, DropReason::NeighborQueueFull)
}
