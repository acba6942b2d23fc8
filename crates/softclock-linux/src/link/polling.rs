//! Receive work that the receivers drive, instead of interrupts.
//!
//! A link's interrupts take the receivers' processor at will: under overload it goes to frames that are discarded
//! later. With polling, an interrupt masks further ones, and the kernel's receive work for a queue (NAPI) runs inside
//! calls of the threads that want frames, until such a call finds nothing and its thread sleeps. Frames that exceed the
//! receivers' capacity are lost in the link's own ring, at no cost for the receivers. (*Lazy Receiver Processing*, 3.2;
//! `napi_defer_hard_irqs`, `gro_flush_timeout` and busy polling of Documentation/networking/napi.rst.)

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

use super::{DelayError, DelayedInterrupts, InterruptDelay, Link};
use crate::busy_poll::{self, BusyPoll};
use crate::clock::set_timer_slack_ns;

/// Polling of a link's queue by its receivers. Ends when this value and all of its [`Poller`]s are dropped; this
/// restores the link's settings of interrupts. They are also restored if the process is killed (see
/// [`DelayedInterrupts`]).
///
/// Open the link first: the receive work of some links begins with the XDP program.
///
/// ```no_run
/// use std::time::Duration;
/// use softclock_linux::link::{Copies, Link, PollSettings, Polling, XdpFilter, XdpSettings, XdpSocket};
///
/// let link = Link::named("veth0")?;
/// let settings = XdpSettings { copies: Copies::Allowed, queue: None, filter: XdpFilter::All };
/// let socket = XdpSocket::open(&link, settings)?;
/// let polling = Polling::of_queue(&link, 0, PollSettings::default())?;
/// let mut poller = polling.poller(&socket)?;
/// loop {
///     while socket.receive(|_frame| { /* process it */ }).is_ok() {}
///     // Nothing is left: look into the link's ring, and sleep if that is empty, too.
///     poller.wait(Duration::from_secs(1))?;
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Polling(Arc<Masked>);

/// The settings of [`Polling`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollSettings {
    /// The time without a poll after which an interrupt comes all the same. It bounds the wait of frames for a thread
    /// that sleeps while those that have polled compute. At most the frames of one full ring are then received, so for
    /// a ring of 256 frames of 0.5 us each and the default of 1 ms, interrupts take at most an eighth of the processor.
    pub timeout: Duration,
}

impl Default for PollSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(1),
        }
    }
}

impl Polling {
    /// Makes the receivers of a link's queue drive its receive work.
    ///
    /// # Errors
    /// `NotFound` if the kernel has no receive work for the queue, or does not say which it is; `Unsupported` for
    /// kernels before 6.13; `PermissionDenied` without CAP_NET_ADMIN; `ResourceBusy` if the link's interrupts are
    /// delayed already, also by this process; those of fork(2).
    pub fn of_queue(link: &Link, queue: u32, settings: PollSettings) -> io::Result<Self> {
        // One round: an end of the work without frames leaves interrupts masked only once, so that the first poll with
        // interrupts that finds nothing enables them.
        let delay = InterruptDelay {
            rounds: 1,
            timeout: settings.timeout,
            suspension: Duration::ZERO,
        };
        let delayed = DelayedInterrupts::of_queue(link, queue, delay);
        let (delayed, napi) = delayed.map_err(as_io_error)?;
        Ok(Self(Arc::new(Masked {
            napi,
            _delayed: delayed,
        })))
    }

    /// Returns the means of the calling thread to poll the queue, and to wait until `socket`, one of those that receive
    /// from the queue, is readable.
    ///
    /// Sets the [timer slack](set_timer_slack_ns) of the thread to the least possible: a poll that finds nothing ends
    /// by a timeout of zero, to which the kernel adds the slack, 50 us by default.
    ///
    /// # Errors
    /// `Unsupported` for kernels before 6.13; `PermissionDenied` if io_uring is forbidden.
    pub fn poller(&self, socket: &impl AsFd) -> io::Result<Poller> {
        let id = self.0.napi;
        set_timer_slack_ns(1)?;
        Ok(Poller {
            masking: Ring::new(id, true)?,
            enabling: Ring::new(id, false)?,
            socket: socket.as_fd().try_clone_to_owned()?,
            _polling: self.0.clone(),
            not_send: PhantomData,
        })
    }
}

