//! NI-LRP: the XDP program demultiplexes into a channel for each receiver, and discards what a channel has no room for.
//! All other work is the receivers': each takes frames from its channel and runs the protocols for them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use softclock_core::Instant;
use softclock_linux::clock::monotonic_ns;
use softclock_linux::link::{
    ChannelSettings, Copies, EndpointKey, Link as Interface, PollSettings, Poller, Polling,
    Transport, XdpChannel, XdpChannels, XdpFilter, XdpSettings,
};
use softclock_linux::priority::Priority;
use softclock_net::stack::{Architecture, EndpointId, RingFrame, Stack, Taken};

use super::eager_stack::{stack, verify};
use super::network::Link;
use super::pace::{Busy, Pace};
use super::receiver::Worker;
use super::stopping::Stop;
use super::{INTERRUPT_PRIORITY, STOP_CHECK};
use crate::measure::processors::pin;

/// The channels of a server.
#[derive(Debug)]
pub(super) struct Channels {
    /// One for each service.
    pub(super) of_services: Vec<Arc<XdpChannel>>,
    all: XdpChannels,
    /// If the receivers drive the link's receive work.
    polling: Option<Polling>,
    /// The receivers that are awake.
    awake: AtomicUsize,
    /// Polls for receivers that wait while others are awake.
    level: OnceLock<Thread>,
    busy: Busy,
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
            streams: 0,
            stream_limit: 64,
            common_limit: 64,
            peers: 0,
        };
        let channels = XdpChannels::open(&link, settings);
        let channels = channels.map_err(io::Error::other)?;
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
            level: OnceLock::new(),
            busy: Busy::default(),
        })
    }

    /// Polls; returns the number of frames to all channels, and whether the poller's socket is readable.
    fn poll(&self, poller: &mut Poller) -> (usize, bool) {
        let before = self.handled();
        // An error is that of a link that is down.
        let is_readable = poller.poll().unwrap_or(false);
        let frames = (self.handled() - before) as usize;
        self.busy.polled(monotonic_ns(), frames);
        (frames, is_readable)
    }

    /// The frames that the XDP program has put into channels of services, or discarded.
    fn handled(&self) -> u64 {
        let channels = self.of_services.iter();
        channels
            .map(|channel| channel.delivered() + channel.discarded())
            .sum()
    }
}

/// Polls at a limited pace while receivers wait and others are awake, until `stop`: a receiver that polled for itself
/// would have used its turn when a packet comes. Reports on `opened`.
pub(super) fn run_level(
    channels: &Channels,
    processor: Option<usize>,
    stop: &Stop,
    opened: &mpsc::Sender<io::Result<()>>,
) {
    pin(processor);
    channels.level.get_or_init(thread::current);
    let poller = |polling: &Polling| polling.poller(&channels.all);
    let begun = Priority::Fifo(INTERRUPT_PRIORITY)
        .apply()
        .and_then(|()| channels.polling.as_ref().map(poller).transpose());
    let mut poller = match begun {
        Ok(poller) => {
            // The starter waits for this message.
            let _ = opened.send(Ok(()));
            poller
        }
        Err(error) => {
            let _ = opened.send(Err(error));
            return;
        }
    };
    let receivers = channels.of_services.len();
    let mut pace = Pace::of_waiting();
    while stop.goes_on()
        && let Some(poller) = &mut poller
    {
        let does_poll = || (1..receivers).contains(&channels.awake.load(SeqCst));
        thread::park_timeout(match does_poll() {
            true => pace.pause(monotonic_ns()).min(STOP_CHECK),
            false => STOP_CHECK,
        });
        if does_poll() && pace.is_due(monotonic_ns()) {
            pace.drain(|| channels.poll(poller).0);
        }
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
            Taken::Nothing => {
                worker.slice.waits();
                receiver.sleep();
            }
        }
    }
    Ok(())
}

/// A receiver with a channel and a stack of its own.
struct Receiver<'a> {
    channels: &'a Channels,
    channel: &'a XdpChannel,
    stack: Stack<Vec<u8>>,
    id: EndpointId,
    /// Frames that are taken from the channel.
    frames: VecDeque<RingFrame<Vec<u8>>>,
    /// Polls until the channel has frames, and waits for them.
    poller: Option<Poller>,
    /// Polls, whether or not the channel has frames.
    paced: Option<Poller>,
    /// The pace of polls while there are packets.
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
            pace: Pace::of_work(),
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
            let (frames, _) = self.channels.poll(poller);
            self.pace.polled(begun, monotonic_ns(), frames > 0);
        }
    }

    /// Looks into the link's ring, and waits for frames if that has none for this channel.
    fn sleep(&mut self) {
        loop {
            let Some(poller) = &mut self.poller else {
                self.wait(STOP_CHECK);
                return;
            };
            let (_, was_readable) = self.channels.poll(poller);
            if self.take() {
                return;
            }
            // Else the channel was readable since an earlier poll, and this one has not looked at the link.
            if !was_readable {
                break;
            }
        }
        let is_busy = self.channels.busy.is_busy(monotonic_ns());
        match self.channels.awake.fetch_sub(1, SeqCst) - 1 {
            // Nothing polls from now on, so interrupts must come.
            0 if !is_busy => {
                let wait = |poller: &mut Poller| poller.wait(STOP_CHECK);
                let _ = self.poller.as_mut().map(wait);
            }
            0 => self.wait(Busy::PAUSE),
            _ => {
                if let Some(level) = self.channels.level.get() {
                    level.unpark();
                }
                self.wait(STOP_CHECK);
            }
        }
        self.channels.awake.fetch_add(1, SeqCst);
    }

    /// Waits for frames in the channel.
    fn wait(&self, most: Duration) {
        let wait = Timespec::try_from(most).unwrap_or_default();
        let _ = poll(
            &mut [PollFd::from_borrowed_fd(
                self.channel.as_fd(),
                PollFlags::IN,
            )],
            Some(&wait),
        );
    }
}
