//! One side of the bridge: an interface whose frames the bridge takes from the host, or a TAP device.
//!
//! - [`spec`]: parses and claims a port's name.
//! - [`open`]: opens two ports by one mechanism.

mod open;
mod spec;

use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::io::Errno;
use softclock::{Descriptor, Instant, Transfer};
use softclock_linux::link::{ClaimError, Device, DeviceError, Link, Received, Refused};

use super::frame::{Frame, NamedCounts};
use open::Linked;
pub use open::{MechanismChoice, Opened};
pub use spec::PortSpec;

/// An open interface, which the host does not receive from while this lives, or a TAP device. The kernel undoes all
/// changes to the interface when the process ends, however it ends.
#[derive(Debug)]
pub struct Port {
    link: Link,
    device: Descriptor<Device>,
    lost: Cell<u64>,
    /// Frames that could not be received, by reason.
    not_received: RefCell<NamedCounts>,
    /// Frames that could not be sent, by reason.
    not_sent: RefCell<NamedCounts>,
}

impl Port {
    /// Opens both ports by one mechanism, creating TAP devices as needed; returns the mechanism and its reason.
    ///
    /// # Errors
    /// [`PortError::Open`], and [`PortError::Watch`] outside a runtime.
    pub fn open_both(
        ports: &[PortSpec; 2],
        choice: MechanismChoice,
    ) -> Result<([Self; 2], Opened), PortError> {
        let ([a, b], opened) = open::open_both(ports, choice).map_err(PortError::Open)?;
        Ok(([Self::new(a)?, Self::new(b)?], opened))
    }

    fn new((link, device): Linked) -> Result<Self, PortError> {
        let device = Descriptor::new(device).map_err(|error| PortError::Watch {
            interface: link.name().into(),
            error,
        })?;
        Ok(Self {
            link,
            device,
            lost: Cell::new(0),
            not_received: RefCell::default(),
            not_sent: RefCell::default(),
        })
    }

    /// The mechanism's name: `packet`, `xdp` or `tap`.
    pub fn mechanism(&self) -> &'static str {
        self.device.descriptor().mechanism()
    }

    /// Checks that the interface still exists. Call it from time to time: AF_XDP does not report a deletion. Always
    /// succeeds for a TAP device, which reports it and may be in another namespace, where it cannot be looked up.
    ///
    /// # Errors
    /// [`PortError::Gone`].
    pub fn check_link(&self) -> Result<(), PortError> {
        if matches!(self.device.descriptor(), Device::Tap(_)) || self.link.exists() {
            return Ok(());
        }
        Err(self.is_gone())
    }

    fn is_gone(&self) -> PortError {
        PortError::Gone {
            interface: self.link.name().into(),
        }
    }

    /// The interface.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Waits for frames and appends those that have arrived to `frames`, in order. Returns at once if `frames` is not
    /// empty.
    ///
    /// # Errors
    /// [`PortError::Gone`]. Frames that cannot be received are dropped and counted instead.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped future has received no frame.
    pub async fn receive(&self, frames: &mut Vec<Frame>) -> Result<(), PortError> {
        while frames.is_empty() {
            let take = |_: BorrowedFd<'_>| self.take(frames).map(Transfer::full);
            let received = self.device.read_with(take).await;
            if let Err(error) = received {
                self.on_receive_error(&error)?;
            }
        }
        Ok(())
    }

    fn take(&self, frames: &mut Vec<Frame>) -> io::Result<usize> {
        // The clock is read once for a batch.
        let mut now = None;
        self.device.descriptor().receive(|received| match received {
            Ok(received) => {
                let now = *now.get_or_insert_with(softclock::now);
                frames.push(frame(received, now));
            }
            Err(Refused::UnknownOffload) => self.count("unknown offload"),
            Err(Refused::TooLong) => self.count("too long to receive"),
            Err(_) => self.count("refused by the link"),
        })
    }

    fn on_receive_error(&self, error: &io::Error) -> Result<(), PortError> {
        match Errno::from_io_error(error) {
            // A link that is down may come up again, and the socket stays bound to it.
            Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => self.check_link(),
            // A TAP device reports its deletion so.
            Some(Errno::BADFD) => Err(self.is_gone()),
            Some(Errno::INVAL) => {
                self.count("unknown offload");
                Ok(())
            }
            _ => {
                self.count("not received");
                Ok(())
            }
        }
    }

    /// Sends frames, up to a batch by one system call. Drops frames that cannot be sent and counts them by reason. The
    /// frames may be empty afterwards.
    pub fn send(&self, mut frames: &mut [Frame]) {
        while !frames.is_empty() {
            let parts = frames.iter_mut();
            let parts = parts.map(|frame| (&mut frame.bytes, &frame.offload));
            let done = match self.device.descriptor().send(parts) {
                Ok(sent) => sent,
                // An error is always the first frame's.
                Err(error) => {
                    self.on_send_error(&error);
                    1
                }
            };
            frames = &mut frames[done..];
        }
    }

    /// Whether the link had no room at the last call, so that frames passed to [`send`](Self::send) may still wait for
    /// [`flush`](Self::flush).
    pub fn is_behind(&self) -> bool {
        self.device.descriptor().is_behind()
    }

    /// Sends the frames that [`send`](Self::send) accepted and the link had no room for.
    pub fn flush(&self) {
        self.device.descriptor().flush();
    }

    fn on_send_error(&self, error: &io::Error) {
        let reason = match Errno::from_io_error(error) {
            Some(Errno::AGAIN | Errno::NOBUFS) => "no room on the link",
            Some(Errno::MSGSIZE) => "longer than the MTU",
            Some(Errno::TOOBIG) => "too many segments",
            Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV | Errno::IO | Errno::BADFD) => {
                "link down"
            }
            _ => "not sent",
        };
        *self.not_sent.borrow_mut().entry(reason).or_default() += 1;
    }

    /// Frames that could not be received or sent so far, by reason.
    pub fn drops(&self) -> NamedCounts {
        let mut all = self.not_received();
        for (reason, count) in self.not_sent() {
            *all.entry(reason).or_default() += count;
        }
        all
    }

    /// Frames that could not be received so far, by reason.
    pub fn not_received(&self) -> NamedCounts {
        self.not_received.borrow().clone()
    }

    /// Frames passed to [`send`](Self::send) so far that could not be sent, by reason.
    pub fn not_sent(&self) -> NamedCounts {
        let refused = self.device.descriptor().take_refused();
        let mut all = self.not_sent.borrow_mut();
        if refused > 0 {
            *all.entry(REFUSED).or_default() += refused;
        }
        all.clone()
    }

    /// Frames lost so far because the receive buffer was full. `None` if the count cannot be read, as for a TAP device
    /// that was moved to another namespace.
    pub fn lost(&self) -> Option<u64> {
        let more = self.device.descriptor().take_lost().ok()?;
        self.lost.set(self.lost.get() + more);
        Some(self.lost.get())
    }

    /// Counts a frame that could not be received.
    fn count(&self, reason: &'static str) {
        *self.not_received.borrow_mut().entry(reason).or_default() += 1;
    }
}

