//! Stacks that other threads join.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use softclock_linux::link::Transport;
use softclock_net::routes::Prefix;

use super::StackError;
use super::driver::{Driver, Parts};
use super::interface::Opened;
use super::shared::Shared;
use crate::net::common::Common;
use crate::runtime::inner::Inner;

/// A stack that other threads may join. Created by [`Stack::share`](super::Stack::share).
///
/// # Example
/// ```no_run
/// use softclock::net::UdpSocket;
/// use softclock::net::stack::{self, StackOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// softclock::Runtime::new()?.block_on(async {
///     let mut options = StackOptions::new("eth0");
///     options.addresses.push("192.0.2.7/24".parse()?);
///     let share = stack::open(&options)?.share();
///     let worker = std::thread::spawn(move || -> std::io::Result<()> {
///         softclock::Runtime::new()?.block_on(async {
///             share.join().map_err(std::io::Error::other)?;
///             let socket = UdpSocket::bind(([192, 0, 2, 7], 9))?;
///             let (length, peer) = socket.recv_from(&mut [0; 2048]).await?;
///             println!("{length} bytes from {peer}");
///             Ok(())
///         })
///     });
/// #   drop(worker);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct StackShare(pub(super) Arc<Shared>);

impl StackShare {
    /// Lets the current runtime have sockets on the stack: those that are bound to an address of the stack, or to an
    /// unspecified one.
    ///
    /// If the stack has [several threads](super::StackOptions::threads) and one of them is missing, the runtime becomes
    /// that one, and has TCP sockets, too; else it has UDP sockets.
    ///
    /// The runtime that opened the stack demultiplexes datagrams, and copies those for this runtime's sockets into
    /// their channels. With [`NiLrp`](super::Architecture::NiLrp) the XDP program demultiplexes them into a ring for
    /// each socket, which this runtime reads. The work of IP and UDP is done here, by the tasks that receive. With TCP
    /// sockets, by AF_XDP on an interface of several queues, this runtime receives from queues of its own.
    ///
    /// # Errors
    /// [`StackError::Exists`] if the runtime has a stack or shares one, [`StackError::Gone`] if the stack has ended,
    /// and [`StackError::Watch`] outside a runtime.
    pub fn join(&self) -> Result<(), StackError> {
        let runtime = Inner::current().map_err(StackError::Watch)?;
        if Driver::current().is_some() {
            return Err(StackError::Exists);
        }
        if self.0.is_closed() {
            return Err(StackError::Gone(self.0.link.name().into()));
        }
        let mut shared = Common::of(&runtime).shared_stack.borrow_mut();
        if shared.is_some() {
            return Err(StackError::Exists);
        }
        *shared = Some(Rc::new(self.clone()));
        drop(shared);
        if let Some((lane, stack)) = self.0.take_lane(runtime.clone()) {
            let driver = Driver::new(Parts {
                link: self.0.link.clone(),
                opened: Opened::Lane(lane),
                claim: None,
                delayed: None,
                monitor: None,
                stack,
                capture: self.0.capture.clone(),
                host: None,
                signalling: self.0.signalling,
            });
            driver
                .and_then(|driver| driver.start())
                .map_err(StackError::Watch)?;
        }
        Ok(())
    }

    /// Whether the current runtime shares a stack to which a socket at this address belongs.
    pub(super) fn current_owns(transport: Transport, local: SocketAddr) -> bool {
        let ip = local.ip();
        let is_own = |prefix: &Prefix| prefix.address == ip;
        Self::current().is_some_and(|share| {
            let is_own = ip.is_unspecified() || share.0.routes.addresses().iter().any(is_own);
            is_own && share.0.has_port(transport, local.port())
        })
    }

    /// Whether the current runtime shares a stack that opens the connections to this address.
    pub(super) fn current_reaches(remote: IpAddr) -> bool {
        let has_route = |share: Rc<Self>| {
            share.0.ports.is_none() && share.0.routes.source_for(remote).is_some()
        };
        !remote.is_loopback() && Self::current().is_some_and(has_route)
    }

    /// The stack that the current runtime shares.
    pub(super) fn current() -> Option<Rc<Self>> {
        let runtime = Inner::current().ok()?;
        let shared = Common::of(&runtime).shared_stack.borrow().clone()?;
        shared.downcast().ok()
    }
}

impl std::fmt::Debug for StackShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StackShare").finish_non_exhaustive()
    }
}
