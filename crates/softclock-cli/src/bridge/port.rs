//! One side of the bridge: a link whose frames are ours alone, or one that we made for the host.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use softclock::Descriptor;
use softclock_linux::bpf::{self, Attachment};
use softclock_linux::link::{Link, PacketSocket, Received, Tap};

use super::BridgeError;
use super::frame::{Counts, Frame};
use super::side::{Side, make_tap};

/// A link that the host leaves to us, or has from us, while this lives. The kernel undoes all of it when the process ends.
#[derive(Debug)]
pub(crate) struct Port {
    link: Link,
    access: Access,
    lost: Cell<u64>,
    /// What it could not receive or send, by reason.
    drops: RefCell<Counts>,
}

/// How a port exchanges frames.
#[derive(Debug)]
enum Access {
    /// By AF_PACKET; the attachment keeps the host from also handling what arrives.
    Packet(
        Descriptor<PacketSocket>,
        #[expect(dead_code, reason = "held for its end")] Attachment,
    ),
    /// As the other end of a link that the host has from us.
    Tap(Descriptor<Tap>),
}

impl Port {
    /// Takes a link over, or makes one, in a runtime.
    pub(crate) fn open(side: &Side) -> Result<Self, BridgeError> {
        let (link, access) = match side {
            Side::Link(link) => (link.clone(), Access::take_over(link)?),
            Side::Tap(name) => {
                let tap = make_tap(name)?;
                (tap.link().clone(), Access::Tap(watch(tap, name)?))
            }
        };
        Ok(Self {
            link,
            access,
            lost: Cell::new(0),
            drops: RefCell::default(),
        })
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// By what frames come and go.
    pub(crate) fn mechanism(&self) -> &'static str {
        match self.access {
            Access::Packet(..) => "packet",
            Access::Tap(_) => "tap",
        }
    }

    /// Waits for the next frame. Only a link that is gone ends this.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> Result<Frame, BridgeError> {
        let mut is_down = false;
        loop {
            let receiving = self.access.receive(buffer);
            let received = if is_down {
                // The kernel tells that a link goes down, and not that it goes away after that.
                match softclock::timeout(LOOK_UP, receiving).await {
                    Ok(received) => received,
                    Err(_) => Err(Errno::NETDOWN.into()),
                }
            } else {
                receiving.await
            };
            match received {
                Ok(received) => {
                    return Ok(Frame {
                        bytes: buffer[..received.bytes].to_vec(),
                        offload: received.offload,
                        arrived: softclock::now().sub_ns(age_ns(received.age)),
                    });
                }
                Err(error) => {
                    self.on_receive_error(&error)?;
                    is_down = Errno::from_io_error(&error) == Some(Errno::NETDOWN);
                }
            }
        }
    }

    fn on_receive_error(&self, error: &io::Error) -> Result<(), BridgeError> {
        match Errno::from_io_error(error) {
            // It may come up again; the socket stays bound to it.
            Some(Errno::NETDOWN) if self.link.exists() => Ok(()),
            Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV | Errno::BADFD) => {
                Err(BridgeError(format!("{} is gone", self.link.name())))
            }
            _ => {
                self.count(match error.kind() {
                    io::ErrorKind::InvalidInput => "unknown offload",
                    io::ErrorKind::InvalidData => "too long to receive",
                    _ => "not received",
                });
                Ok(())
            }
        }
    }

    /// Sends a frame, or drops it and counts why: one system call.
    pub(crate) fn send(&self, frame: &Frame) -> bool {
        let Err(error) = self.access.send(frame) else {
            return true;
        };
        self.count(match Errno::from_io_error(&error) {
            Some(Errno::AGAIN | Errno::NOBUFS) => "no room on the link",
            Some(Errno::MSGSIZE) => "longer than the MTU",
            Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV | Errno::IO | Errno::BADFD) => {
                "link down"
            }
            _ => "not sent",
        });
        false
    }

    /// What was lost at this port so far, by reason.
    pub(crate) fn drops(&self) -> Counts {
        let more = self.access.take_lost().unwrap_or(0);
        self.lost.set(self.lost.get() + more);
        let mut drops = self.drops.borrow().clone();
        if self.lost.get() > 0 {
            drops.insert("not taken in time", self.lost.get());
        }
        drops
    }

    fn count(&self, reason: &'static str) {
        *self.drops.borrow_mut().entry(reason).or_default() += 1;
    }
}

impl Access {
    fn take_over(link: &Link) -> Result<Self, BridgeError> {
        let name = link.name();
        let socket = PacketSocket::open(link, BUFFER_BYTES).map_err(|error| {
            BridgeError(match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    format!(
                        "no permission to take frames from {name}: it needs root or CAP_NET_RAW"
                    )
                }
                io::ErrorKind::Unsupported => format!("{name} has no Ethernet frames"),
                _ => format!("cannot take frames from {name}: {error}"),
            })
        })?;
        let shut = bpf::shut_ingress(link.index()).map_err(|error| {
            BridgeError(match error.kind() {
                io::ErrorKind::PermissionDenied => format!(
                    "no permission to keep the host from handling the frames of {name}: it needs root, or CAP_BPF and CAP_NET_ADMIN"
                ),
                io::ErrorKind::InvalidInput => {
                    format!("cannot keep the host from handling the frames of {name}: tcx needs Linux 6.6")
                }
                _ => format!("cannot keep the host from handling the frames of {name}: {error}"),
            })
        })?;
        Ok(Self::Packet(watch(socket, name)?, shut))
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Packet(socket, _) => {
                socket
                    .read_with(|_| socket.descriptor().receive(buffer))
                    .await
            }
            Self::Tap(tap) => tap.read_with(|_| tap.descriptor().receive(buffer)).await,
        }
    }

    fn send(&self, frame: &Frame) -> io::Result<()> {
        match self {
            Self::Packet(socket, _) => socket.descriptor().send(&frame.bytes, &frame.offload),
            Self::Tap(tap) => tap.descriptor().send(&frame.bytes, &frame.offload),
        }
    }

    fn take_lost(&self) -> io::Result<u64> {
        match self {
            Self::Packet(socket, _) => socket.descriptor().take_lost(),
            Self::Tap(tap) => tap.descriptor().take_lost(),
        }
    }
}

fn watch<F: AsFd>(fd: F, name: &str) -> Result<Descriptor<F>, BridgeError> {
    Descriptor::new(fd).map_err(|error| BridgeError(format!("cannot watch {name}: {error}")))
}

/// The age of a frame, unless the clock by which the kernel tells it was set meanwhile.
fn age_ns(age: Duration) -> u64 {
    match age {
        age if age > MOST_AGE => 0,
        age => age.as_nanos() as u64,
    }
}

/// A frame that has waited for longer is none.
const MOST_AGE: Duration = Duration::from_secs(1);

/// How often a link that is down is looked for.
const LOOK_UP: Duration = Duration::from_millis(200);

/// Frames that wait in the kernel: 40 ms at 1 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;
