//! The host of scripts over softclock's own stack.
//!
//! | file | contents |
//! |---|---|
//! | `link.rs` | the link to the router, which answers ARP and neighbor discovery |
//! | `change.rs` | settings and options of sockets |

mod change;
mod link;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use softclock_core::Instant;
use softclock_net::checksum::Verify;
use softclock_net::demux::HashKey;
use softclock_net::routes::{Prefix, Routes};
use softclock_net::stack::{BindError, Settings, Stack, TcpError, TcpId, TcpListenerId};
use softclock_net::tcp::connection::{Connection, Error};
use softclock_net::tcp::peer::mss_of_mtu;
use softclock_net::tcp::state::State as StackState;

use self::change::Chosen;
use self::link::FromHost;
use crate::errno::Errno;
use crate::host::{Host, Listed, Network, Refusal, SocketId, SocketOptions, State};
use crate::settings::Setting;

/// softclock's stack as the host of a script, with lazy processing.
pub struct StackHost {
    network: Network,
    chosen: Chosen,
    /// Created when the first socket or the first packet needs it, with the settings chosen until then.
    stack: Option<Stack<Vec<u8>>>,
    sockets: BTreeMap<SocketId, Socket>,
    next_socket: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Socket {
    Listener(Listener),
    Connection(TcpId),
}

/// A listener, and what its settings are made of.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Listener {
    id: TcpListenerId,
    local: SocketAddr,
    backlog: usize,
    options: SocketOptions,
}

impl StackHost {
    /// A host in a network, with the defaults of the stack.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] if the stack cannot have these addresses.
    pub fn new(network: &Network) -> Result<Self, Refusal> {
        routes(network)?;
        Ok(Self {
            network: network.clone(),
            chosen: Chosen::default(),
            stack: None,
            sockets: BTreeMap::new(),
            next_socket: 0,
        })
    }

    fn stack(&mut self) -> Result<&mut Stack<Vec<u8>>, Refusal> {
        if self.stack.is_none() {
            let mut settings = Settings::new(link::HOST, self.network.mtu);
            settings.tcp = self.chosen.stack_settings();
            // A constant key: a script always has the same sequence numbers and ports.
            self.stack = Some(Stack::new(
                settings,
                routes(&self.network)?,
                HashKey([1, 2]),
            ));
        }
        self.stack
            .as_mut()
            .ok_or_else(|| Refusal::Unsupported("no stack".to_owned()))
    }

    fn insert(&mut self, socket: Socket) -> SocketId {
        let id = SocketId(self.next_socket);
        self.next_socket += 1;
        self.sockets.insert(id, socket);
        id
    }

    fn connection(&self, id: SocketId) -> Option<TcpId> {
        match self.sockets.get(&id) {
            Some(Socket::Connection(id)) => Some(*id),
            _ => None,
        }
    }

    fn listeners(&self) -> Vec<Listener> {
        let listeners = self.sockets.values().filter_map(|socket| match socket {
            Socket::Listener(listener) => Some(listener.clone()),
            Socket::Connection(_) => None,
        });
        listeners.collect()
    }

    /// Gives a listener the settings that are chosen now.
    fn change_listener(&mut self, listener: &Listener) -> Result<(), Refusal> {
        let Listener {
            backlog, options, ..
        } = listener;
        let settings = self.chosen.listen_settings(*backlog, options)?;
        match self.stack()?.tcp_change_listener(listener.id, settings) {
            true => Ok(()),
            false => Err(Refusal::Unsupported(
                "changing what SYN-ACKs state after listen".to_owned(),
            )),
        }
    }

    /// The stack and the connection that a call is about.
    fn with(&mut self, id: SocketId) -> Result<(&mut Stack<Vec<u8>>, TcpId), Refusal> {
        let connection = self.connection(id).ok_or(Errno::EBADF)?;
        Ok((self.stack()?, connection))
    }
}

fn routes(network: &Network) -> Result<Routes, Refusal> {
    let own = Prefix {
        address: network.local,
        bits: network.prefix_bits,
    };
    Routes::new(vec![own], vec![network.gateway])
        .map_err(|error| Refusal::Unsupported(format!("addresses: {error}")))
}

