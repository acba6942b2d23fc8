//! NI-LRP: the XDP program demultiplexes into a channel for each receiver, and discards what a channel has no room for.
//! All other work is the receivers': each takes frames from its channel and runs the protocols for them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use softclock_core::Instant;
use softclock_linux::clock::monotonic_ns;
use softclock_linux::link::{
    ChannelSettings, Copies, EndpointKey, Link as Interface, PollSettings, Poller, Polling,
    SharedXdpChannel, SharedXdpChannels, Transport, XdpFilter, XdpSettings,
};
use softclock_net::stack::{Architecture, EndpointId, RingFrame, Stack, Taken};

use super::demultiplexer::{stack, verify};
use super::network::Link;
use super::pace::Pace;
use super::receiver::{LOOK_UP, Worker};
use super::stopping::Stop;

/// The channels of a server.
#[derive(Debug)]
pub(super) struct Channels {
    /// One for each service.
    pub(super) of_services: Vec<Arc<SharedXdpChannel>>,
    all: SharedXdpChannels,
    /// If the receivers drive the link's receive work.
    polling: Option<Polling>,
    /// The receivers that are awake.
    awake: AtomicUsize,
}

impl Channels {
    /// Opens the interface, with a channel of `limit` frames for each port. Call it in the server's namespace.
    pub(super) fn open(
        interface: &str,
        ports: &[u16],
        limit: u32,
        is_polled: bool,
    ) -> io::Result<Self> {
        let link = Interface::named(interface)?;
        let address = Link::Server.address().into();
        let settings = ChannelSettings {
            link: XdpSettings {
                copies: Copies::Allowed,
                queue: None,
                filter: XdpFilter::Addresses(vec![address]),
            },
            channels: ports.len() as u32,
            limit,
            common_limit: 64,
        };
        let channels = SharedXdpChannels::open(&link, settings);
        let channels = channels.map_err(|error| io::Error::other(format!("{error:?}")))?;
        let add = |&port: &u16| {
            let key = EndpointKey {
                transport: Transport::Udp,
                address,
                port,
            };
            channels.add(&[key], limit).map(Arc::new)
        };
        let polling = is_polled.then(|| Polling::of_queue(&link, 0, PollSettings::default()));
        Ok(Self {
            of_services: ports.iter().map(add).collect::<io::Result<_>>()?,
            all: channels,
            polling: polling.transpose()?,
            awake: AtomicUsize::new(ports.len()),
        })
    }
}

/// Serves the datagrams of the channel of this number until `stop`.
pub(super) fn run(
    worker: &Worker<'_>,
    channels: &Channels,
    number: usize,
    stop: &Stop,
) -> io::Result<()> {
    let mut receiver = Receiver::new(channels, number, worker.service.port)?;
    while stop.goes_on() {
        match receiver.next() {
            Taken::Datagram(datagram) => {
                let arrived = datagram.arrived.as_ns();
                worker.serve(datagram.source, datagram.payload(), arrived);
                receiver.keep_pace();
            }
            Taken::Other => {}
            Taken::Nothing => receiver.sleep(),
        }
    }
    Ok(())
}

/// A receiver with a channel and a stack of its own.
struct Receiver<'a> {
    channels: &'a Channels,
    channel: &'a SharedXdpChannel,
    stack: Stack<Vec<u8>>,
    id: EndpointId,
    /// Frames that are taken from the channel.
    frames: VecDeque<RingFrame<Vec<u8>>>,
    /// Polls until the channel has frames.
    poller: Option<Poller>,
    /// Polls although the channel has frames.
    paced: Option<Poller>,
    pace: Pace,
}

impl<'a> Receiver<'a> {
    fn new(channels: &'a Channels, number: usize, port: u16) -> io::Result<Self> {
        let mut stack = stack(Architecture::NiLrp)?;
        let id = stack.bind(Link::Server.port(port));
        let channel = &channels.of_services[number];
        let polling = channels.polling.as_ref();
        let poller = polling.map(|of| of.poller(&**channel)).transpose()?;
        let paced = polling.map(|of| of.poller(&channels.all)).transpose()?;
        Ok(Self {
            channels,
            channel,
            id: id.map_err(io::Error::other)?,
            stack,
            frames: VecDeque::new(),
            poller,
            paced,
            pace: Pace::default(),
        })
    }

    /// Takes the next packet, with the protocols' work for it.
    fn next(&mut self) -> Taken<Vec<u8>> {
        if self.frames.is_empty() {
            self.take();
        }
        let now = Instant::from_ns(monotonic_ns());
        self.stack
            .receive_next(now, self.id, || self.frames.pop_front())
    }

    /// Takes frames from the channel; returns whether there were any.
    fn take(&mut self) -> bool {
        let now = Instant::from_ns(monotonic_ns());
        let taken = self.channel.receive(|frame| {
            // No client sends frames that a channel refuses.
            if let Ok(frame) = frame {
                self.frames.push_back(RingFrame {
                    bytes: frame.bytes.to_vec(),
                    arrived: now - frame.age,
                    verify: verify(&frame.offload),
                });
            }
        });
        taken.is_ok()
    }

    /// Polls, if that is due although there are packets.
    fn keep_pace(&mut self) {
        let begun = monotonic_ns();
        if let Some(poller) = &mut self.paced
            && self.pace.is_due(begun)
        {
            let handled = |channel: &SharedXdpChannel| channel.delivered() + channel.discarded();
            let before = handled(self.channel);
            // An error is that of a link that is down.
            let _ = poller.poll();
            let has_found = handled(self.channel) != before;
            self.pace.polled(begun, monotonic_ns(), has_found);
        }
    }

    /// Polls until the channel has frames or the link has none; returns whether the channel has.
    fn poll(&mut self) -> bool {
        let Some(poller) = &mut self.poller else {
            return false;
        };
        // An error is that of a link that is down.
        poller.poll().unwrap_or(false)
    }

    /// Looks into the link's ring, and waits for frames if that has none for this channel.
    fn sleep(&mut self) {
        if self.poll() {
            return;
        }
        let is_last = self.channels.awake.fetch_sub(1, SeqCst) == 1;
        match &mut self.poller {
            // Nothing polls from now on, so interrupts must come.
            Some(poller) if is_last => {
                let _ = poller.wait(LOOK_UP);
            }
            _ => {
                let wait = Timespec::try_from(LOOK_UP).unwrap_or_default();
                let fd = self.channel.as_fd();
                let _ = poll(
                    &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
                    Some(&wait),
                );
            }
        }
        self.channels.awake.fetch_add(1, SeqCst);
    }
}
