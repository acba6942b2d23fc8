//! A UDP socket that threads share, with its registration at the runtime of one thread.
//!
//! Any thread sends. Only the runtime's thread waits: it has the registrations of its sockets in a table, in which a
//! socket has an id.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};

use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use softclock::{Descriptor, Remote, Transfer};
use softclock_linux::readiness::{Readiness, current_state};

type Registration = Rc<Descriptor<Arc<UdpSocket>>>;

thread_local! {
    /// The sockets that wait on this thread.
    static WAITING: RefCell<HashMap<u64, Registration>> = RefCell::default();
}

#[derive(Debug)]
pub(super) struct Socket {
    socket: Arc<UdpSocket>,
    state: UdpSocketState,
    /// Whether the send buffer had no room when it was last tried.
    is_full: AtomicBool,
    id: u64,
    thread: ThreadId,
    remote: Remote,
}

impl Socket {
    /// Registers a socket at the runtime of this thread.
    pub(super) fn new(socket: UdpSocket, remote: Remote) -> io::Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        // Makes the socket nonblocking, too.
        let state = UdpSocketState::new((&socket).into())?;
        let socket = Arc::new(socket);
        let registration = Rc::new(Descriptor::new(socket.clone())?);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        WAITING.with_borrow_mut(|waiting| waiting.insert(id, registration));
        Ok(Self {
            socket,
            state,
            is_full: AtomicBool::new(false),
            id,
            thread: thread::current().id(),
            remote,
        })
    }

    fn registration(&self) -> io::Result<Registration> {
        WAITING
            .with_borrow(|waiting| waiting.get(&self.id).cloned())
            .ok_or_else(|| io::Error::other(WRONG_THREAD))
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
        let registration = self.registration()?;
        // The future has no state of its own, so it may be made anew for each poll.
        let receive = registration.read_with(|_| {
            let received = self.state.recv((&*self.socket).into(), buffers, meta);
            received.map(Transfer::full)
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

impl Drop for Socket {
    fn drop(&mut self) {
        let id = self.id;
        let remove = move || {
            // Dropped after the borrow has ended. A thread that ends has dropped its table.
            let removed = WAITING.try_with(|waiting| waiting.borrow_mut().remove(&id));
            drop(removed);
        };
        if thread::current().id() == self.thread {
            remove();
        } else {
            // After the runtime's end, the table is dropped with the thread.
            let _ = self.remote.post(remove);
        }
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
        let registration = socket.registration()?;
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

pub(super) const WRONG_THREAD: &str =
    "the socket belongs to another thread: create the endpoint inside the softclock runtime";
