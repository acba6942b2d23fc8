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
use super::queues::{Queues, all, take_from};
use super::taking::Taken;
use crate::net::{Interest, Kernel, Watched};
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

    /// Whether frames to multicast groups arrive. The programs of AF_XDP leave them to the host.
    pub(super) fn takes_groups(&self) -> bool {
        match self {
            Self::Devices(devices) => !matches!(devices.first.descriptor(), Device::Xdp(_)),
            Self::Channels(_) | Self::Lane(_) => false,
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

    /// The most frames that one call of [`take_frames`](Self::take_frames) passes on, with those of the lane.
    pub(super) fn most_received(&self) -> usize {
        let others = self.queues().map_or(0, Queues::len);
        match self {
            Self::Devices(_) | Self::Lane(_) => (1 + others) * BATCH,
            Self::Channels(channels) => channels.len() * BATCH,
        }
    }

    /// Passes frames that have arrived to `on_frame`, with the time now: at most a batch of each device, or of each
    /// channel that the stack receives from. Also takes the completions of transmissions. Frames of a lane are taken
    /// from [`lane`](Self::lane). Passes no trigger state.
    ///
    /// # Errors
    /// Those of a device.
    pub(super) fn take_frames(
        &self,
        mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
    ) -> io::Result<Taken> {
        match self {
            Self::Devices(devices) => {
                let first = take_from(&devices.first, &mut on_frame);
                all([first, devices.others.take_frames(on_frame)].into_iter())
            }
            Self::Channels(channels) => channels.take_frames(on_frame),
            Self::Lane(lane) => lane.queues().take_frames(on_frame),
        }
    }

    /// Returns `NetworkDown` if the thread with the device has closed it.
    pub(super) fn check_open(&self) -> io::Result<()> {
        match self.lane().is_some_and(LaneEnd::is_closed) {
            true => Err(io::ErrorKind::NetworkDown.into()),
            false => Ok(()),
        }
    }

    /// Whether there is a device; a lane may have none.
    pub(super) fn has_devices(&self) -> bool {
        match self {
            Self::Devices(_) | Self::Channels(_) => true,
            Self::Lane(lane) => lane.queues().len() > 0,
        }
    }

    /// Whether the poller has reported frames that are not taken.
    pub(super) fn is_reported(&self) -> bool {
        let mut is_reported = false;
        self.for_watched(&mut |device| {
            is_reported |= device.registration().is_ready(Direction::Read);
        });
        is_reported
    }

    /// Returns whether frames are reported already. Otherwise the next report wakes `cx`.
    pub(super) fn await_report(&self, cx: &Context<'_>) -> bool {
        let mut is_reported = false;
        self.for_watched(&mut |device| {
            is_reported |= device.registration().await_ready(cx, Direction::Read);
        });
        is_reported
    }

    /// Lets reports of frames wake no task.
    pub(super) fn forget_readers(&self) {
        let forget = |device: &dyn Watched| device.registration().forget_waiters(Direction::Read);
        self.for_watched(&mut |device| forget(device));
    }

    /// Sets what the poller reports of the devices, see [`Watched::set_interest`].
    pub(super) fn set_interest(&self, interest: Interest) -> io::Result<()> {
        let mut result = Ok(());
        self.for_watched(&mut |device| {
            if let Err(error) = device.set_interest(interest) {
                result = Err(error);
            }
        });
        result
    }

    fn for_watched(&self, f: &mut dyn FnMut(&dyn Watched)) {
        match self {
            Self::Devices(devices) => {
                f(&devices.first);
                devices.others.for_watched(f);
            }
            Self::Channels(channels) => channels.for_watched(f),
            Self::Lane(lane) => lane.queues().for_watched(f),
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
            first: Kernel::for_reading(first)?,
            others,
        })
    }
}
