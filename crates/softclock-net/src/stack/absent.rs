//! The flows of a stack that has ended, when several stacks have the same addresses.
//!
//! The segments of such a flow go from stack to stack, in the order of their numbers from that of the absent one on,
//! until one of them has the connection. If none has, the first one with a listener for the flow gets the segment back:
//! only that one can have made its cookie, and it refuses all other segments by a reset. Without a listener the last
//! stack refuses it. A segment that opens a connection stays with the first listener.
//!
//! Nothing is stored for a flow, so that no flood fills memory. A connection stays where it was accepted even if
//! another stack takes the place of the absent one: then segments that are unknown there go the same way, for as long
//! as the group exists, since a connection may be open for as long. Such searches are limited in each second. A flood
//! of segments that belong to no connection would otherwise cost a copy for each stack and segment.

use alloc::vec::Vec;
use core::ops::Deref;

use softclock_core::Instant;

use super::Stack;
use crate::demux::Flow;
use crate::drops::DropReason;
use crate::rate_limit::TokenBucket;

/// How a frame came to a stack, if several have the same addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Route {
    /// From the link.
    Link,
    /// Handed to the stack with the link, since it is no segment of TCP: only that stack answers for the addresses and
    /// has the sockets of UDP.
    Common,
    /// Handed to the stack that its hash names, or from a stack to itself.
    #[default]
    Direct,
    /// Handed to each stack in turn, until one has the connection.
    Search(Search),
    /// Handed to the stack that answers it, since none has the connection.
    Last,
}

/// The progress of a search for the stack that has a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Search {
    /// The stack that the hash names.
    named: u32,
    /// The number of stacks that were asked, or are absent.
    asked: u32,
    /// The first of them with a listener.
    listener: Option<u32>,
}

/// Whether the stacks of a group have ended.
#[derive(Debug)]
pub(super) struct Absences {
    /// By the numbers of the stacks. Those beyond the end of the list never have.
    stacks: Vec<Absence>,
    /// The searches that may begin at this stack after it has taken the place of an absent one.
    searches: TokenBucket,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Absence {
    /// It has never ended, and has all of its flows.
    #[default]
    Never,
    /// It has ended.
    Now,
    /// It has ended and begun again: other stacks may have connections of its flows.
    Before,
}

impl Default for Absences {
    fn default() -> Self {
        Self {
            stacks: Vec::new(),
            searches: TokenBucket::new(SEARCHES_PER_SECOND, SEARCHES_AT_ONCE),
        }
    }
}

impl Absences {
    fn of(&self, stack: u32) -> Absence {
        let absence = self.stacks.get(stack as usize);
        absence.copied().unwrap_or_default()
    }

    fn are_absent(&self, stack: u32) -> bool {
        self.of(stack) == Absence::Now
    }
}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Notes that another stack of the group has ended, or has begun again: while it is absent, others take the
    /// connections that the hash gives to it, and refuse those that it had.
    pub fn set_absent(&mut self, stack: u32, is_absent: bool) {
        let absences = &mut self.absences.stacks;
        let place = stack as usize;
        if absences.len() <= place {
            if !is_absent {
                return;
            }
            absences.resize(place + 1, Absence::Never);
        }
        absences[place] = match (is_absent, absences[place]) {
            (true, _) => Absence::Now,
            (false, Absence::Never) => Absence::Never,
            (false, _) => Absence::Before,
        };
    }

    /// Returns the other stack to which a segment goes that belongs to no connection of this one, or `None` if this one
    /// has to handle it.
    ///
    /// # Errors
    /// [`DropReason::HandoverFull`] if too many searches have begun: the segment may be of a connection of another
    /// stack, and must not be refused.
    pub(super) fn elsewhere(
        &mut self,
        now: Instant,
        flow: &Flow,
        route: Route,
        is_opening: impl FnOnce() -> bool,
    ) -> Result<Option<(u32, Route)>, DropReason> {
        let Some(steering) = self.settings.steering else {
            return Ok(None);
        };
        let mut is_limited = false;
        let search = match route {
            Route::Last => return Ok(None),
            Route::Search(search) => search,
            Route::Link | Route::Common | Route::Direct => {
                let named = steering.stack_of(flow);
                let is_named = named == steering.own();
                let absence = self.absences.of(named);
                match absence {
                    Absence::Never if is_named => return Ok(None),
                    Absence::Before if is_named && self.has_half_open(flow) => return Ok(None),
                    Absence::Never | Absence::Before if !is_named => {
                        return Ok(Some((named, Route::Direct)));
                    }
                    // All connections of a stack that is absent are searched for: these searches have no limit.
                    _ => is_limited = absence == Absence::Before,
                }
                Search {
                    named,
                    asked: 0,
                    listener: None,
                }
            }
        };
        let next = self.go_on(search, steering.own(), flow, is_opening());
        match next.is_none() || !is_limited || self.absences.searches.take(now) {
            true => Ok(next),
            false => Err(DropReason::HandoverFull),
        }
    }

    /// Returns the next stack of a search that has come to this one, or begins here; `None` if the segment stays.
    fn go_on(
        &self,
        mut search: Search,
        own: u32,
        flow: &Flow,
        is_opening: bool,
    ) -> Option<(u32, Route)> {
        let stacks = self
            .settings
            .steering
            .map_or(1, |steering| steering.stacks());
        while search.asked < stacks {
            let next = (search.named + search.asked) % stacks;
            if !self.absences.are_absent(next) {
                if next != own {
                    return Some((next, Route::Search(search)));
                }
                if self.tcp_listener_of(flow).is_some() {
                    if is_opening || self.has_half_open(flow) {
                        return None;
                    }
                    search.listener.get_or_insert(own);
                }
            }
            search.asked += 1;
        }
        let listener = search.listener.filter(|&listener| {
            let is_here = listener == own;
            !is_here && !self.absences.are_absent(listener)
        });
        listener.map(|listener| (listener, Route::Last))
    }
}

/// The searches that begin in a second at a stack which has taken the place of an absent one. With eight stacks they
/// cost 70000 copies of a segment at most; a flood may send millions of segments.
const SEARCHES_PER_SECOND: u32 = 10_000;

/// As many as the segments of some full windows.
const SEARCHES_AT_ONCE: u32 = 1000;
