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

use super::Link;
use super::napi::{Deferral, Napi};
use crate::clock::set_timer_slack_ns;

/// Polling of a link's queue by its receivers. Ends when this value and all of its [`Poller`]s are dropped; the link's
/// interrupts then are as before.
///
/// If the process is killed, nothing undoes the settings. With veth they end nevertheless, since the receive work ends with
/// the XDP program. The receive work of hardware drivers goes on with them: the next frame after each burst may wait for
/// [`PollSettings::timeout`]. An administrator resets them for all queues of the link, to the kernel's defaults:
///
/// ```console
/// # echo 0 > /sys/class/net/eth0/napi_defer_hard_irqs
/// # echo 0 > /sys/class/net/eth0/gro_flush_timeout
/// ```
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
    /// kernels before 6.13; `PermissionDenied` without CAP_NET_ADMIN.
    pub fn of_queue(link: &Link, queue: u32, settings: PollSettings) -> io::Result<Self> {
        let napi = Napi::of_queue(link, queue)?;
        let before = napi.deferral()?;
        // One round: an end of the work without frames leaves interrupts masked only once, so that the first poll with
        // interrupts that finds nothing enables them.
        napi.set_deferral(Deferral {
            rounds: 1,
            timeout: settings.timeout,
        })?;
        Ok(Self(Arc::new(Masked { napi, before })))
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
        let id = self.0.napi.id();
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

/// The delay of interrupts, which is undone on drop.
#[derive(Debug)]
struct Masked {
    napi: Napi,
    before: Deferral,
}

impl Drop for Masked {
    fn drop(&mut self) {
        // An instance that has ended needs no settings.
        let _ = self.napi.set_deferral(self.before);
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
        register(&ring, REGISTER, TRACKING_STATIC, leaves_masked)?;
        register(&ring, ADD_ID, napi, leaves_masked)?;
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

/// Registers a setting.
fn register(ring: &IoUring, opcode: u8, parameter: u32, leaves_masked: bool) -> io::Result<()> {
    let mut setting = NapiSetting {
        busy_poll_us: 0,
        prefers_busy_poll: leaves_masked.into(),
        opcode,
        padding: [0; 2],
        parameter,
        reserved: 0,
    };
    // SAFETY: the kernel reads and writes the one structure behind the pointer, which outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            IORING_REGISTER_NAPI,
            &raw mut setting,
            1,
        )
    };
    match (result, io::Error::last_os_error()) {
        (0.., _) => Ok(()),
        (_, error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        (_, error) => Err(error),
    }
}

/// `struct io_uring_napi` (include/uapi/linux/io_uring.h).
#[repr(C)]
struct NapiSetting {
    busy_poll_us: u32,
    prefers_busy_poll: u8,
    opcode: u8,
    padding: [u8; 2],
    parameter: u32,
    reserved: u32,
}

const IORING_REGISTER_NAPI: u32 = 27;
const REGISTER: u8 = 0;
const ADD_ID: u8 = 1;
const TRACKING_STATIC: u32 = 1;

#[cfg(test)]
mod tests;