impl Host for StackHost {
    fn set(&mut self, setting: &Setting) -> Result<(), Refusal> {
        let mut chosen = self.chosen.clone();
        chosen.set(setting)?;
        change::check(&chosen.stack_settings())?;
        self.chosen = chosen;
        let Some(stack) = &mut self.stack else {
            return Ok(());
        };
        if *setting == Setting::ForgetPaths {
            stack.forget_path_mtus();
        }
        if !stack.tcp_change_time_wait(self.chosen.stack_settings().time_wait) {
            return Err(Refusal::Unsupported(
                "changing the time of connections in TIME-WAIT".to_owned(),
            ));
        }
        for listener in self.listeners() {
            self.change_listener(&listener)?;
        }
        Ok(())
    }

    fn listen(
        &mut self,
        _now: Instant,
        local: SocketAddr,
        backlog: usize,
        options: &SocketOptions,
    ) -> Result<SocketId, Refusal> {
        let settings = self.chosen.listen_settings(backlog, options)?;
        let id = self.stack()?.tcp_listen(local, settings).map_err(refusal)?;
        Ok(self.insert(Socket::Listener(Listener {
            id,
            local,
            backlog,
            options: options.clone(),
        })))
    }

    fn accept(&mut self, now: Instant, listener: SocketId) -> Option<(SocketId, SocketAddr)> {
        let Some(Socket::Listener(listener)) = self.sockets.get(&listener) else {
            return None;
        };
        let (listener, pace) = (listener.id, listener.options.pacing_rate);
        let stack = self.stack().ok()?;
        let (id, remote) = stack.tcp_accept(now, listener)?;
        stack.tcp_set_pace(id, pace);
        Some((self.insert(Socket::Connection(id)), remote))
    }

