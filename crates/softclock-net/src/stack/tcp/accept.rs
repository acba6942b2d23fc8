//! Listeners: their channels, and the connections that come out of them.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;
use core::time::Duration;

use softclock_core::Instant;

use super::glance::{Glance, source_of};
use super::input::Parsed;
use super::{SynRoom, TcpEndpoint, TcpId, TcpListenSettings, TcpListenerId, TcpWoken};
use crate::channel::Channel;
use crate::demux::{Flow, InUse, Transport};
use crate::drops::DropReason;
use crate::due::{Window, earliest};
use crate::rate_limit::TokenBucket;
use crate::stack::endpoint::Arrived;
use crate::stack::input::check_source;
use crate::stack::slots::SlotId;
use crate::stack::{Architecture, BindError, Stack};
use crate::tcp::connection::Connection;
use crate::tcp::listen::{
    Handshake, ListenSettings, ListenStats, Listener, Outcome, PeerChange, ProvenPeers, Shared,
};
use crate::tcp::peer::Offer;
use crate::tcp::segment::{Flags, Reply};
use crate::tcp::seq::Seq;
use crate::tcp::settings::Settings;
use crate::tcp::time_wait::TimeWaitOutcome;

/// A listener, and what the stack keeps with it.
pub(super) struct Listening<B> {
    pub(super) listener: Listener<SlotId>,
    local: (IpAddr, u16),
    offer: Offer,
    /// The settings of its connections.
    connection: Arc<Settings>,
    syns: Channel<Arrived<B>>,
    /// SYNs of proven peers that came while cookies were needed. Without need they wait with those of others.
    proven_syns: Channel<Arrived<B>>,
    /// Segments that may complete handshakes.
    handshakes: Channel<Arrived<B>>,
    /// The cookies that may be sent to proven peers, and to others.
    cookies: Cookies,
    /// Whether it is in the list of listeners with something in their channels.
    is_busy: bool,
    /// Whether the owner waits for a connection.
    waits: bool,
    /// The latest time that the owner accepted, or was woken; at first that of the first segment.
    attended: Option<Instant>,
}

impl<B: Deref<Target = [u8]>> Listening<B> {
    /// Whether [`process`](Stack::process) has work.
    fn has_work(&self, shared: &Shared, now: Instant) -> bool {
        let has_syn = |channel: &Channel<_>, is_proven| {
            !channel.is_empty() && !self.holds_syn(shared, now, is_proven)
        };
        !self.handshakes.is_empty()
            || has_syn(&self.proven_syns, true)
            || has_syn(&self.syns, false)
    }

    /// Takes the SYN out that is to be processed next. Those of proven peers go first.
    fn pop_syn(&mut self, shared: &Shared, now: Instant) -> Option<Arrived<B>> {
        if !self.proven_syns.is_empty() && self.admits_syn(shared, now, true) {
            return self.proven_syns.pop();
        }
        if self.syns.is_empty() || !self.admits_syn(shared, now, false) {
            return None;
        }
        self.syns.pop()
    }

    /// Whether a SYN may be processed now. Takes one of the cookies that may be sent, if it needs one.
    fn admits_syn(&mut self, shared: &Shared, now: Instant, is_proven: bool) -> bool {
        if self.holds_syn(shared, now, is_proven) {
            return false;
        }
        !self.listener.needs_cookies(shared) || self.cookies.of_mut(is_proven).take(now)
    }

    /// Whether a SYN stays in its channel: the backlog is full, or a cookie would be needed, and the listener is
    /// unattended or has sent as many as it may.
    fn holds_syn(&self, shared: &Shared, now: Instant, is_proven: bool) -> bool {
        let has_cookie = || self.is_attended(now) && self.cookies.of(is_proven).has_token(now);
        self.listener.is_full() || (self.listener.needs_cookies(shared) && !has_cookie())
    }

    /// The time of the next look at SYNs that wait since as many cookies were sent as may be.
    fn next_cookie(&self, now: Instant) -> Option<Instant> {
        // Then they wait for a call of the owner.
        if self.listener.is_full() || !self.is_attended(now) {
            return None;
        }
        let of = |syns: &Channel<_>, is_proven| {
            (!syns.is_empty()).then(|| self.cookies.of(is_proven).next_token(now))
        };
        let next = earliest([of(&self.proven_syns, true), of(&self.syns, false)])?;
        Some(next.max(now + COOKIE_PAUSE))
    }

