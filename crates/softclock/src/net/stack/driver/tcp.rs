//! The driver's part for TCP: the sources of connections and listeners, and calls on behalf of their owners.

use std::io;
use std::net::{IpAddr, SocketAddr};

use softclock_core::{Clock, Instant, SourceId};
use softclock_linux::link::Buffer;
use softclock_linux::readiness::Readiness;
use softclock_net::ports::DynamicPorts;
use softclock_net::stack::{BindError, Stack, TcpId, TcpListenSettings, TcpListenerId, TcpWoken};
use softclock_net::tcp::state::State;

use super::Driver;
use crate::net::stack::random::random;
use crate::net::stack::udp::bind_error;

impl Driver {
    /// Calls `f` with the stack, and sends what it leaves to send in the driver's next turn. Until then other tasks
    /// run, so that the segments of all of them leave in one batch.
    ///
    /// # Errors
    /// [`io::ErrorKind::NetworkDown`] if the interface is gone, besides those of `f`.
    pub(in super::super) fn with_tcp<R>(
        &self,
        f: impl FnOnce(&mut Stack<Buffer>, Instant) -> io::Result<R>,
    ) -> io::Result<R> {
        self.check_present()?;
        let now = self.interface.runtime().clock.now();
        let mut stack = self.stack.borrow_mut();
        let result = f(&mut stack, now);
        let must_run =
            stack.frames_waiting() > 0 || stack.has_work() || self.must_wake(&stack, now);
        drop(stack);
        if must_run {
            self.wake();
        }
        result
    }

    /// Whether segments have arrived for a connection that are not processed.
    pub(in super::super) fn has_arrived(&self, id: TcpId) -> bool {
        self.stack.borrow().tcp_has_arrived(id)
    }

    /// The ends of a connection that are known, as conditions of its source.
    ///
    /// # Errors
    /// [`io::ErrorKind::NetworkDown`] if the interface is gone.
    pub(in super::super) fn ends_of(&self, id: TcpId) -> io::Result<Readiness> {
        self.check_present()?;
        Ok(ends(&self.stack.borrow(), id))
    }

    /// Listens at an address; port 0 stands for any free one. Opens the listener's ring, if it can have one.
    pub(in super::super) fn listen(
        &self,
        local: SocketAddr,
        settings: &TcpListenSettings,
    ) -> io::Result<TcpListenerId> {
        let id = self.listen_without_ring(local, settings)?;
        match self.open_listener_ring(id) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.close_listener(id);
                Err(error)
            }
        }
    }

    fn listen_without_ring(
        &self,
        local: SocketAddr,
        settings: &TcpListenSettings,
    ) -> io::Result<TcpListenerId> {
        self.with_tcp(|stack, _| {
            if local.port() != 0 {
                return stack
                    .tcp_listen(local, settings.clone())
                    .map_err(bind_error);
            }
            let listening = DynamicPorts::new(random()).find(|port| {
                let local = SocketAddr::new(local.ip(), port);
                match stack.tcp_listen(local, settings.clone()) {
                    Err(BindError::InUse) => None,
                    listening => Some(listening),
                }
            });
            listening
                .unwrap_or(Err(BindError::InUse))
                .map_err(bind_error)
        })
    }

    pub(in super::super) fn add_listener(&self, id: TcpListenerId, source: SourceId) {
        self.listeners.borrow_mut().insert(id, source);
    }

    /// Closes a listener, and resets the connections that were not accepted.
    pub(in super::super) fn remove_listener(&self, id: TcpListenerId, source: SourceId) {
        self.listeners.borrow_mut().remove(&id);
        self.forget_posts(source);
        self.close_listener(id);
        self.close_listener_ring(id);
    }

    fn close_listener(&self, id: TcpListenerId) {
        let _ = self.with_tcp(|stack, now| {
            stack.tcp_close_listener(now, id);
            Ok(())
        });
    }

    /// The connections whose peers have not acknowledged this end's FIN. None after the end of the interface.
    pub(in super::super) fn closing_connections(&self) -> usize {
        if self.is_gone.get() {
            return 0;
        }
        let stack = self.stack.borrow();
        let closing = [State::FinWait1, State::Closing, State::LastAck];
        let states = stack
            .tcp_states()
            .filter(|(state, _)| closing.contains(state));
        states.map(|(_, connections)| connections).sum()
    }

    pub(in super::super) fn add_connection(&self, id: TcpId, source: SourceId) {
        self.connections.borrow_mut().insert(id, source);
    }

    /// Closes a connection, or resets it.
    pub(in super::super) fn remove_connection(&self, id: TcpId, source: SourceId, resets: bool) {
        self.connections.borrow_mut().remove(&id);
        self.forget_posts(source);
        let _ = self.with_tcp(|stack, now| {
            match resets {
                true => stack.tcp_abort(now, id),
                false => stack.tcp_close(now, id),
            }
            Ok(())
        });
    }

    /// Whether a connection to this address is opened by the stack: one that it has a route to, loopback excepted. A
    /// stack that shares the host's addresses opens none, since it receives nothing at the ports that it would choose.
    pub(in super::super) fn reaches(&self, remote: IpAddr) -> bool {
        self.ports().is_none()
            && !remote.is_loopback()
            && self.stack.borrow().routes().source_for(remote).is_some()
    }

    /// Sorts the connections and listeners that have something for their owners.
    pub(super) fn sort_woken_tcp(&self, stack: &mut Stack<Buffer>) {
        let (connections, listeners) = (self.connections.borrow(), self.listeners.borrow());
        let mut posts = self.posts.borrow_mut();
        while let Some(woken) = stack.tcp_next_woken() {
            let (source, readiness) = match woken {
                TcpWoken::Connection(id) => {
                    // The stack asks once for both directions, so both are looked at again.
                    let ready = Readiness::READABLE | Readiness::WRITABLE | ends(stack, id);
                    (connections.get(&id), ready)
                }
                TcpWoken::Listener(id) => (listeners.get(&id), Readiness::READABLE),
            };
            posts.extend(source.map(|&source| (source, readiness)));
        }
    }
}

/// The ends of a connection that are known, as conditions of its source.
pub(in super::super) fn ends(stack: &Stack<Buffer>, id: TcpId) -> Readiness {
    let Some(connection) = stack.tcp_connection(id) else {
        return Readiness::READ_CLOSED | Readiness::WRITE_CLOSED;
    };
    let ended = match connection.state() {
        State::CloseWait => Readiness::READ_CLOSED,
        // Both directions have ended.
        State::Closing | State::LastAck | State::TimeWait | State::Closed => {
            Readiness::READ_CLOSED | Readiness::WRITE_CLOSED
        }
        _ => Readiness::NONE,
    };
    match connection.has_error() {
        true => ended | Readiness::ERROR,
        false => ended,
    }
}