/// A thread's means to poll a queue. It holds the socket open that it was made for.
pub struct Poller {
    /// Polls that leave interrupts masked.
    masking: Ring,
    /// Polls that enable interrupts if they find nothing.
    enabling: Ring,
    socket: OwnedFd,
    _polling: Arc<Masked>,
    /// A ring belongs to the thread that has made it (SINGLE_ISSUER).
    not_send: PhantomData<*const ()>,
}

impl Poller {
    /// The most frames that one poll receives (twice the kernel's BUSY_POLL_BUDGET).
    pub const MOST_FRAMES: usize = 16;

    /// Receives up to [`MOST_FRAMES`](Self::MOST_FRAMES) frames from the link's ring into the queue's sockets;
    /// interrupts that are masked remain so. Returns whether the socket is readable; if it is so at the call, nothing
    /// is received. A system call, with some 5 us of the kernel's if the link's ring is empty.
    ///
    /// If another thread polls at this moment, nothing is received by this call.
    ///
    /// # Errors
    /// Those of io_uring_enter(2).
    pub fn poll(&mut self) -> io::Result<bool> {
        self.masking.enter(self.socket.as_fd(), Duration::ZERO)
    }

    /// Polls as [`poll`](Self::poll) does; if nothing arrives, enables interrupts and waits until the socket is
    /// readable, up to `most`. Returns whether it is.
    ///
    /// If the link's ring has more than [`MOST_FRAMES`](Self::MOST_FRAMES) frames, the kernel's own thread or interrupt
    /// receives the others: while polls find as many, call [`poll`](Self::poll).
    ///
    /// # Errors
    /// Those of io_uring_enter(2). A signal ends the wait without an error.
    pub fn wait(&mut self, most: Duration) -> io::Result<bool> {
        self.enabling.enter(self.socket.as_fd(), most)
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

/// The delay of the queue's interrupts, and the kernel's instance of its receive work.
#[derive(Debug)]
struct Masked {
    napi: u32,
    _delayed: DelayedInterrupts,
}

fn as_io_error(error: DelayError) -> io::Error {
    match error {
        DelayError::NoReceiveWork => io::ErrorKind::NotFound.into(),
        DelayError::NoSuspension => io::ErrorKind::Unsupported.into(),
        DelayError::Held(_) => io::ErrorKind::ResourceBusy.into(),
        DelayError::Watcher(error) | DelayError::Failed(error) => error,
    }
}

/// A ring of io_uring that polls the queue whenever it waits, once for each wait.
struct Ring {
    ring: IoUring,
    /// Whether a poll request for the socket is with the kernel.
    is_armed: bool,
}

impl Ring {
    /// Creates a ring for an instance of receive work. The kernel otherwise finds the instance by the socket, but knows
    /// that of no AF_XDP socket on a virtual link.
    fn new(napi: u32, leaves_masked: bool) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(2)?;
        let polling = BusyPoll {
            is_preferred: leaves_masked,
            ..BusyPoll::OFF
        };
        busy_poll::io_uring::set_instance(&ring, napi, polling)?;
        Ok(Self {
            ring,
            is_armed: false,
        })
    }

    /// Waits until the socket is readable, up to `most`.
    fn enter(&mut self, socket: BorrowedFd<'_>, most: Duration) -> io::Result<bool> {
        if !self.is_armed {
            let poll = opcode::PollAdd::new(Fd(socket.as_raw_fd()), libc::POLLIN as u32).build();
            // SAFETY: the request has no pointers, and the kernel takes its own reference to the file.
            let pushed = unsafe { self.ring.submission().push(&poll) };
            pushed.map_err(|_| io::ErrorKind::ResourceBusy)?;
            self.is_armed = true;
        }
        let time = Timespec::from(most);
        let arguments = SubmitArgs::new().timespec(&time);
        let entered = self.ring.submitter().submit_with_args(1, &arguments);
        let is_readable = self.ring.completion().next().is_some();
        self.is_armed &= !is_readable;
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR), _)) => Ok(is_readable),
            Err((_, error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
