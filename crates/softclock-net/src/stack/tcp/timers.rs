//! The timers of connections; and those of listeners and of TIME-WAIT, which keep lists of their own.

use core::ops::Deref;

use softclock_core::{FireWindow, Instant};

use super::Listed;
use crate::due::{Slack, Window, earliest};
use crate::stack::Stack;
use crate::stack::slots::SlotId;

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// The time at which connections, listeners or TIME-WAIT have work.
    pub(in crate::stack) fn tcp_next_timeout(&self) -> Option<Instant> {
        earliest([
            self.tcp.timers.next_due(),
            self.tcp.listeners_due.due(),
            self.tcp.time_wait.next_timeout(),
            self.tcp.waiting.front().map(|&(_, until)| until),
        ])
    }

    /// The time by which their work must be done.
    pub(in crate::stack) fn tcp_next_wake(&self) -> Option<FireWindow> {
        let tcp = &self.tcp;
        let listeners = tcp.listeners_due;
        let of_wait = Slack::ACKNOWLEDGMENT.of_time(self.settings.tcp.least_wait);
        let of_lists = earliest([
            listeners.due().map(|_| listeners.latest),
            (tcp.time_wait.next_timeout()).map(|due| due + tcp.time_wait.slack()),
            tcp.waiting.front().map(|&(_, until)| until + of_wait),
        ]);
        let of_lists = of_lists.map(FireWindow::roughly);
        FireWindow::first(tcp.timers.next_wake().into_iter().chain(of_lists))
    }

    /// Does what is due.
    pub(in crate::stack) fn tcp_on_timer(&mut self, now: Instant) {
        while let Some(&(id, until)) = self.tcp.waiting.front()
            && until <= now
        {
            self.tcp.waiting.pop_front();
            if let Some(endpoint) = self.tcp.connections.get_mut(id) {
                endpoint.listed.remove(Listed::WAITING);
                if !endpoint.channel.is_empty() {
                    self.tcp_arm(now, id);
                }
            }
        }
        while let Some(id) = self.tcp.timers.pop_due(now) {
            if let Some(endpoint) = self.tcp.connections.get_mut(id) {
                endpoint.timer = None;
            }
            self.tcp_on_connection_timer(now, id);
        }
        while self.tcp.time_wait.on_timer(now).is_some() {}
        if self.tcp.listeners_due.earliest <= now {
            self.listeners_on_timer(now);
        }
    }

    fn tcp_on_connection_timer(&mut self, now: Instant, id: SlotId) {
        let Some(endpoint) = self.tcp.connections.get_mut(id) else {
            return;
        };
        // No timer judges before the segments that have arrived are processed.
        if !endpoint.channel.is_empty() {
            self.tcp.tally.counts.late_owners += 1;
            self.tcp_drain(now, id);
        }
        if let Some(endpoint) = self.tcp.connections.get_mut(id)
            && endpoint
                .connection
                .next_timeout()
                .is_some_and(|due| due <= now)
        {
            let tally = &mut self.tcp.tally;
            let connection = &mut endpoint.connection;
            let events = tally.observe(connection, |connection| connection.on_timer(now));
            self.tcp.mark_ready(id);
            self.tcp_apply(now, id, events);
        }
        self.tcp_settle(now, id);
    }

    /// Notes that a segment, which arrived at `at`, waits in the channel of a connection. No timer is set before the
    /// least time that it may wait is over, since nearly all owners come before.
    pub(super) fn tcp_await_owner(&mut self, at: Instant, id: SlotId) {
        if let Some(endpoint) = self.tcp.connections.get_mut(id)
            && !endpoint.listed.contains(Listed::WAITING)
        {
            endpoint.listed.insert(Listed::WAITING);
            self.tcp
                .waiting
                .push_back((id, at + self.settings.tcp.least_wait));
        }
    }

    /// Forgets the connections at the front of the list of those that wait for their owners, if these have come.
    pub(super) fn tcp_on_owner(&mut self) {
        while let Some(&(id, _)) = self.tcp.waiting.front() {
            match self.tcp.connections.get_mut(id) {
                Some(endpoint) if !endpoint.channel.is_empty() => return,
                Some(endpoint) => endpoint.listed.remove(Listed::WAITING),
                None => {}
            }
            self.tcp.waiting.pop_front();
        }
    }

    /// Sets the timer of a connection to the time of its next work: that of its protocol, or that at which the segments
    /// in its channel have waited long enough for the owner.
    pub(super) fn tcp_arm(&mut self, now: Instant, id: SlotId) {
        let settings = &self.settings.tcp;
        let Some(endpoint) = self.tcp.connections.get_mut(id) else {
            return;
        };
        // A connection that will be asked for segments has its timer set again behind the last one. Until then the
        // timer may fire early, which has no effect.
        let is_asked = endpoint.listed.contains(Listed::READY) && endpoint.channel.is_empty();
        if is_asked && endpoint.timer.is_some() {
            return;
        }
        let waiting = endpoint.channel.front().map(|frame| {
            let quarter = endpoint.connection.round_trip().map(|time| time / 4);
            let (least, longest) = (settings.least_wait, settings.longest_wait);
            let wait = quarter.unwrap_or(longest).min(longest).max(least);
            frame.at + wait
        });
        let protocol = endpoint.connection.timer_window(now);
        let window = protocol.and(Window::of(now, waiting, Slack::ACKNOWLEDGMENT));
        // What is due at once needs no timer then.
        let window = match window.earliest > now || !is_asked {
            true => window,
            false => Window::NEVER,
        };
        let timer = (&mut endpoint.timer, &mut endpoint.band);
        self.tcp.timers.set(timer, window, id);
    }
}
