//! The calls of the owners of connections.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;

use softclock_core::Instant;

use super::{Interest, Listed, Owner, TcpEndpoint, TcpError, TcpId, TcpWoken};
use crate::demux::{Flow, Transport};
use crate::ports::DynamicPorts;
use crate::routes::Destination;
use crate::stack::slots::SlotId;
use crate::stack::{BindError, Stack};
use crate::tcp::connection::{Connection, Error};
use crate::tcp::payload::Payload;
use crate::tcp::settings::Settings;
use crate::tcp::state::State;
use crate::tcp::stats::ConnectionStats;
use crate::tcp::time_wait::TimeWaitSettings;

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Opens a connection. Its first segment is among the next frames; it is established when it gets writable.
    ///
    /// `local` may leave address and port open: an unspecified address stands for that of the route, port 0 for a port
    /// that others cannot foresee (RFC 6056, 3.3.3). `settings` are those of the stack unless given.
    ///
    /// ```
    /// use softclock_core::Instant;
    /// use softclock_net::checksum::Verify;
    /// use softclock_net::demux::HashKey;
    /// use softclock_net::link::LinkAddress;
    /// use softclock_net::routes::Routes;
    /// use softclock_net::stack::{Settings, Stack, TcpListenSettings};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let stack = |address: &str, link: u8| -> Result<Stack<Vec<u8>>, Box<dyn std::error::Error>> {
    ///     let routes = Routes::new(vec![address.parse()?], vec![])?;
    ///     let settings = Settings::new(LinkAddress([2, 0, 0, 0, 0, link]), 1500);
    ///     Ok(Stack::new(settings, routes, HashKey([1, 2])))
    /// };
    /// let (mut client, mut server) = (stack("10.0.0.1/24", 1)?, stack("10.0.0.2/24", 2)?);
    /// let now = Instant::from_ns(1_000_000_000);
    /// let address = "10.0.0.2:80".parse()?;
    /// let listener = server.tcp_listen(address, TcpListenSettings::default())?;
    /// let ours = client.tcp_connect(now, None, address, None)?;
    ///
    /// let exchange = |client: &mut Stack<Vec<u8>>, server: &mut Stack<Vec<u8>>| {
    ///     for _ in 0..5 {
    ///         while let Some(frame) = client.next_frame() {
    ///             server.on_frame(now, now, frame, Verify::Yes);
    ///         }
    ///         server.process(now, 10);
    ///         while let Some(frame) = server.next_frame() {
    ///             client.on_frame(now, now, frame, Verify::Yes);
    ///         }
    ///         client.process(now, 10);
    ///     }
    /// };
    /// exchange(&mut client, &mut server);
    /// let (theirs, _) = server.tcp_accept(now, listener).expect("the handshake is complete");
    /// client.tcp_write(now, ours, b"hello".as_slice().into())?;
    /// exchange(&mut client, &mut server);
    /// let mut bytes = [0; 100];
    /// assert_eq!(server.tcp_read(now, theirs, &mut bytes)?, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BindError`]: [`InUse`](BindError::InUse) if the same two ports are connected, or no port is free;
    /// [`Remote`](BindError::Remote) also for the address of a group, or of all hosts (RFC 9293, 3.9.2.3).
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        settings: Option<Settings>,
    ) -> Result<TcpId, BindError> {
        self.tcp_at(now);
        let address = remote.ip();
        let is_to_all = self.routes.classify(address) == Destination::Broadcast;
        if remote.port() == 0 || address.is_unspecified() || address.is_multicast() || is_to_all {
            return Err(BindError::Remote);
        }
        if self.tcp.connections.len() >= self.settings.tcp.most_connections {
            return Err(BindError::TooMany);
        }
        let source = match local.map(|local| local.ip()) {
            Some(local) if !local.is_unspecified() => local,
            _ => self.routes.source_for(address).ok_or(BindError::NoRoute)?,
        };
        if source.is_ipv4() != address.is_ipv4() {
            return Err(BindError::Remote);
        }
        if !self.is_own(source) {
            return Err(BindError::NotOurAddress);
        }
        let flow = |port| Flow {
            transport: Transport::Tcp,
            remote: (address, remote.port()),
            local: (source, port),
        };
        let settings = self.tcp.with_common_clock(settings);
        if let Some(port) = local.map(|local| local.port()).filter(|&port| port != 0) {
            return self.tcp_open(now, flow(port), settings);
        }
        // RFC 6056, 3.3.3: a place that depends on the peer, and from there on upwards.
        let place = self.tcp.shared.secrets().timestamp_offset(&flow(0));
        let mut ports = DynamicPorts::new(place.wrapping_add(self.tcp.ports_given).into());
        let free = ports.find(|port| {
            self.tcp.ports_given = self.tcp.ports_given.wrapping_add(1);
            let flow = flow(port);
            let is_taken = self.is_named_elsewhere(&flow)
                || self.table.find(&flow).is_some()
                || self.tcp.time_wait.contains(&flow);
            (!is_taken).then_some(flow)
        });
        self.tcp_open(now, free.ok_or(BindError::InUse)?, settings)
    }

    fn tcp_open(
        &mut self,
        now: Instant,
        flow: Flow,
        settings: Arc<Settings>,
    ) -> Result<TcpId, BindError> {
        if self.is_named_elsewhere(&flow) {
            // Its segments would go to another stack.
            return Err(BindError::InUse);
        }
        let secrets = self.tcp.shared.secrets();
        let iss = secrets.initial_sequence(&flow, now);
        let offset = secrets.timestamp_offset(&flow);
        if self.tcp.time_wait.contains(&flow) {
            return Err(BindError::InUse);
        }
        let mtu = self.mtu_of(now, flow.remote.0);
        let connection = Connection::connect(now, flow, settings, (iss, offset), mtu);
        let state = connection.state();
        let endpoint = TcpEndpoint::new(connection);
        let id = self.tcp.connections.insert(endpoint);
        if self.table.connect(flow, id).is_err() {
            self.tcp.connections.remove(id);
            return Err(BindError::InUse);
        }
        self.tcp.tally.add(state);
        self.tcp.tally.counts.opened += 1;
        self.tcp.mark_ready(id);
        Ok(TcpId(id))
    }

    /// Whether segments wait in the connection's channel, so that [`tcp_process`](Self::tcp_process) has work.
    pub fn tcp_has_arrived(&self, id: TcpId) -> bool {
        let endpoint = self.tcp.connections.get(id.0);
        endpoint.is_some_and(|endpoint| !endpoint.channel.is_empty())
    }

    /// Does the protocol's work for the segments that wait in the connection's channel. The calls that read, write and
    /// wait do it, too.
    pub fn tcp_process(&mut self, now: Instant, id: TcpId) {
        self.tcp_at(now);
        if self.tcp_has_arrived(id) {
            self.tcp_drain(now, id.0);
        }
    }

    /// Moves bytes that have arrived to `into`, and returns their number: 0 if the peer has closed its half and all its
    /// bytes were read, or if `into` is empty.
    ///
    /// # Errors
    /// [`TcpError`].
    pub fn tcp_read(
        &mut self,
        now: Instant,
        id: TcpId,
        into: &mut [u8],
    ) -> Result<usize, TcpError> {
        self.tcp_copy_by(now, id, into, Connection::read)
    }

    /// Reads the bytes of the first segment that has arrived, in the memory of its packet unless they were copied.
    /// `None`: the peer has closed its half.
    ///
    /// # Errors
    /// [`TcpError`].
    pub fn tcp_take(&mut self, now: Instant, id: TcpId) -> Result<Option<Payload<B>>, TcpError> {
        self.tcp_read_by(now, id, Connection::take)
    }

    /// Copies bytes that have arrived to `into`, without reading them.
    ///
    /// # Errors
    /// [`TcpError`].
    pub fn tcp_peek(
        &mut self,
        now: Instant,
        id: TcpId,
        into: &mut [u8],
    ) -> Result<usize, TcpError> {
        self.tcp_copy_by(now, id, into, |connection, into| connection.peek(into))
    }

    /// Copies bytes that have arrived by `copy`, which returns their number.
    fn tcp_copy_by(
        &mut self,
        now: Instant,
        id: TcpId,
        into: &mut [u8],
        copy: impl FnOnce(&mut Connection<B>, &mut [u8]) -> usize,
    ) -> Result<usize, TcpError> {
        let copied = self.tcp_read_by(now, id, |connection| {
            let bytes = copy(connection, into);
            (bytes > 0 || into.is_empty()).then_some(bytes)
        })?;
        Ok(copied.unwrap_or(0))
    }

    fn tcp_read_by<R>(
        &mut self,
        now: Instant,
        id: TcpId,
        read: impl FnOnce(&mut Connection<B>) -> Option<R>,
    ) -> Result<Option<R>, TcpError> {
        self.tcp_process(now, id);
        let endpoint = self.tcp.connections.get_mut(id.0);
        let connection = &mut endpoint.ok_or(TcpError::Closed)?.connection;
        if let Some(read) = read(connection) {
            // The window may be worth an update.
            self.tcp.mark_ready(id.0);
            self.tcp.account(id.0);
            return Ok(Some(read));
        }
        if let Some(error) = connection.take_error() {
            return Err(TcpError::Failed(error));
        }
        match connection.is_at_end() {
            true => Ok(None),
            false => Err(TcpError::WouldBlock),
        }
    }

    /// Ends the owner's part. The connection sends what is left, and is reset instead if bytes were not read, or if too
    /// many connections have no owner. `id` is not valid any more.
    pub fn tcp_close(&mut self, now: Instant, id: TcpId) {
        self.tcp_process(now, id);
        let is_full = self.tcp.orphans >= self.settings.tcp.most_orphans;
        let endpoint = self.tcp.connections.get(id.0);
        let has_unread = endpoint.is_some_and(|endpoint| endpoint.connection.readable() > 0);
        self.tcp.tally.counts.orphans_reset += u64::from(is_full && endpoint.is_some());
        if is_full || has_unread {
            // The reset discards bytes that have not left, such as an error response that explains it.
            self.tcp_send_written(now, id.0);
        }
        self.tcp_leave(now, id.0, |connection| match is_full {
            true => connection.abort(),
            false => connection.close(now),
        });
    }

    /// Resets a connection. Bytes that were written before leave first, as far as the windows, pacing and the queue of
    /// frames allow, as if they had been sent by the call that wrote them. `id` is not valid afterwards.
    pub fn tcp_abort(&mut self, now: Instant, id: TcpId) {
        self.tcp_at(now);
        self.tcp_send_written(now, id.0);
        self.tcp_leave(now, id.0, Connection::abort);
    }

    fn tcp_leave(
        &mut self,
        now: Instant,
        id: SlotId,
        leave: impl FnOnce(&mut Connection<B>) -> crate::tcp::connection::Events,
    ) {
        let Some(endpoint) = self.tcp.connections.get_mut(id) else {
            return;
        };
        if endpoint.connection.is_orphan() {
            return;
        }
        endpoint.owner = Owner::Busy;
        if matches!(endpoint.connection.state(), State::Closed | State::TimeWait) {
            return self.tcp_remove(id);
        }
        self.tcp.orphans += 1;
        let events = self.tcp.tally.observe(&mut endpoint.connection, leave);
        endpoint.connection.set_orphan();
        if endpoint.connection.state() == State::Closed && !events.is_over {
            self.tcp.orphans -= 1;
            return self.tcp_remove(id);
        }
        self.tcp_apply(now, id, events);
        self.tcp_settle(now, id);
    }

    /// Asks that [`tcp_next_woken`](Self::tcp_next_woken) names the connection when it is ready for `interest`, besides
    /// what was asked for before. Returns false, and asks for nothing, if it is ready already, or closed. Processes
    /// what has arrived.
    ///
    /// A connection is also named once, unasked, when the peer has closed its half or the connection is over.
    pub fn tcp_wait(&mut self, now: Instant, id: TcpId, interest: Interest) -> bool {
        self.tcp_process(now, id);
        let is_ready = self.tcp.readiness(id.0).intersects(interest);
        let Some(endpoint) = self.tcp.connections.get_mut(id.0) else {
            return false;
        };
        let has_room = endpoint.connection.room() > 0;
        let is_starved = endpoint.listed.contains(Listed::STARVED);
        if !is_ready && interest.writable && has_room && !is_starved {
            endpoint.listed.insert(Listed::STARVED);
            self.tcp.starved.push_back(id.0);
        }
        if !is_ready && interest.writable {
            endpoint.connection.await_room();
        }
        if !is_ready {
            endpoint.owner = endpoint.owner.waiting_for(interest);
        }
        endpoint.channel.release(&mut self.tcp.spare);
        !is_ready
    }

    /// The next owner to wake. Each is named once for each call of [`tcp_wait`](Self::tcp_wait) or
    /// [`tcp_wait_accept`](Self::tcp_wait_accept) that returned true. Lazily, what has woken a reader is processed by
    /// its next call only.
    pub fn tcp_next_woken(&mut self) -> Option<TcpWoken> {
        while let Some(woken) = self.tcp.woken.pop_front() {
            let is_there = match woken {
                TcpWoken::Listener(id) => self.tcp.listeners.get(id.0).is_some(),
                TcpWoken::Connection(id) => match self.tcp.connections.get_mut(id.0) {
                    Some(endpoint) if endpoint.owner == Owner::Woken => {
                        endpoint.owner = Owner::Busy;
                        true
                    }
                    Some(_) | None => false,
                },
            };
            if is_there {
                return Some(woken);
            }
        }
        None
    }

    /// What a connection is ready for, by what was processed. A closed one is ready for nothing.
    pub fn tcp_readiness(&self, id: TcpId) -> Interest {
        self.tcp.readiness(id.0)
    }

    /// The state of a connection. `None` if it is closed and forgotten. Connections in TIME-WAIT whose owner is gone
    /// are forgotten, too: [`tcp_time_wait`](Self::tcp_time_wait) knows them by their flow.
    pub fn tcp_state(&self, id: TcpId) -> Option<State> {
        let connection = self.tcp_connection(id)?;
        let is_over = connection.state() == State::TimeWait
            && !self.tcp.time_wait.contains(connection.flow());
        match is_over {
            true => Some(State::Closed),
            false => Some(connection.state()),
        }
    }

    /// Whether a connection of a flow is in TIME-WAIT, and how many there are in all.
    pub fn tcp_time_wait(&self, flow: &Flow) -> (bool, usize) {
        (self.tcp.time_wait.contains(flow), self.tcp.time_wait.len())
    }

    /// Takes the error with which a connection has failed, once.
    pub fn tcp_take_error(&mut self, id: TcpId) -> Option<Error> {
        let endpoint = self.tcp.connections.get_mut(id.0)?;
        endpoint.connection.take_error()
    }

    /// The address and port of this end.
    pub fn tcp_local(&self, id: TcpId) -> Option<SocketAddr> {
        let (address, port) = self.tcp_connection(id)?.flow().local;
        Some(SocketAddr::new(address, port))
    }

    /// The address and port of the peer.
    pub fn tcp_remote(&self, id: TcpId) -> Option<SocketAddr> {
        let (address, port) = self.tcp_connection(id)?.flow().remote;
        Some(SocketAddr::new(address, port))
    }

    /// The connection itself, with its settings, counters and state.
    pub fn tcp_connection(&self, id: TcpId) -> Option<&Connection<B>> {
        Some(&self.tcp.connections.get(id.0)?.connection)
    }

    /// The counters of a connection, and the state of its congestion control.
    pub fn tcp_stats(&self, id: TcpId) -> Option<ConnectionStats> {
        Some(self.tcp_connection(id)?.stats())
    }

    /// Limits the rate at which a connection sends, in bytes a second; `None`: as congestion control allows.
    pub fn tcp_set_pace(&mut self, id: TcpId, bytes_per_second: Option<u64>) {
        if let Some(endpoint) = self.tcp.connections.get_mut(id.0) {
            endpoint.connection.set_pace(bytes_per_second);
            self.tcp.mark_ready(id.0);
        }
    }

    /// The bytes that were written and that the peer has not acknowledged.
    pub fn tcp_unacknowledged(&self, id: TcpId) -> usize {
        let connection = self.tcp_connection(id);
        connection.map_or(0, Connection::unacknowledged)
    }

    /// The bytes that were written and wait for the [stated rate](Self::tcp_set_pace); 0 while the next segment waits
    /// for the peer.
    pub fn tcp_held_back(&self, id: TcpId) -> usize {
        let connection = self.tcp_connection(id);
        connection.map_or(0, Connection::held_back)
    }

    /// Sets whether a short segment of a connection waits while another is in flight.
    pub fn tcp_set_nagle(&mut self, now: Instant, id: TcpId, has_nagle: bool) {
        self.tcp_at(now);
        if let Some(endpoint) = self.tcp.connections.get_mut(id.0) {
            endpoint.connection.set_nagle(has_nagle);
            self.tcp.mark_ready(id.0);
            self.tcp_settle(now, id.0);
        }
    }

    /// Changes the settings of a connection: see [`Connection::change_settings`].
    pub fn tcp_change(&mut self, now: Instant, id: TcpId, change: impl FnOnce(&mut Settings)) {
        self.tcp_at(now);
        if let Some(endpoint) = self.tcp.connections.get_mut(id.0) {
            endpoint.connection.change_settings(change);
            self.tcp.mark_ready(id.0);
            self.tcp_settle(now, id.0);
        }
    }

    /// Changes the settings of TIME-WAIT. Returns false, and changes nothing, if the time or the limit would change
    /// while connections wait.
    pub fn tcp_change_time_wait(&mut self, settings: TimeWaitSettings) -> bool {
        self.tcp.time_wait.change_settings(settings)
    }

    /// Forgets all connections in TIME-WAIT, without a segment. Those that have owners stay theirs.
    pub fn tcp_forget_time_wait(&mut self) {
        self.tcp.time_wait.clear();
    }

    /// The longest packet to a destination.
    pub(super) fn mtu_of(&self, now: Instant, destination: IpAddr) -> usize {
        let path = self.path_mtus.of(now, destination);
        path.map_or(self.settings.mtu, |path| path.min(self.settings.mtu))
    }

    /// The latest time that the caller has given.
    pub(in crate::stack) const fn tcp_latest(&self) -> Instant {
        self.tcp.latest
    }

    /// Notes the time that the caller gives.
    pub(in crate::stack) fn tcp_at(&mut self, now: Instant) {
        self.tcp.latest = self.tcp.latest.max(now);
    }
}
