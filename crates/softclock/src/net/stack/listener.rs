//! Listeners of a stack.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
use softclock_linux::link::Transport;
use softclock_linux::readiness::Readiness;
use softclock_linux::socket::tcp::ListenOptions;
use softclock_net::stack::{TcpListenSettings, TcpListenerId};

use super::driver::Driver;
use super::share::StackShare;
use super::tcp::StackTcp;
use super::udp::reuse_error;
use crate::net::registration::Registration;
use crate::runtime::sources::Direction;

/// A listener of the runtime's stack. Dropping it closes it, and resets the connections that it has not accepted.
pub(crate) struct StackListener {
    registration: Registration,
    driver: Rc<Driver>,
    id: TcpListenerId,
}

impl StackListener {
    /// Listens at `address`, if the runtime has a stack and the address is one of the stack's or unspecified.
    pub(crate) fn bind(address: SocketAddr, options: &ListenOptions) -> Option<io::Result<Self>> {
        let Some(driver) = Driver::current() else {
            let is_shared = StackShare::current_owns(Transport::Tcp, address);
            return is_shared.then(|| Err(super::tcp::member_error()));
        };
        let is_own = driver.owns(Transport::Tcp, address);
        is_own.then(|| Self::bind_to(driver, address, options))
    }

    fn bind_to(
        driver: Rc<Driver>,
        address: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<Self> {
        // The threads of a stack share each port.
        if options.reuse_port && !driver.has_threads() {
            return Err(reuse_error());
        }
        let registration = Registration::new(Readiness::READABLE)?;
        let settings = TcpListenSettings::with_backlog(options.backlog as usize);
        let id = driver.listen(address, &settings)?;
        driver.add_listener(id, registration.id());
        registration.runtime().trigger(TriggerState::SystemCall);
        Ok(Self {
            registration,
            driver,
            id,
        })
    }

    pub(crate) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<(StackTcp, SocketAddr)>> {
        let accept = || {
            let accepted = self.driver.with_tcp(|stack, now| {
                loop {
                    if let Some(accepted) = stack.tcp_accept(now, self.id) {
                        return Ok(accepted);
                    }
                    if stack.tcp_wait_accept(self.id) {
                        self.registration.on_would_block(Direction::Read);
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    if stack.tcp_listener_local(self.id).is_none() {
                        return Err(io::ErrorKind::NotConnected.into());
                    }
                }
            });
            let (id, peer) = accepted?;
            StackTcp::accepted(self.driver.clone(), id).map(|stream| (stream, peer))
        };
        (self.registration).poll_call(cx, Direction::Read, TriggerState::Receive, accept)
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        let local = self.driver.stack.borrow().tcp_listener_local(self.id);
        let runtime = self.registration.runtime();
        runtime.trigger(TriggerState::SystemCall);
        local.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for StackListener {
    fn drop(&mut self) {
        self.driver.remove_listener(self.id, self.registration.id());
    }
}
