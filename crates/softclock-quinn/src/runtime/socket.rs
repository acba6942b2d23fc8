//! A UDP socket that threads share. Any thread sends; only the runtime's thread waits.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use quinn::udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use softclock::Transfer;
use softclock_linux::readiness::{Readiness, current_state};

use super::registration::Ticket;

#[derive(Debug)]
pub(super) struct Socket {
    socket: Arc<UdpSocket>,
    state: UdpSocketState,
    /// Whether the send buffer had no room when it was last tried.
    is_full: AtomicBool,
    ticket: Ticket,
}

thread_local! {
    /// The socket that was created last on this thread. The weak pointer keeps its address from being used again.
    static NEWEST: RefCell<Weak<Socket>> = const { RefCell::new(Weak::new()) };
}

impl Socket {
    /// Registers a socket at the runtime of this thread.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Arc<Self>> {
        // Makes the socket nonblocking, too.
        let state = UdpSocketState::new((&socket).into())?;
        let socket = Arc::new(socket);
        let ticket = Ticket::new(socket.clone())?;
        let this = Arc::new(Self {
            socket,
            state,
            is_full: AtomicBool::new(false),
            ticket,
        });
        NEWEST.set(Arc::downgrade(&this));
        Ok(this)
    }

    /// Whether `other`, which has just been made on this thread, is a socket of this kind. The trait has no downcast.
    pub(super) fn is(other: &Arc<dyn AsyncUdpSocket>) -> bool {
        NEWEST.with_borrow(|newest| ptr::addr_eq(newest.as_ptr(), Arc::as_ptr(other)))
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller(self))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let sent = self.state.send((&*self.socket).into(), transmit);
        if matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.is_full.store(true, Ordering::Relaxed);
        }
        sent
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let registration = self.ticket.registration()?;
        // The future has no state of its own, so it may be made anew for each poll.
        let receive = registration.read_with(|_| {
            let received = self.state.recv((&*self.socket).into(), buffers, meta);
            // Fewer datagrams than one call takes: the queue is empty.
            let most = buffers.len().min(BATCH_SIZE);
            received.map(|datagrams| Transfer::of(datagrams, most))
        });
        pin!(receive).poll(cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Waits for room in the send buffer.
#[derive(Debug)]
struct Poller(Arc<Socket>);

impl UdpPoller for Poller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self(socket) = &*self;
        if !socket.is_full.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        // The runtime does not know of the call that found no room, which may have been made by another thread. So the
        // state is read anew: an event that came since then is not lost.
        let registration = socket.ticket.registration()?;
        let check = registration.write_with(|fd| {
            let room = Readiness::WRITABLE | Readiness::ERROR;
            if !current_state(fd)?.intersects(room) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            socket.is_full.store(false, Ordering::Relaxed);
            Ok(Transfer::full(()))
        });
        pin!(check).poll(cx)
    }
}
