//! The registrations of sockets at the runtime of this thread.
//!
//! A registration stays on its thread, and the socket has a [`Ticket`] for it. A task of the runtime gives the
//! registration back when the ticket is dropped, by any thread. The end of the runtime drops the task, and with it the
//! registration.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::UdpSocket;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};

use atomic_waker::AtomicWaker;
use softclock::Descriptor;

pub(super) type Registration = Rc<Descriptor<Arc<UdpSocket>>>;

thread_local! {
    static REGISTERED: RefCell<HashMap<u64, Registration>> = RefCell::default();
}

/// A registration at the runtime of one thread, which any thread can drop.
#[derive(Debug)]
pub(super) struct Ticket {
    id: u64,
    thread: ThreadId,
    end: Arc<End>,
}

impl Ticket {
    /// Registers `socket` at the runtime that runs on this thread.
    pub(super) fn new(socket: Arc<UdpSocket>) -> io::Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let registration = Rc::new(Descriptor::new(socket)?);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        REGISTERED.with_borrow_mut(|registered| registered.insert(id, registration));
        let (entry, end) = (Entry(id), Arc::new(End::default()));
        let ended = end.clone();
        drop(softclock::spawn_local(async move {
            poll_fn(|cx| ended.poll(cx)).await;
            drop(entry);
        }));
        Ok(Self {
            id,
            thread: thread::current().id(),
            end,
        })
    }

    /// Returns the registration.
    ///
    /// # Errors
    /// On another thread, and after the end of the runtime.
    pub(super) fn registration(&self) -> io::Result<Registration> {
        REGISTERED
            .with_borrow(|registered| registered.get(&self.id).cloned())
            .ok_or_else(|| io::Error::other(WRONG_THREAD))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if thread::current().id() == self.thread {
            // The address is free at once, not only after the runtime's next turn.
            drop(Entry(self.id));
        }
        self.end.set();
    }
}

/// An entry of the table, which is removed on drop. Dropped on the thread of the table.
struct Entry(u64);

impl Drop for Entry {
    fn drop(&mut self) {
        // A thread that ends has dropped its table.
        let removed = REGISTERED.try_with(|registered| registered.borrow_mut().remove(&self.0));
        // After the borrow has ended.
        drop(removed);
    }
}

/// Tells the task that its registration is no longer needed.
///
/// Unlike the closures that wait in a mailbox, the wake-ups of tasks are not limited in number: they cannot fail.
#[derive(Debug, Default)]
struct End {
    is_set: AtomicBool,
    task: AtomicWaker,
}

impl End {
    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.task.wake();
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        // Registered before the look: a later end wakes the task.
        self.task.register(cx.waker());
        match self.is_set.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

pub(super) const WRONG_THREAD: &str =
    "the socket belongs to another thread: create the endpoint inside the softclock runtime";