    fn close_listener(&mut self, now: Instant, listener: SocketId) {
        if let Some(Socket::Listener(listener)) = self.sockets.remove(&listener)
            && let Ok(stack) = self.stack()
        {
            stack.tcp_close_listener(now, listener.id);
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> Result<SocketId, Refusal> {
        let settings = self.chosen.connection_settings(options)?;
        let stack = self.stack()?;
        let id = stack.tcp_connect(now, local, remote, Some(settings));
        let id = id.map_err(refusal)?;
        stack.tcp_set_pace(id, options.pacing_rate);
        Ok(self.insert(Socket::Connection(id)))
    }

    fn state(&self, connection: SocketId) -> State {
        let id = self.connection(connection);
        let state = id
            .zip(self.stack.as_ref())
            .and_then(|(id, stack)| stack.tcp_state(id));
        state.map_or(State::Closed, state_of)
    }

    fn take_error(&mut self, connection: SocketId) -> Option<Errno> {
        let (stack, id) = self.with(connection).ok()?;
        stack.tcp_take_error(id).map(errno_of)
    }

    fn readable(&mut self, now: Instant, connection: SocketId) -> Result<usize, Refusal> {
        let (stack, id) = self.with(connection)?;
        stack.tcp_process(now, id);
        match readable(stack, id) {
            0 => stack.tcp_peek(now, id, &mut [0]).map_err(failure),
            bytes => Ok(bytes),
        }
    }

    fn read(
        &mut self,
        now: Instant,
        connection: SocketId,
        most: usize,
    ) -> Result<Vec<u8>, Refusal> {
        let (stack, id) = self.with(connection)?;
        let mut bytes = room(stack, now, id, most);
        let read = stack.tcp_read(now, id, &mut bytes).map_err(failure)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn peek(
        &mut self,
        now: Instant,
        connection: SocketId,
        most: usize,
    ) -> Result<Vec<u8>, Refusal> {
        let (stack, id) = self.with(connection)?;
        let mut bytes = room(stack, now, id, most);
        let copied = stack.tcp_peek(now, id, &mut bytes).map_err(failure)?;
        bytes.truncate(copied);
        Ok(bytes)
    }

    fn write(
        &mut self,
        now: Instant,
        connection: SocketId,
        bytes: &[u8],
    ) -> Result<usize, Refusal> {
        let (stack, id) = self.with(connection)?;
        let bytes = Bytes::copy_from_slice(bytes);
        stack.tcp_write(now, id, bytes).map_err(failure)
    }

    fn shutdown_write(&mut self, now: Instant, connection: SocketId) -> Result<(), Refusal> {
        let (stack, id) = self.with(connection)?;
        stack.tcp_shutdown_write(now, id).map_err(failure)
    }

    fn close(&mut self, now: Instant, connection: SocketId) {
        if let Ok((stack, id)) = self.with(connection) {
            stack.tcp_close(now, id);
        }
        self.sockets.remove(&connection);
    }

    fn change(
        &mut self,
        now: Instant,
        socket: SocketId,
        options: &SocketOptions,
    ) -> Result<(), Refusal> {
        if let Some(Socket::Listener(listener)) = self.sockets.get(&socket) {
            let mut listener = listener.clone();
            listener.options.update(options);
            self.change_listener(&listener)?;
            self.sockets.insert(socket, Socket::Listener(listener));
            return Ok(());
        }
        let (stack, id) = self.with(socket)?;
        let mut result = Ok(());
        stack.tcp_change(now, id, |settings| {
            result = change::apply_to_connection(settings, options);
        });
        result?;
        if let Some(is_on) = options.no_delay {
            stack.tcp_set_nagle(now, id, !is_on);
        }
        if options.pacing_rate.is_some() {
            stack.tcp_set_pace(id, options.pacing_rate);
        }
        Ok(())
    }

    fn options(&self, socket: SocketId) -> SocketOptions {
        if let Some(Socket::Listener(listener)) = self.sockets.get(&socket) {
            let settings = self.chosen.connection_settings(&listener.options);
            return settings.map_or_else(|_| SocketOptions::default(), |it| change::options(&it));
        }
        let id = self.connection(socket);
        let connection = id
            .zip(self.stack.as_ref())
            .and_then(|(id, stack)| stack.tcp_connection(id));
        connection.map_or_else(SocketOptions::default, |connection| SocketOptions {
            receive_buffer: Some(self.receive_buffer(connection)),
            no_delay: Some(!connection.has_nagle()),
            ..change::options(connection.settings())
        })
    }

    fn connections(&self) -> Vec<Listed> {
        let Some(stack) = &self.stack else {
            return Vec::new();
        };
        let mut rows = Vec::new();
        for (&id, socket) in &self.sockets {
            let Socket::Connection(connection) = *socket else {
                continue;
            };
            let ends = stack
                .tcp_local(connection)
                .zip(stack.tcp_remote(connection));
            if let Some((ends, state)) = ends.zip(stack.tcp_state(connection)) {
                rows.push(Listed {
                    id: Some(id),
                    local: ends.0,
                    remote: ends.1,
                    state: state_of(state),
                });
            }
        }
        self.list_others(stack, &mut rows);
        rows
    }

    fn drop_all(&mut self, now: Instant, state: State) -> Result<(), Refusal> {
        // A connection in TIME-WAIT is forgotten without a segment; one in another state would be reset.
        if state != State::TimeWait {
            return Err(Refusal::Unsupported(
                "dropping connections by their state".to_owned(),
            ));
        }
        let ids: Vec<SocketId> = self.sockets.keys().copied().collect();
        for socket in ids {
            if self.state(socket) == state
                && let Ok((stack, id)) = self.with(socket)
            {
                stack.tcp_abort(now, id);
            }
        }
        self.stack()?.tcp_forget_time_wait();
        Ok(())
    }

    fn on_packet(&mut self, now: Instant, packet: &[u8]) {
        let frame = link::to_host(packet);
        if let Ok(stack) = self.stack() {
            stack.on_frame(now, now, frame, Verify::Yes);
            while stack.process(now, QUOTA) > 0 {}
        }
    }

    fn visit(&mut self, now: Instant) {
        let ids: Vec<SocketId> = self.sockets.keys().copied().collect();
        for id in ids {
            if let Ok((stack, id)) = self.with(id) {
                stack.tcp_process(now, id);
            }
        }
    }

    fn next_packet(&mut self, now: Instant) -> Option<Vec<u8>> {
        let stack = self.stack.as_mut()?;
        loop {
            match link::from_host(&stack.next_frame()?) {
                FromHost::Packet(packet) => return Some(packet),
                FromHost::Question(answer) => {
                    stack.on_frame(now, now, answer, Verify::Yes);
                    while stack.process(now, QUOTA) > 0 {}
                }
                FromHost::Other => {}
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.stack.as_ref()?.next_timeout()
    }

    fn on_timer(&mut self, now: Instant) {
        if let Some(stack) = &mut self.stack {
            stack.on_timer(now);
            while stack.process(now, QUOTA) > 0 {}
        }
    }
}

impl StackHost {
    fn receive_buffer(&self, connection: &Connection<Vec<u8>>) -> u32 {
        let bytes = connection.receive_buffer();
        match connection.state() {
            // The buffer is made when the connection is established: whole segments, as the peer's SYN was.
            StackState::SynReceived => {
                let is_v4 = self.network.local.is_ipv4();
                bytes.next_multiple_of(mss_of_mtu(self.network.mtu, is_v4).max(1).into())
            }
            _ => bytes,
        }
    }

    /// Lists connections without a socket: half-open ones, those in TIME-WAIT, and those whose owner is gone. The stack
    /// counts them by state only; their addresses are those of the listener.
    fn list_others(&self, stack: &Stack<Vec<u8>>, rows: &mut Vec<Listed>) {
        let local = self.listeners().first().map(|listener| listener.local);
        let local = local.unwrap_or(SocketAddr::new(self.network.local, 0));
        for (state, count) in stack.tcp_states() {
            let state = state_of(state);
            let owned = rows.iter().filter(|row| row.state == state).count();
            let other = Listed {
                id: None,
                local,
                remote: SocketAddr::new(self.network.remote, 0),
                state,
            };
            rows.extend(std::iter::repeat_n(other, count.saturating_sub(owned)));
        }
    }
}

fn readable(stack: &Stack<Vec<u8>>, id: TcpId) -> usize {
    let connection = stack.tcp_connection(id);
    connection.map_or(0, Connection::readable)
}

/// Room for the bytes of a call that takes `most`: no more than there are, but at least one, so that the call can say
/// that there is none.
fn room(stack: &mut Stack<Vec<u8>>, now: Instant, id: TcpId, most: usize) -> Vec<u8> {
    stack.tcp_process(now, id);
    vec![0; most.min(readable(stack, id).max(1))]
}

fn state_of(state: StackState) -> State {
    match state {
        StackState::SynSent => State::SynSent,
        StackState::SynReceived => State::SynReceived,
        StackState::Established => State::Established,
        StackState::FinWait1 => State::FinWait1,
        StackState::FinWait2 => State::FinWait2,
        StackState::CloseWait => State::CloseWait,
        StackState::Closing => State::Closing,
        StackState::LastAck => State::LastAck,
        StackState::TimeWait => State::TimeWait,
        StackState::Closed => State::Closed,
    }
}

fn errno_of(error: Error) -> Errno {
    match error {
        Error::Refused => Errno::ECONNREFUSED,
        Error::Reset => Errno::ECONNRESET,
        Error::TimedOut => Errno::ETIMEDOUT,
        Error::NetworkUnreachable => Errno::ENETUNREACH,
        _ => Errno::EHOSTUNREACH,
    }
}

fn failure(error: TcpError) -> Refusal {
    Refusal::Errno(match error {
        TcpError::WouldBlock => Errno::EAGAIN,
        TcpError::Failed(error) => errno_of(error),
        _ => Errno::EPIPE,
    })
}

fn refusal(error: BindError) -> Refusal {
    Refusal::Errno(match error {
        BindError::InUse => Errno::EADDRINUSE,
        BindError::NotOurAddress => Errno::EADDRNOTAVAIL,
        BindError::Remote => Errno::EINVAL,
        BindError::NoRoute => Errno::ENETUNREACH,
        _ => Errno::ENOBUFS,
    })
}

/// The packets that are processed in one call of the stack.
const QUOTA: usize = 64;
