//! The interface of a stack: devices whose frames this process demultiplexes, or channels that the XDP program fills.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use softclock_core::{Clock, Instant, TriggerState};
use softclock_linux::link::{
    BATCH, Device, Link, LongFrames, Pool, Received, Refused, XdpChannel, XdpChannels,
};
use softclock_net::stack::{Frame, Ring};

use super::lane::LaneEnd;
use crate::net::Kernel;
use crate::runtime::inner::Inner;
use crate::runtime::sources::Direction;

/// An opened interface, which no runtime watches yet.
pub(super) enum Opened {
    /// At least one: by AF_XDP one for each queue.
    Devices(Vec<Device>),
    Channels(XdpChannels, LongFrames),
    Lane(LaneEnd),
}

/// The interface of a stack, watched by its runtime.
pub(super) enum Interface {
    /// At least one. The stack sends by the first.
    Devices(Vec<Kernel<Device>>),
    Channels(Channels),
    /// Another thread has the device.
    Lane(LaneEnd),
}

/// The channels of NI-LRP: those of sockets are theirs, and the stack receives from the common ones.
pub(super) struct Channels {
    all: Arc<XdpChannels>,
    long: LongFrames,
    common: [Kernel<CommonChannel>; 3],
    pool: Pool,
}

/// A channel of frames that belong to no socket.
struct CommonChannel {
    channels: Arc<XdpChannels>,
    kind: CommonKind,
}

#[derive(Clone, Copy)]
enum CommonKind {
    Control,
    Fragments,
    Unclaimed,
}

impl Opened {
    /// Whether the kernel or the hardware cuts segments and completes checksums.
    pub(super) fn takes_offloads(&self) -> bool {
        match self {
            Self::Devices(devices) => devices.iter().all(Device::takes_offloads),
            Self::Channels(_, long) => long.are_taken(),
            Self::Lane(_) => false,
        }
    }
}

impl Interface {
    /// Makes the current runtime watch an interface.
    pub(super) fn watch(opened: Opened) -> io::Result<Self> {
        match opened {
            Opened::Devices(devices) => {
                let watched = devices.into_iter().map(Kernel::new);
                watched.collect::<io::Result<_>>().map(Self::Devices)
            }
            Opened::Channels(channels, long) => Channels::watch(channels, long).map(Self::Channels),
            Opened::Lane(lane) => Ok(Self::Lane(lane)),
        }
    }

    pub(super) fn runtime(&self) -> &Rc<Inner> {
        match self {
            Self::Devices(devices) => devices[0].runtime(),
            Self::Channels(Channels { common, .. }) => common[0].runtime(),
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

    /// The most frames that one call of [`poll_receive`](Self::poll_receive) passes on.
    pub(super) const fn most_received(&self) -> usize {
        match self {
            Self::Devices(devices) => devices.len() * BATCH,
            Self::Lane(_) => BATCH,
            Self::Channels(Channels { common, .. }) => common.len() * BATCH,
        }
    }

    /// Passes frames that have arrived to `on_frame`, with the time now: at most a batch of each device, or of each common
    /// channel. Pending if none has arrived. Frames of a lane are taken from [`lane`](Self::lane).
    pub(super) fn poll_receive(
        &self,
        cx: &Context<'_>,
        mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Devices(devices) => {
                let each = devices.iter().map(|device| {
                    device.poll_call(cx, Direction::Read, TriggerState::Receive, |_| {
                        let now = device.runtime().clock.now();
                        device
                            .descriptor()
                            .receive(|received| on_frame(now, received))
                    })
                });
                all(each)
            }
            Self::Channels(channels) => channels.poll_receive(cx, on_frame),
            Self::Lane(lane) => lane.poll_end(),
        }
    }

    /// Sends frames in order as [`Device::send_bytes`] does.
    pub(super) fn send(&self, frames: &VecDeque<Frame>) -> io::Result<usize> {
        let parts = frames
            .iter()
            .map(|frame| (&frame.bytes[..], &frame.offload));
        match self {
            Self::Devices(devices) => devices[0].quiet_call(Direction::Write, |_| {
                devices[0].descriptor().send_bytes(parts.clone())
            }),
            Self::Channels(channels) => {
                let all = &channels.all;
                (channels.long).send_among(parts, || all.is_behind(), |run| all.send(run))
            }
            Self::Lane(lane) => lane.send(frames),
        }
    }

    /// Returns whether the link may have room again after [`send`](Self::send) had none; else `cx` is woken when it
    /// has. The socket by which channels send is not watched, so that they try again after a pause.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        match self {
            Self::Devices(devices) => devices[0].registration().poll_ready(cx, Direction::Write),
            Self::Channels(_) => Poll::Pending,
            Self::Lane(lane) => lane.poll_room(cx),
        }
    }

    pub(super) fn is_behind(&self) -> bool {
        match self {
            Self::Devices(devices) => devices[0].descriptor().is_behind(),
            Self::Channels(channels) => channels.all.is_behind(),
            Self::Lane(_) => false,
        }
    }

    pub(super) fn flush(&self) {
        match self {
            Self::Devices(devices) => devices[0].descriptor().flush(),
            Self::Channels(channels) => channels.all.flush(),
            Self::Lane(_) => {}
        }
    }

    pub(super) fn take_refused(&self) -> u64 {
        match self {
            Self::Devices(devices) => devices[0].descriptor().take_refused(),
            Self::Channels(channels) => channels.all.take_refused(),
            Self::Lane(_) => 0,
        }
    }

    /// Counts frames that were lost since the last call, without those of sockets' channels.
    pub(super) fn take_lost(&self) -> io::Result<u64> {
        match self {
            Self::Devices(devices) => {
                let lost = devices.iter().map(|device| device.descriptor().take_lost());
                lost.sum()
            }
            Self::Channels(Channels { common, .. }) => {
                let lost = common.iter().map(|one| one.descriptor().channel());
                lost.map(XdpChannel::take_lost).sum()
            }
            Self::Lane(_) => Ok(0),
        }
    }

    pub(super) fn mechanism(&self) -> &'static str {
        match self {
            Self::Devices(devices) => devices[0].descriptor().mechanism(),
            Self::Channels(_) => "xdp",
            Self::Lane(_) => "lane",
        }
    }

    /// Whether this error of [`poll_receive`](Self::poll_receive) means that the link is gone. A link that is down may
    /// come up again.
    pub(super) fn is_end(&self, link: &Link, error: &io::Error) -> bool {
        if let Self::Lane(_) = self {
            return true;
        }
        if let Self::Devices(devices) = self
            && let tap @ Device::Tap(_) = devices[0].descriptor()
        {
            // It may have been moved to another namespace, where it cannot be looked up.
            return tap.is_deletion(error);
        }
        !link.exists()
    }
}

