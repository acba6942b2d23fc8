//! The driver's part for a stack that shares the host's addresses: the host's kernel finds the link addresses of
//! neighbors.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::task::Context;

use softclock_core::Instant;
use softclock_linux::link::{HostNeighbors, Transport};
use softclock_net::link::LinkAddress;

use super::Driver;
use crate::net::Kernel;
use crate::net::stack::open::HostParts;
use crate::runtime::sources::Direction;

/// The host, watched by the runtime.
pub(super) struct Host {
    neighbors: Kernel<HostNeighbors>,
    ports: Vec<(Transport, u16)>,
    /// Keeps the host's sockets from the ports.
    _reserved: Vec<OwnedFd>,
}

impl Host {
    pub(super) fn watch(parts: HostParts) -> io::Result<Self> {
        Ok(Self {
            neighbors: Kernel::new(parts.neighbors)?,
            ports: parts.ports,
            _reserved: parts.reserved,
        })
    }
}

impl Driver {
    /// Asks the kernel for the neighbors that the stack needs, and takes its answers. Sends nothing.
    pub(super) fn serve_host(&self, cx: &Context<'_>, now: Instant) {
        let Some(host) = &self.host else { return };
        let mut stack = self.stack.borrow_mut();
        let neighbors = host.neighbors.descriptor();
        while let Some(address) = stack.next_question() {
            // Without an answer the stack asks again. An error is about a neighbor that cannot be.
            if let Ok(Some(link)) = neighbors.ask(address) {
                stack.on_neighbor(now, address, LinkAddress(link));
            }
        }
        for _ in 0..MOST_NEWS {
            if host
                .neighbors
                .registration()
                .poll_ready(cx, Direction::Read)
                .is_pending()
            {
                return;
            }
            // After an error, such as news that was lost, the stack asks again.
            let _ = host.neighbors.quiet_call(Direction::Read, |_| {
                neighbors
                    .receive(|address, link| stack.on_neighbor(now, address, LinkAddress(link)))
            });
        }
        cx.waker().wake_by_ref();
    }

    /// Whether the stack has this port, at any of its addresses. A stack that shares the host's addresses has some
    /// ports.
    pub(in super::super) fn has_port(&self, transport: Transport, port: u16) -> bool {
        self.ports()
            .is_none_or(|ports| ports.contains(&(transport, port)))
    }

    /// The ports of a stack that shares the host's addresses.
    pub(in super::super) fn ports(&self) -> Option<&[(Transport, u16)]> {
        match (&self.host, self.interface.lane()) {
            (Some(host), _) => Some(&host.ports),
            (None, Some(lane)) => lane.shared().ports.as_deref(),
            (None, None) => None,
        }
    }

    /// Whether sockets can join groups at this interface; 0 stands for the stack's.
    pub(in super::super) fn takes_groups_at(&self, interface: u32) -> bool {
        let is_own = interface == 0 || interface == self.link.index();
        is_own && self.interface.takes_groups()
    }

    /// Whether a socket at this address belongs to the stack.
    pub(in super::super) fn owns(&self, transport: Transport, local: SocketAddr) -> bool {
        let stack = self.stack.borrow();
        let ip = local.ip();
        let is_own = ip.is_unspecified()
            || stack
                .routes()
                .addresses()
                .iter()
                .any(|own| own.address == ip);
        is_own && self.has_port(transport, local.port())
    }
}

/// The most messages of the kernel about neighbors in a turn.
const MOST_NEWS: usize = 32;