/// Why a port cannot be opened, or has stopped working.
#[derive(Debug)]
#[non_exhaustive]
pub enum PortError {
    /// The look-up of the interface's name failed: `ENODEV` if no interface has it.
    Find {
        /// The interface's name.
        interface: String,
        /// The failure of the look-up.
        error: io::Error,
    },
    /// Another bridge has the interface, or the system call for the claim failed.
    Claim {
        /// The interface's name.
        interface: String,
        /// The cause.
        error: ClaimError,
    },
    /// The device cannot be opened.
    Open(DeviceError),
    /// The runtime cannot watch the device.
    Watch {
        /// The interface's name.
        interface: String,
        /// The runtime's error.
        error: io::Error,
    },
    /// The interface was deleted.
    Gone {
        /// The name that it had.
        interface: String,
    },
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Find { interface, error } => {
                write!(f, "cannot find interface {interface}: {error}")
            }
            Self::Claim { interface, error } => write!(f, "cannot use {interface}: {error}"),
            Self::Open(error) => error.fmt(f),
            Self::Watch { interface, error } => write!(f, "cannot watch {interface}: {error}"),
            Self::Gone { interface } => write!(f, "{interface} is gone"),
        }
    }
}

impl std::error::Error for PortError {}

fn frame(received: Received, now: Instant) -> Frame {
    Frame {
        bytes: received.bytes,
        offload: received.offload,
        arrived: now.sub_ns(age_ns(received.age)),
    }
}

/// The age of a frame in nanoseconds; 0 if it is implausible, as when CLOCK_REALTIME was set after the frame's arrival.
fn age_ns(age: Duration) -> u64 {
    match age {
        age if age > MOST_AGE => 0,
        age => age.as_nanos() as u64,
    }
}

/// The reason in [`Port::not_sent`] for a link without a carrier or a driver without room.
const REFUSED: &str = "refused by the link";

/// The longest age that is believed. Frames wait at most milliseconds in the kernel.
const MOST_AGE: Duration = Duration::from_secs(1);
