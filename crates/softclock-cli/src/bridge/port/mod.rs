//! One side of the bridge: a link whose frames are ours alone, or one that we made for the host.
//!
//! - [`mechanism`]: by what frames come and go: AF_PACKET ([`packet`]), AF_XDP ([`xdp`]), or as the other end of a TAP device.

mod mechanism;
mod packet;
mod xdp;

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use softclock::{Descriptor, Instant};
use softclock_linux::link::{Link, Received, Refused};

use super::BridgeError;
use super::frame::{Counts, Frame};
use super::side::Side;
use mechanism::Mechanism;
pub(crate) use mechanism::MechanismChoice;

/// A link that the host leaves to us, or has from us, while this lives. The kernel undoes all of it when the process ends.
#[derive(Debug)]
pub(crate) struct Port {
    link: Link,
    mechanism: Descriptor<Mechanism>,
    lost: Cell<u64>,
    /// What it could not receive or send, by reason.
    drops: RefCell<Counts>,
}

impl Port {
    /// Takes two links over, or makes them, in a runtime; says by what, and why.
    pub(crate) fn open_both(
        sides: &[Side; 2],
        choice: MechanismChoice,
    ) -> Result<([Self; 2], String), BridgeError> {
        let ([a, b], how) = Mechanism::open_both(sides, choice)?;
        Ok(([Self::new(a)?, Self::new(b)?], how))
    }

    fn new((link, mechanism): (Link, Mechanism)) -> Result<Self, BridgeError> {
        let mechanism = Descriptor::new(mechanism)
            .map_err(|error| BridgeError(format!("cannot watch {}: {error}", link.name())))?;
        Ok(Self {
            link,
            mechanism,
            lost: Cell::new(0),
            drops: RefCell::default(),
        })
    }

    /// By what frames come and go.
    pub(crate) fn mechanism(&self) -> &'static str {
        self.mechanism.descriptor().name()
    }

    /// Not every mechanism tells. A TAP device does, and may be in another namespace.
    pub(crate) fn check_link(&self) -> Result<(), BridgeError> {
        if matches!(self.mechanism.descriptor(), Mechanism::Tap(_)) || self.link.exists() {
            return Ok(());
        }
        Err(self.is_gone())
    }

    fn is_gone(&self) -> BridgeError {
        BridgeError(format!("{} is gone", self.link.name()))
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Waits for frames, and puts those that are there into `frames`. Only a link that is gone ends this.
    pub(crate) async fn receive(&self, frames: &mut Vec<Frame>) -> Result<(), BridgeError> {
        while frames.is_empty() {
            let received = self.mechanism.read_with(|_| self.take(frames)).await;
            if let Err(error) = received {
                self.on_receive_error(&error)?;
            }
        }
        Ok(())
    }

    fn take(&self, frames: &mut Vec<Frame>) -> io::Result<usize> {
        let mut now = None;
        self.mechanism
            .descriptor()
            .receive(|received| match received {
                Ok(received) => {
                    let now = *now.get_or_insert_with(softclock::now);
                    frames.push(frame(&received, now));
                }
                Err(Refused::UnknownOffload) => self.count("unknown offload"),
                Err(Refused::TooLong) => self.count("too long to receive"),
            })
    }

    fn on_receive_error(&self, error: &io::Error) -> Result<(), BridgeError> {
        match Errno::from_io_error(error) {
            // It may come up again; the socket stays bound to it.
            Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => self.check_link(),
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

    /// Sends frames, together. Drops those that cannot be sent, and counts why.
    pub(crate) fn send(&self, mut frames: &[Frame]) {
        while !frames.is_empty() {
            let parts = frames
                .iter()
                .map(|frame| (&frame.bytes[..], &frame.offload));
            match self.mechanism.descriptor().send(parts) {
                Ok(sent) => frames = &frames[sent..],
                Err(error) => {
                    self.on_send_error(&error);
                    frames = &frames[1..];
                }
            }
        }
    }

    /// Whether the link had no room, so that some of what [`send`](Self::send) took may wait for [`flush`](Self::flush).
    pub(crate) fn is_behind(&self) -> bool {
        self.mechanism.descriptor().is_behind()
    }

    /// Sends what was taken by [`send`](Self::send), but found no room on the link.
    pub(crate) fn flush(&self) {
        self.mechanism.descriptor().flush();
    }

    fn on_send_error(&self, error: &io::Error) {
        self.count(match Errno::from_io_error(error) {
            Some(Errno::AGAIN | Errno::NOBUFS) => "no room on the link",
            Some(Errno::MSGSIZE) => "longer than the MTU",
            Some(Errno::TOOBIG) => "too many segments",
            Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV | Errno::IO | Errno::BADFD) => {
                "link down"
            }
            _ => "not sent",
        });
    }

    /// What it could not receive or send so far, by reason.
    pub(crate) fn drops(&self) -> Counts {
        let refused = self.mechanism.descriptor().take_refused();
        if refused > 0 {
            *self.drops.borrow_mut().entry(REFUSED).or_default() += refused;
        }
        self.drops.borrow().clone()
    }

    /// Frames that nobody took in time so far. `None` if that is not known: a TAP device may be in another namespace.
    pub(crate) fn lost(&self) -> Option<u64> {
        let more = self.mechanism.descriptor().take_lost().ok()?;
        self.lost.set(self.lost.get() + more);
        Some(self.lost.get())
    }

    fn count(&self, reason: &'static str) {
        *self.drops.borrow_mut().entry(reason).or_default() += 1;
    }
}

fn frame(received: &Received<'_>, now: Instant) -> Frame {
    Frame {
        bytes: received.bytes.to_vec(),
        offload: received.offload,
        arrived: now.sub_ns(age_ns(received.age)),
    }
}

/// The age of a frame, unless the clock by which the kernel tells it was set meanwhile.
fn age_ns(age: Duration) -> u64 {
    match age {
        age if age > MOST_AGE => 0,
        age => age.as_nanos() as u64,
    }
}

/// Without a carrier, or for want of room in the driver.
const REFUSED: &str = "refused by the link";

/// A frame that has waited for longer is none.
const MOST_AGE: Duration = Duration::from_secs(1);