    /// Whether the owner waits for a connection, or has accepted one lately.
    fn is_attended(&self, now: Instant) -> bool {
        let is_recent = |at| now.since(at) <= self.listener.settings().unattended;
        self.waits || self.attended.is_none_or(is_recent)
    }
}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Listens at a port, for one of the stack's addresses, or for all of one version of IP if the address is
    /// unspecified.
    ///
    /// # Errors
    /// [`BindError::InUse`], also for port 0; [`BindError::NotOurAddress`], and [`BindError::TooMany`].
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        settings: TcpListenSettings,
    ) -> Result<TcpListenerId, BindError> {
        let local = (local.ip(), local.port());
        if !local.0.is_unspecified() && !self.is_own(local.0) {
            return Err(BindError::NotOurAddress);
        }
        if self.tcp.listeners.len() >= self.settings.tcp.most_listeners {
            return Err(BindError::TooMany);
        }
        if local.1 == 0 {
            return Err(BindError::InUse);
        }
        let (listen, connection) = self.listen_settings(local.0.is_ipv4(), settings);
        let listening = Listening {
            listener: Listener::new(listen, &self.tcp.shared),
            local,
            offer: listen.offer,
            connection,
            syns: Channel::new(self.settings.tcp.syn_channel),
            proven_syns: Channel::new(self.settings.tcp.syn_channel),
            handshakes: Channel::new(self.settings.tcp.handshake_channel),
            cookies: Cookies::new(listen.cookies_per_second),
            is_busy: false,
            waits: false,
            attended: None,
        };
        let id = self.tcp.listeners.insert(listening);
        match self.table.bind(Transport::Tcp, local, id) {
            Ok(()) => Ok(TcpListenerId(id)),
            Err(InUse) => {
                self.tcp.listeners.remove(id);
                Err(BindError::InUse)
            }
        }
    }

    /// Replaces the settings of a listener, for the SYNs and the connections that come from here on. Returns false, and
    /// changes nothing, if the listener is closed, or if the backlog, the cookies in a second, the retransmissions of
    /// SYN-ACKs or what SYN-ACKs state would be others: handshakes in progress depend on them.
    pub fn tcp_change_listener(&mut self, id: TcpListenerId, settings: TcpListenSettings) -> bool {
        let Some(listening) = self.tcp.listeners.get(id.0) else {
            return false;
        };
        let is_v4 = listening.local.0.is_ipv4();
        let (listen, connection) = self.listen_settings(is_v4, settings);
        let Some(listening) = self.tcp.listeners.get_mut(id.0) else {
            return false;
        };
        let is_possible = listening.listener.change_settings(listen);
        if is_possible {
            listening.connection = connection;
        }
        is_possible
    }

    /// The settings of a listener and of its connections.
    fn listen_settings(
        &self,
        is_v4: bool,
        settings: TcpListenSettings,
    ) -> (ListenSettings, Arc<Settings>) {
        let connection = self.tcp.with_common_clock(settings.connection);
        let mut listen = settings.listen.unwrap_or(self.settings.tcp.listen);
        listen.backlog = settings.backlog.unwrap_or(listen.backlog);
        let headers = if is_v4 { 40 } else { 60 };
        let most = connection.most_mss.map(|mss| usize::from(mss) + headers);
        listen.mtu = most.map_or(self.settings.mtu, |most| most.min(self.settings.mtu));
        listen.offer = connection.offer(listen.mtu, is_v4);
        listen.window = connection.receive.buffer_bytes;
        listen.requires_timestamps = connection.requires_timestamps;
        (listen, connection)
    }

    /// Takes the connection of a listener that has waited longest.
    pub fn tcp_accept(&mut self, now: Instant, id: TcpListenerId) -> Option<(TcpId, SocketAddr)> {
        self.tcp_at(now);
        let listening = self.tcp.listeners.get_mut(id.0)?;
        let accepted = listening.listener.accept();
        listening.attended = Some(now);
        // SYNs may have waited for the room that is there now.
        self.mark_listener_busy(id.0);
        let accepted = accepted?;
        let endpoint = self.tcp.connections.get_mut(accepted)?;
        endpoint.listener = None;
        let (address, port) = endpoint.connection.flow().remote;
        Some((TcpId(accepted), SocketAddr::new(address, port)))
    }

    /// Asks that [`tcp_next_woken`](Self::tcp_next_woken) names the listener when a connection can be accepted. Returns
    /// false, and asks for nothing, if one waits already or the listener is closed.
    pub fn tcp_wait_accept(&mut self, id: TcpListenerId) -> bool {
        let Some(listening) = self.tcp.listeners.get_mut(id.0) else {
            return false;
        };
        listening.waits = listening.listener.waiting() == 0;
        let waits = listening.waits;
        // SYNs may have waited for the owner.
        self.mark_listener_busy(id.0);
        waits
    }

    /// Closes a listener. Half-open connections are forgotten, and those that were not accepted are reset.
    pub fn tcp_close_listener(&mut self, now: Instant, id: TcpListenerId) {
        self.tcp_at(now);
        let Some(mut listening) = self.tcp.listeners.remove(id.0) else {
            return;
        };
        self.table.unbind(Transport::Tcp, listening.local);
        let Listening {
            syns,
            proven_syns,
            handshakes,
            ..
        } = &mut listening;
        for channel in [syns, proven_syns, handshakes] {
            while channel.pop().is_some() {
                self.drops.count(DropReason::Closed);
            }
        }
        while let Some(connection) = listening.listener.accept() {
            if let Some(endpoint) = self.tcp.connections.get_mut(connection) {
                endpoint.listener = None;
            }
            self.tcp_abort(now, TcpId(connection));
        }
        let stats = listening.listener.stats();
        self.tcp.tally.closed_listeners.add(stats);
        listening
            .listener
            .close(&mut self.tcp.shared)
            .for_each(drop);
    }

    /// The address and port of a listener. `None` if it is closed.
    pub fn tcp_listener_local(&self, id: TcpListenerId) -> Option<SocketAddr> {
        let (address, port) = self.tcp.listeners.get(id.0)?.local;
        Some(SocketAddr::new(address, port))
    }

    /// The counts of a listener's events. `None` if it is closed.
    pub fn tcp_listener_stats(&self, id: TcpListenerId) -> Option<&ListenStats> {
        Some(self.tcp.listeners.get(id.0)?.listener.stats())
    }

    /// The SYNs that a listener has room for, where that is little, such as while its owner does not accept. A network
    /// interface that demultiplexes discards further ones. Only [`process`](Self::process) makes room, so ask again
    /// after each call of it.
    pub fn tcp_syn_room(&self, id: TcpListenerId) -> SynRoom {
        let Some(listening) = self.tcp.listeners.get(id.0) else {
            return SynRoom::default();
        };
        SynRoom {
            of_proven: scarce_room(match listening.listener.needs_cookies(&self.tcp.shared) {
                true => &listening.proven_syns,
                false => &listening.syns,
            }),
            of_others: scarce_room(&listening.syns),
        }
    }

    /// Whether an eager demultiplexer discards a segment to a listener, which would have to wait.
    pub(super) fn listener_discards(
        &mut self,
        now: Instant,
        id: SlotId,
        frame: &Arrived<B>,
    ) -> bool {
        let Some(listening) = self.tcp.listeners.get_mut(id) else {
            return false;
        };
        let bytes = frame.memory.bytes();
        if !is_syn(bytes) {
            return listening.listener.is_full();
        }
        let is_proven = is_proven(&self.tcp.proven, bytes);
        if listening.admits_syn(&self.tcp.shared, now, is_proven) {
            return false;
        }
        // Else the owner is behind, or away.
        let is_limited = !listening.listener.is_full() && listening.is_attended(now);
        self.tcp.tally.counts.cookies_withheld += u64::from(is_limited);
        true
    }

    /// Takes the next change of the peers whose SYNs go before those of others
    /// ([`SharedSettings::proven_peers`](crate::tcp::listen::SharedSettings::proven_peers)), for a program on the
    /// network interface that demultiplexes: there are none but with [`Architecture::NiLrp`]. While 1024 changes have
    /// not been taken, no other peer is proven.
    pub fn tcp_next_peer_change(&mut self) -> Option<PeerChange> {
        self.tcp.proven_changes.pop_front()
    }

    /// Puts a segment into one of the channels of a listener.
    pub(super) fn listener_enqueue(&mut self, id: SlotId, frame: Arrived<B>) {
        let Some(listening) = self.tcp.listeners.get_mut(id) else {
            self.drops.count(DropReason::Closed);
            return;
        };
        let bytes = frame.memory.bytes();
        let cookies = &listening.cookies;
        let (channel, is_withheld) = if !is_syn(bytes) {
            (&mut listening.handshakes, false)
        } else if listening.listener.needs_cookies(&self.tcp.shared)
            && is_proven(&self.tcp.proven, bytes)
        {
            (&mut listening.proven_syns, cookies.proven_wait)
        } else {
            (&mut listening.syns, cookies.others_wait)
        };
        self.tcp.tally.counts.cookies_withheld += u64::from(is_withheld);
        let bytes = bytes.len();
        if channel.push(frame, bytes).is_err() {
            self.drops.count(DropReason::ChannelFull);
            self.tcp.tally.counts.handshakes_discarded += 1;
        }
        self.mark_listener_busy(id);
    }

    fn mark_listener_busy(&mut self, id: SlotId) {
        let (shared, now) = (&self.tcp.shared, self.tcp.latest);
        let listening = self.tcp.listeners.get_mut(id);
        let Some(listening) = listening.filter(|listening| !listening.is_busy) else {
            return;
        };
        if listening.has_work(shared, now) {
            listening.is_busy = true;
            self.tcp.busy.push_back(id);
        } else {
            self.await_cookie(id);
        }
    }

    /// Notes whether SYNs wait for cookies, and sets the timer of listeners for them.
    fn await_cookie(&mut self, id: SlotId) {
        let Some(listening) = self.tcp.listeners.get_mut(id) else {
            return;
        };
        // The listener has no work, so SYNs that wait have found no cookie.
        let next = listening.next_cookie(self.tcp.latest);
        let wait = |syns: &Channel<_>| next.is_some() && !syns.is_empty();
        listening.cookies.proven_wait = wait(&listening.proven_syns);
        listening.cookies.others_wait = wait(&listening.syns);
        if let Some(next) = next {
            self.tcp.listeners_due = self.tcp.listeners_due.and(Window {
                earliest: next,
                latest: next,
            });
        }
    }

    /// Processes one segment of the next listener that has some. Handshakes go before new SYNs, so that a flood of SYNs
    /// does not hold them up.
    pub(super) fn listeners_process_one(&mut self, now: Instant) -> bool {
        // The time by which they were listed.
        let latest = self.tcp.latest;
        while let Some(id) = self.tcp.busy.pop_front() {
            let Some(listening) = self.tcp.listeners.get_mut(id) else {
                continue;
            };
            listening.is_busy = false;
            let handshake = listening.handshakes.pop();
            let frame = handshake.or_else(|| listening.pop_syn(&self.tcp.shared, latest));
            let Some(frame) = frame else {
                // Another listener has taken the last place for half-open connections.
                self.await_cookie(id);
                continue;
            };
            self.listener_on_frame(now, id, frame);
            self.mark_listener_busy(id);
            return true;
        }
        false
    }

    /// Processes a segment to a listener.
    pub(super) fn listener_on_frame(&mut self, now: Instant, id: SlotId, frame: Arrived<B>) {
        let parsed = match Parsed::of(&frame) {
            Ok(parsed) => parsed,
            Err(reason) => return self.drops.count(reason),
        };
        let checked = check_source(&self.routes, parsed.flow.remote.0, frame.is_own);
        if let Err(reason) = checked {
            return self.drops.count(reason);
        }
        // The connection may have come to be while the segment waited.
        if let Some(connection) = self.table.find_connected(&parsed.flow) {
            self.tcp_on_parsed(now, connection, &parsed, frame);
            return self.tcp_settle(now, connection);
        }
        let Some(listening) = self.tcp.listeners.get_mut(id) else {
            return self.drops.count(DropReason::Closed);
        };
        listening.attended.get_or_insert(now);
        let segment = parsed.segment(frame.memory.bytes());
        let shared = &mut self.tcp.shared;
        let listener = &mut listening.listener;
        let outcome = listener.on_segment(shared, now, frame.at, parsed.flow, &segment);
        self.on_outcome(now, id, outcome, &parsed, frame);
    }

    /// Processes a segment to a connection in TIME-WAIT.
    pub(super) fn time_wait_on_frame(&mut self, now: Instant, frame: Arrived<B>) {
        let parsed = match Parsed::of(&frame) {
            Ok(parsed) => parsed,
            Err(reason) => return self.drops.count(reason),
        };
        let flow = parsed.flow;
        let listener = self.table.find_bound(&flow);
        let segment = parsed.segment(frame.memory.bytes());
        let tcp = &mut self.tcp;
        let listening = listener.and_then(|id| tcp.listeners.get(id));
        let may_open = listening.filter(|listening| !listening.listener.is_full());
        let offer = may_open.map(|listening| &listening.offer);
        let outcome = tcp
            .time_wait
            .on_segment(&mut tcp.shared, now, flow, &segment, offer);
        match outcome {
            TimeWaitOutcome::Reply(reply) => self.tcp_reply(now, &reply),
            TimeWaitOutcome::Refused(reply, reason) => {
                self.drops.count(reason);
                self.tcp_reply(now, &reply);
            }
            TimeWaitOutcome::Reuse { previous } => {
                let Some(id) = listener else {
                    return;
                };
                let Some(listening) = self.tcp.listeners.get_mut(id) else {
                    return;
                };
                let shared = &mut self.tcp.shared;
                let listener = &mut listening.listener;
                let outcome = listener.on_syn(shared, now, flow, &segment, Some(previous));
                self.on_outcome(now, id, outcome, &parsed, frame);
            }
            TimeWaitOutcome::Done => {}
            TimeWaitOutcome::Dropped(reason) => self.drops.count(reason),
            // Its time ended while the segment waited.
            TimeWaitOutcome::Unknown => self.demultiplex(now, frame),
        }
    }

    fn on_outcome(
        &mut self,
        now: Instant,
        id: SlotId,
        outcome: Outcome,
        parsed: &Parsed,
        frame: Arrived<B>,
    ) {
        let listening = self.tcp.listeners.get(id);
        let service = listening.map(|listening| listening.connection.service());
        let service = service.unwrap_or_default();
        match outcome {
            Outcome::Reply(reply) => self.tcp_reply(now, &reply.with_service(service)),
            Outcome::Refused(reply, reason) => {
                self.drops.count(reason);
                self.tcp_refuse(now, &reply.with_service(service));
            }
            Outcome::Completed(handshake) => {
                self.on_handshake(now, id, &handshake, parsed, frame);
            }
            Outcome::Reset => {}
            Outcome::Dropped(reason) => self.drops.count(reason),
        }
        self.note_listener_timeout(id);
    }

    /// Makes a connection of a handshake that is complete, and gives it the segment that completed it.
    fn on_handshake(
        &mut self,
        now: Instant,
        id: SlotId,
        handshake: &Handshake,
        parsed: &Parsed,
        frame: Arrived<B>,
    ) {
        let mtu = self.mtu_of(now, handshake.flow.remote.0);
        let is_full = self.tcp.connections.len() >= self.settings.tcp.most_connections;
        let Some(listening) = self.tcp.listeners.get_mut(id).filter(|_| !is_full) else {
            self.drops.count(DropReason::TcpMemory);
            // The listener has forgotten the handshake, and the peer believes that it is complete.
            let segment = parsed.segment(frame.memory.bytes());
            if let Some(reset) = Reply::reset(handshake.flow, &segment) {
                self.tcp_refuse(now, &reset);
            }
            return;
        };
        let settings = listening.connection.clone();
        let connection = Connection::accepted(now, handshake, settings, mtu);
        self.tcp.tally.add(connection.state());
        let mut endpoint = TcpEndpoint::new(connection);
        endpoint.listener = Some(id);
        let connection = self.tcp.connections.insert(endpoint);
        // A complete handshake implies room in the queue; the flow is free, since it was looked up.
        let is_connected = self.table.connect(handshake.flow, connection).is_ok();
        if !is_connected || listening.listener.push(connection).is_err() {
            self.table.disconnect(&handshake.flow);
            self.tcp_remove(connection);
            return self.drops.count(DropReason::TcpAcceptQueueFull);
        }
        self.tcp.tally.counts.accepted += 1;
        if core::mem::take(&mut listening.waits) {
            listening.attended = Some(now);
            let woken = TcpWoken::Listener(TcpListenerId(id));
            self.tcp.woken.push_back(woken);
        }
        self.prove(now, handshake.flow.remote.0);
        self.tcp_on_parsed(now, connection, parsed, frame);
        self.tcp_settle(now, connection);
    }

    /// Notes that a peer has completed a handshake.
    fn prove(&mut self, now: Instant, peer: IpAddr) {
        let changes = &mut self.tcp.proven_changes;
        // The caller must learn of each change.
        if changes.len() < MOST_CHANGES
            && let Some(change) = self.tcp.proven.insert(now, peer)
            && self.settings.architecture == Architecture::NiLrp
        {
            changes.push_back(change);
        }
    }

    /// Sends a segment that answers one without connection. Resets are limited.
    pub(in crate::stack) fn tcp_refuse(&mut self, now: Instant, reply: &Reply) {
        let is_reset = reply.header.flags.contains(Flags::RST);
        if !is_reset || self.tcp.reset_rate.take(now) {
            self.tcp_reply(now, reply);
        }
    }

    /// Ends the handshake of a flow about whose SYN-ACK, with this sequence number, a hard ICMP error has come, as such
    /// an error ends an attempt to connect. Returns whether there was one.
    pub(super) fn listener_on_hard_error(&mut self, flow: &Flow, sequence: Seq) -> bool {
        let Some(id) = self.table.find_bound(flow) else {
            return false;
        };
        let Some(listening) = self.tcp.listeners.get_mut(id) else {
            return false;
        };
        let shared = &mut self.tcp.shared;
        let has_ended = listening.connection.hard_errors_abort
            && listening.listener.on_unreachable(shared, flow, sequence);
        if has_ended {
            // SYNs may have waited for its place.
            self.mark_listener_busy(id);
        }
        has_ended
    }

    fn note_listener_timeout(&mut self, id: SlotId) {
        if let Some(listening) = self.tcp.listeners.get(id)
            && let Some(due) = listening.listener.next_timeout()
        {
            let latest = due + listening.listener.slack();
            self.tcp.listeners_due = self.tcp.listeners_due.and(Window {
                earliest: due,
                latest,
            });
        }
    }

    /// Sends the SYN-ACKs again that are due.
    pub(super) fn listeners_on_timer(&mut self, now: Instant) {
        self.tcp.listeners_due = Window::NEVER;
        for id in self.tcp.listeners.ids() {
            while let Some(listening) = self.tcp.listeners.get_mut(id)
                && let Some(reply) = listening.listener.on_timer(&mut self.tcp.shared, now)
            {
                let service = listening.connection.service();
                self.tcp_reply(now, &reply.with_service(service));
            }
            // SYNs may have waited for the places of handshakes that are given up.
            self.mark_listener_busy(id);
            self.note_listener_timeout(id);
        }
    }
}

