//! The interface of a stack: devices whose frames this process demultiplexes, or channels that the XDP program fills.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use softclock_core::Instant;
use softclock_linux::link::{BATCH, Device, Link, LongFrames, Received, Refused, XdpChannels};
use softclock_net::stack::Frame;

use super::channels::Channels;
use super::lane::LaneEnd;
use super::queues::{Queues, all, poll_device};
use crate::net::Kernel;
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// An opened interface, which no runtime watches yet.
pub(super) enum Opened {
    /// At least one: by AF_XDP one for each queue.
    Devices(Vec<Device>),
    Channels(Arc<XdpChannels>, LongFrames),
    Lane(LaneEnd),
}

/// The interface of a stack, watched by its runtime.
pub(super) enum Interface {
    Devices(Devices),
    Channels(Box<Channels>),
    /// Another thread has the device.
    Lane(LaneEnd),
}

/// The device of a stack, or one for each queue.
pub(super) struct Devices {
    /// The stack sends by it.
    first: Kernel<Device>,
    /// The other queues that this thread receives from.
    others: Queues,
}

impl Opened {
    /// Whether the kernel or the hardware cuts segments and completes checksums.
    pub(super) fn takes_offloads(&self) -> bool {
        match self {
            Self::Devices(devices) => devices[0].takes_offloads(),
            Self::Channels(_, long) => long.are_taken(),
            Self::Lane(_) => false,
        }
    }
}

impl Interface {
    /// Makes the current runtime watch an interface.
    pub(super) fn watch(opened: Opened) -> io::Result<Self> {
        match opened {
            Opened::Devices(devices) => Devices::watch(devices).map(Self::Devices),
            Opened::Channels(channels, long) => {
                let channels = Channels::watch(channels, long)?;
                Ok(Self::Channels(Box::new(channels)))
            }
            Opened::Lane(lane) => Ok(Self::Lane(lane)),
        }
    }

    pub(super) fn runtime(&self) -> &Rc<Inner> {
        match self {
            Self::Devices(devices) => devices.first.runtime(),
            Self::Channels(channels) => channels.runtime(),
            Self::Lane(lane) => lane.runtime(),
        }
    }

    /// The channels of NI-LRP, if this is one.
    pub(super) const fn channels(&self) -> Option<&Channels> {
        match self {
            Self::Channels(channels) => Some(channels),
            Self::Devices(_) | Self::Lane(_) => None,
        }
    }

    /// The end of a lane, if another thread has the device.
    pub(super) const fn lane(&self) -> Option<&LaneEnd> {
        match self {
            Self::Lane(lane) => Some(lane),
            Self::Devices(_) | Self::Channels(_) => None,
        }
    }

    /// The queues that this thread receives from, without the one that never moves to another.
    pub(super) const fn queues(&self) -> Option<&Queues> {
        match self {
            Self::Devices(devices) => Some(&devices.others),
            Self::Lane(lane) => Some(lane.queues()),
            Self::Channels(_) => None,
        }
    }

    /// The most frames that one call of [`poll_receive`](Self::poll_receive) passes on, with those of the lane.
    pub(super) fn most_received(&self) -> usize {
        let others = self.queues().map_or(0, Queues::len);
        match self {
            Self::Devices(_) | Self::Lane(_) => (1 + others) * BATCH,
            Self::Channels(channels) => channels.len() * BATCH,
        }
    }