impl Channels {
    fn watch(channels: XdpChannels, long: LongFrames) -> io::Result<Self> {
        let all = Arc::new(channels);
        let kinds = [
            CommonKind::Control,
            CommonKind::Fragments,
            CommonKind::Unclaimed,
        ];
        let [control, fragments, unclaimed] = kinds.map(|kind| {
            let channels = all.clone();
            Kernel::duplicated(CommonChannel { channels, kind })
        });
        Ok(Self {
            common: [control?, fragments?, unclaimed?],
            all,
            long,
            pool: Pool::new(),
        })
    }

    /// All channels, to add those of sockets.
    pub(super) fn all(&self) -> &Arc<XdpChannels> {
        &self.all
    }

    /// The program's counts of frames that it discarded since a common channel was full, with the ring of the stack
    /// that they are for.
    pub(super) fn discarded(&self) -> [(Ring, u64); 3] {
        self.common.each_ref().map(|one| {
            let one = one.descriptor();
            let ring = match one.kind {
                CommonKind::Control | CommonKind::Unclaimed => Ring::Control,
                CommonKind::Fragments => Ring::Fragments,
            };
            (ring, one.channel().discarded())
        })
    }

    fn poll_receive(
        &self,
        cx: &Context<'_>,
        mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
    ) -> Poll<io::Result<usize>> {
        let each = self.common.iter().map(|one| {
            one.poll_call(cx, Direction::Read, TriggerState::Receive, |_| {
                let now = one.runtime().clock.now();
                let channel = one.descriptor().channel();
                channel.receive(|received| {
                    let received = received.map(|received| {
                        // A frame may wait for a receiver of a group that is behind, and must leave room for others:
                        // above the limit it is copied.
                        let is_full = channel.held() > channel.limit() as usize / 2;
                        received.map(|chunk| match is_full {
                            true => self.pool.copy_of(&chunk),
                            false => chunk.into(),
                        })
                    });
                    on_frame(now, received);
                })
            })
        });
        all(each)
    }
}

/// The sum of what has been received, if anything has, or an error.
fn all(each: impl Iterator<Item = Poll<io::Result<usize>>>) -> Poll<io::Result<usize>> {
    each.fold(Poll::Pending, |before, received| match (before, received) {
        (before, Poll::Pending) => before,
        (Poll::Ready(Ok(before)), Poll::Ready(Ok(more))) => Poll::Ready(Ok(before + more)),
        (_, received) => received,
    })
}

impl CommonChannel {
    fn channel(&self) -> &XdpChannel {
        match self.kind {
            CommonKind::Control => self.channels.control(),
            CommonKind::Fragments => self.channels.fragments(),
            CommonKind::Unclaimed => self.channels.unclaimed(),
        }
    }
}

impl AsFd for CommonChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel().as_fd()
    }
}