/// Whether a frame is of a peer that has completed a handshake.
fn is_proven(peers: &ProvenPeers, frame: &[u8]) -> bool {
    source_of(frame).is_some_and(|source| peers.contains(source))
}

/// The packets that a channel has room for, if it is more than half full.
fn scarce_room<T>(channel: &Channel<T>) -> Option<usize> {
    let most = channel.limits().packets;
    let room = match channel.has_room(1) {
        true => most - channel.len(),
        false => 0,
    };
    (room < most.div_ceil(2)).then_some(room)
}

/// The limits on the cookies of a listener, each with the same rate.
struct Cookies {
    to_proven: TokenBucket,
    to_others: TokenBucket,
    /// Whether SYNs of proven peers waited for cookies when the listener last had no work, and those of others.
    proven_wait: bool,
    others_wait: bool,
}

impl Cookies {
    fn new(per_second: u32) -> Self {
        let bucket = TokenBucket::new(per_second.max(1), (per_second / COOKIE_BURSTS).max(1));
        Self {
            to_proven: bucket.clone(),
            to_others: bucket,
            proven_wait: false,
            others_wait: false,
        }
    }

    const fn of(&self, is_proven: bool) -> &TokenBucket {
        match is_proven {
            true => &self.to_proven,
            false => &self.to_others,
        }
    }

    const fn of_mut(&mut self, is_proven: bool) -> &mut TokenBucket {
        match is_proven {
            true => &mut self.to_proven,
            false => &mut self.to_others,
        }
    }
}

/// The least time between two looks at SYNs that wait for cookies, so that one wake-up serves several of them.
const COOKIE_PAUSE: Duration = Duration::from_millis(1);

/// The most changes of proven peers that wait for the caller. Meanwhile no other peer is proven.
const MOST_CHANGES: usize = 1024;

/// The bursts of cookies in a second: after a pause, a listener may send those of 10 ms at once.
const COOKIE_BURSTS: u32 = 100;

/// Whether a frame is a SYN that opens a connection.
fn is_syn(frame: &[u8]) -> bool {
    let flags = Glance::of(frame).map(|glance| glance.flags);
    flags.is_some_and(|flags| {
        flags.contains(Flags::SYN) && !flags.intersects(Flags::ACK | Flags::RST)
    })
}