    /// Passes frames that have arrived to `on_frame`, with the time now: at most a batch of each device, or of each
    /// channel that the stack receives from. Pending if none has arrived. Frames of a lane are taken from
    /// [`lane`](Self::lane).
    pub(super) fn poll_receive(
        &self,
        cx: &Context<'_>,
        mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Devices(devices) => {
                let first = poll_device(&devices.first, cx, &mut on_frame);
                all([first, devices.others.poll_receive(cx, on_frame)].into_iter())
            }
            Self::Channels(channels) => channels.poll_receive(cx, on_frame),
            Self::Lane(lane) => match lane.is_closed() {
                true => Poll::Ready(Err(io::ErrorKind::NetworkDown.into())),
                false => lane.queues().poll_receive(cx, on_frame),
            },
        }
    }

    /// Lets the next [`poll_receive`](Self::poll_receive) read each device, even if the poller has reported no frames.
    pub(super) fn assume_readable(&self) {
        match self {
            Self::Devices(devices) => {
                devices.first.registration().assume_readable();
                devices.others.assume_readable();
            }
            Self::Channels(channels) => channels.assume_readable(),
            Self::Lane(lane) => lane.queues().assume_readable(),
        }
    }

    /// Sends frames in order as [`Device::send_bytes`] does.
    pub(super) fn send(&self, frames: &VecDeque<Frame>) -> io::Result<usize> {
        let parts = frames
            .iter()
            .map(|frame| (&frame.bytes[..], &frame.offload));
        match self {
            Self::Devices(Devices { first, .. }) => first.quiet_call(Direction::Write, |_| {
                first.descriptor().send_bytes(parts.clone())
            }),
            Self::Channels(channels) => {
                let all = channels.all();
                (channels.long()).send_among(parts, || all.is_behind(), |run| all.send(run))
            }
            Self::Lane(lane) => lane.send(frames),
        }
    }

    /// Returns whether the link may have room again after [`send`](Self::send) had none; else `cx` is woken when it
    /// has. The socket by which channels send is not watched, so that they try again after a pause.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        match self {
            Self::Devices(devices) => {
                let registration = devices.first.registration();
                registration.poll_ready(cx, Direction::Write)
            }
            Self::Channels(_) => Poll::Pending,
            Self::Lane(lane) => lane.poll_room(cx),
        }
    }

    pub(super) fn is_behind(&self) -> bool {
        match self {
            Self::Devices(devices) => devices.first.descriptor().is_behind(),
            Self::Channels(channels) => channels.all().is_behind(),
            Self::Lane(lane) => lane.queues().is_behind(),
        }
    }

    pub(super) fn flush(&self) {
        match self {
            Self::Devices(devices) => devices.first.descriptor().flush(),
            Self::Channels(channels) => channels.all().flush(),
            Self::Lane(lane) => lane.queues().flush(),
        }
    }

    pub(super) fn take_refused(&self) -> u64 {
        match self {
            Self::Devices(devices) => devices.first.descriptor().take_refused(),
            Self::Channels(channels) => channels.all().take_refused(),
            Self::Lane(lane) => lane.queues().take_refused(),
        }
    }

    /// Counts frames that were lost since the last call, without those of sockets' channels.
    pub(super) fn take_lost(&self) -> io::Result<u64> {
        match self {
            Self::Devices(devices) => {
                let first = devices.first.descriptor().take_lost();
                Ok(first? + devices.others.take_lost()?)
            }
            Self::Channels(channels) => channels.take_lost(),
            Self::Lane(lane) => lane.queues().take_lost(),
        }
    }

    pub(super) fn mechanism(&self) -> &'static str {
        match self {
            Self::Devices(devices) => devices.first.descriptor().mechanism(),
            Self::Channels(_) => "xdp",
            Self::Lane(_) => "lane",
        }
    }

    /// Whether this error of [`poll_receive`](Self::poll_receive) means that the link is gone. A link that is down may
    /// come up again.
    pub(super) fn is_end(&self, link: &Link, error: &io::Error) -> bool {
        if let Self::Lane(lane) = self {
            // The thread with the device watches the link.
            return lane.is_closed();
        }
        if let Self::Devices(devices) = self
            && let tap @ Device::Tap(_) = devices.first.descriptor()
        {
            // It may have been moved to another namespace, where it cannot be looked up.
            return tap.is_deletion(error);
        }
        !link.exists()
    }
}

impl Devices {
    fn watch(devices: Vec<Device>) -> io::Result<Self> {
        let mut devices = devices.into_iter();
        let first = devices.next().ok_or(io::ErrorKind::InvalidInput)?;
        let others = Queues::default();
        for (number, device) in (1..).zip(devices) {
            others.add_device(number, device)?;
        }
        Ok(Self {
            first: Kernel::new(first)?,
            others,
        })
    }
}
