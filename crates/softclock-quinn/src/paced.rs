//! A socket for quinn that sends at an even rate.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, UdpPoller};
use softclock_tokio::pacing::{Outlet, PacedSender};
use softclock_tokio::{Counts, Limits, Pacing, Rate, Timers};

use crate::learnt::{Learnt, Made, take_sending};
use crate::runtime::{LoopTimer, is_on_softclock};
use crate::trains::TRAIN;

/// Creates a socket that sends at the rate of `pacing`, which all connections of its endpoint share. Pass it to
/// [`quinn::Endpoint::new_with_abstract_socket`].
///
/// `runtime` receives, and is the one that the endpoint gets. A queue shorter than 20 datagrams is extended to 20,
/// since quinn hands over up to ten by one call.
///
/// A full queue delays all datagrams of quinn, also acknowledgments: 64 datagrams take 8 ms at 100 Mbit/s, and 78 ms at
/// 10 Mbit/s. quinn forgets a closed connection after three probe timeouts (75 ms and more), and the peer does not
/// learn of it if the queue takes longer. So keep the queue short at low rates.
///
/// # Errors
/// Those of `runtime` for the socket.
///
/// # Panics
/// If `runtime` is not softclock's and the [timer thread](Timers::global) cannot be started.
pub fn paced(
    socket: UdpSocket,
    runtime: &dyn Runtime,
    pacing: Pacing,
) -> io::Result<Arc<PacedSocket>> {
    let socket = Socket::new(runtime.wrap_udp_socket(socket)?);
    let limits = valid(pacing.limits());
    let sender = Timing::of(&socket).sender(&socket, Some(pacing), limits);
    Ok(Arc::new(PacedSocket {
        socket,
        rate: RateSource::Stated(sender),
    }))
}

/// Creates a socket that sends the datagrams of each connection at a rate learnt from its congestion window and round
/// trip. Requires [`observed`](crate::observed) in the transport configuration; other connections are not paced.
///
/// Each connection has a queue of its own with these `limits`, extended as for [`paced`]. Not paced are datagrams
/// before the first sample of the round trip, connections so fast that a burst takes less than 10 us, and datagrams of
/// no connection, such as stateless resets.
///
/// # Errors
/// Those of `runtime` for the socket.
///
/// # Panics
/// If `runtime` is not softclock's and the [timer thread](Timers::global) cannot be started.
pub fn paced_by_window(
    socket: UdpSocket,
    runtime: &dyn Runtime,
    limits: Limits,
) -> io::Result<Arc<PacedSocket>> {
    let socket = Socket::new(runtime.wrap_udp_socket(socket)?);
    let rate = RateSource::Window {
        limits: valid(limits),
        timing: Timing::of(&socket),
    };
    Ok(Arc::new(PacedSocket { socket, rate }))
}

fn valid(limits: Limits) -> Limits {
    Limits {
        queue: limits.queue.max(2 * MOST_SEGMENTS as u32),
        ..limits
    }
}

/// A socket for quinn, created by [`paced`] and [`paced_by_window`].
#[derive(Debug)]
pub struct PacedSocket {
    socket: Socket,
    rate: RateSource,
}

#[derive(Debug)]
enum RateSource {
    /// One sender for the socket.
    Stated(Arc<PacedSender<Socket>>),
    /// A sender for each connection, which its poller creates.
    Window { limits: Limits, timing: Timing },
}

/// What sends the datagrams that are due.
#[derive(Clone, Debug)]
enum Timing {
    Thread(Timers),
    /// The loop of the softclock runtime that quinn runs on.
    Loop,
}

impl Timing {
    /// Returns the timing for a socket that its runtime has just wrapped on this thread.
    fn of(socket: &Socket) -> Self {
        match is_on_softclock(&socket.own) {
            true => Self::Loop,
            false => Self::Thread(Timers::global()),
        }
    }

    fn sender(
        &self,
        socket: &Socket,
        pacing: Option<Pacing>,
        limits: Limits,
    ) -> Arc<PacedSender<Socket>> {
        let socket = socket.clone();
        match self {
            Self::Thread(timers) => PacedSender::new(socket, pacing, limits, timers.sender_timer()),
            Self::Loop => PacedSender::new(socket, pacing, limits, LoopTimer::new()),
        }
    }
}

thread_local! {
    /// The connection that has just found room for a transmission on this thread.
    static NEXT: Cell<Option<Next>> = const { Cell::new(None) };
}

/// The sender for a transmission.
struct Next {
    sender: Arc<PacedSender<Socket>>,
    /// What the connection has made last, if it was this transmission.
    made: Option<Made>,
}

impl PacedSocket {
    /// Returns the numbers of datagrams sent, dropped and waiting, if the rate is stated. Keep a clone of the [`Arc`]
    /// for it, as the endpoint takes the other. The senders of connections are counted by quinn
    /// ([`quinn::Connection::stats`]).
    pub fn counts(&self) -> Option<Counts> {
        match &self.rate {
            RateSource::Stated(sender) => Some(sender.counts()),
            RateSource::Window { .. } => None,
        }
    }
}

impl AsyncUdpSocket for PacedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller {
            own: self.socket.own.clone().create_io_poller(),
            socket: self,
            connection: None,
            is_new: true,
            is_waiting: false,
            candidate: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let next = match &self.rate {
            RateSource::Stated(sender) => Some(Next {
                sender: sender.clone(),
                made: None,
            }),
            RateSource::Window { .. } => NEXT.take(),
        };
        let Some(next) = next else {
            return self.socket.own.try_send(transmit);
        };
        let flow = Flow {
            destination: transmit.destination,
            ecn: transmit.ecn,
            source: transmit.src_ip,
        };
        match next.try_send(&flow, transmit) {
            // The error of an earlier datagram, which quinn treats as lost. This one was not queued.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                next.try_send(&flow, transmit)
            }
            result => result,
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.socket.own.poll_recv(cx, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.own.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.own.max_transmit_segments().min(MOST_SEGMENTS)
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.own.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.own.may_fragment()
    }
}

impl Next {
    fn try_send(&self, flow: &Flow, transmit: &Transmit<'_>) -> io::Result<()> {
        let length = transmit.contents.len();
        let segment_bytes = transmit.segment_size.unwrap_or(length).max(1);
        let learnt = self.sender.outlet().learnt.as_deref();
        // Before the call, which may send them.
        if let Some(learnt) = learnt {
            let datagrams = length.div_ceil(segment_bytes).max(1);
            let made = self.made.filter(|made| made.bytes == length as u64);
            learnt.on_queued(
                datagrams,
                segment_bytes,
                made.map(|made| made.packet_number),
            );
        }
        let result = (self.sender).try_send(flow.clone(), transmit.contents, segment_bytes);
        if let (Some(learnt), Err(_)) = (learnt, &result) {
            learnt.on_refused();
        }
        result
    }
}

/// Waits for room in the queue of one connection.
#[derive(Debug)]
struct Poller {
    socket: Arc<PacedSocket>,
    /// Waits for room in the socket itself.
    own: Pin<Box<dyn UdpPoller>>,
    connection: Option<Connection>,
    /// Whether nothing has been sent yet.
    is_new: bool,
    /// Whether quinn keeps what it has made until there is room.
    is_waiting: bool,
    /// What another controller than the connection's has learnt that was the last to make datagrams.
    candidate: Option<Arc<Learnt>>,
}

/// The sender of a connection, and what its congestion controller has learnt.
#[derive(Debug)]
struct Connection {
    sender: Arc<PacedSender<Socket>>,
    learnt: Arc<Learnt>,
    /// What the connection has made and not handed over.
    made: Option<Made>,
    /// The rate that the sender has, and the datagrams that it joins at least.
    current: (Option<Rate>, u32),
}

impl UdpPoller for Poller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let room = this.poll_room(cx);
        this.is_waiting = room.is_pending();
        room
    }
}

impl Poller {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sending = take_sending();
        let (limits, timing) = match &self.socket.rate {
            RateSource::Stated(sender) => {
                return sender.poll_room(cx, MOST_SEGMENTS).map(Ok);
            }
            RateSource::Window { limits, timing } => (*limits, timing.clone()),
        };
        if let Some(sending) = sending.filter(|sending| self.is_own(&sending.learnt)) {
            let known = self.connection.take();
            let same = known.filter(|known| Arc::ptr_eq(&known.learnt, &sending.learnt));
            let mut connection = same.unwrap_or_else(|| {
                if limits.burst < TRAIN {
                    sending.learnt.end_measuring();
                }
                let socket = Socket {
                    learnt: Some(sending.learnt.clone()),
                    ..self.socket.socket.clone()
                };
                Connection {
                    sender: timing.sender(&socket, None, limits),
                    learnt: sending.learnt,
                    made: None,
                    current: (None, 1),
                }
            });
            connection.made = Some(sending.made);
            self.connection = Some(connection);
        }
        let Some(connection) = &mut self.connection else {
            // The connection's congestion controller is not observed.
            NEXT.set(None);
            return self.own.as_mut().poll_writable(cx);
        };
        connection.update(limits);
        ready!(connection.sender.poll_room(cx, MOST_SEGMENTS));
        NEXT.set(Some(Next {
            sender: connection.sender.clone(),
            made: connection.made.take(),
        }));
        Poll::Ready(Ok(()))
    }

    /// Whether the datagrams that a controller has made last on this thread are those of this connection. Not all
    /// datagrams pass the controller, such as probes of the MTU, and before them another connection of the thread, with
    /// a socket of its own, may have made some. So another controller, such as that of a new path, has to be the last
    /// one twice.
    fn is_own(&mut self, learnt: &Arc<Learnt>) -> bool {
        if self.is_waiting {
            return false;
        }
        let is_same = |other: &Arc<Learnt>| Arc::ptr_eq(other, learnt);
        let is_known = match &self.connection {
            Some(connection) => is_same(&connection.learnt),
            None => self.is_new,
        };
        let is_own = is_known || self.candidate.as_ref().is_some_and(is_same);
        self.is_new = false;
        self.candidate = (!is_own).then(|| learnt.clone());
        is_own
    }
}

impl Connection {
    /// Passes a changed rate on to the sender.
    fn update(&mut self, limits: Limits) {
        let rate = self.learnt.rate().filter(|rate| {
            let burst = u64::from(limits.burst) * FULL_BYTES;
            rate.time_of(burst) >= SHORTEST_BURST
        });
        let joined = self.learnt.joined();
        let is_same = match (self.current, rate) {
            ((Some(current), was_joined), Some(rate)) => {
                // Each change ends the sender's catching up, so small ones are not worth it.
                let change = current.bps().abs_diff(rate.bps());
                change <= current.bps() / SMALL && joined == was_joined
            }
            ((current, _), rate) => current == rate,
        };
        if !is_same {
            self.current = (rate, joined);
            let pacing = |rate| Pacing::of_rate(rate).joining(joined);
            self.sender.set_pacing(rate.map(pacing));
        }
    }
}

/// The socket of the runtime, as the outlet of a sender.
#[derive(Clone)]
struct Socket {
    own: Arc<dyn AsyncUdpSocket>,
    /// What is learnt of the connection whose sender it is.
    learnt: Option<Arc<Learnt>>,
}

impl Socket {
    fn new(own: Arc<dyn AsyncUdpSocket>) -> Self {
        Self { own, learnt: None }
    }

    /// Sends by as many calls as the device needs. Returns the bytes that it has taken, and whether one call was
    /// enough.
    fn send_all(
        &self,
        flow: &Flow,
        bytes: &[u8],
        segment_bytes: usize,
    ) -> io::Result<(usize, bool)> {
        let transmit = |contents, segment_size| Transmit {
            destination: flow.destination,
            ecn: flow.ecn,
            contents,
            segment_size,
            src_ip: flow.source,
        };
        if bytes.len() <= segment_bytes {
            self.own.try_send(&transmit(bytes, None))?;
            return Ok((bytes.len(), true));
        }
        // The limit falls to 1 when the device turns out to have no segmentation.
        let most = (self.own.max_transmit_segments() * segment_bytes).max(segment_bytes);
        let mut sent = 0;
        for part in bytes.chunks(most) {
            let size = (part.len() > segment_bytes).then_some(segment_bytes);
            match self.own.try_send(&transmit(part, size)) {
                Ok(()) => sent += part.len(),
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((sent, bytes.len() <= most))
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.own.fmt(f)
    }
}

/// The properties that datagrams sent by one call share.
#[derive(Clone, PartialEq)]
struct Flow {
    destination: SocketAddr,
    ecn: Option<EcnCodepoint>,
    source: Option<IpAddr>,
}

impl Outlet for Socket {
    type Flow = Flow;

    fn send(&self, flow: &Flow, bytes: &[u8], segment_bytes: usize) -> io::Result<usize> {
        let result = self.send_all(flow, bytes, segment_bytes);
        if let Some(learnt) = &self.learnt {
            let datagrams = |bytes: usize| bytes.div_ceil(segment_bytes).max(1);
            match &result {
                Ok((sent, by_one_call)) => {
                    let are_equal = sent.is_multiple_of(segment_bytes);
                    learnt.on_left(datagrams(*sent), *by_one_call && are_equal);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The sender drops them.
                Err(_) => learnt.on_left(datagrams(bytes.len()), false),
            }
        }
        result.map(|(sent, _)| sent)
    }
}

/// The most datagrams that quinn may hand over by one call. quinn 0.11 hands over ten at most.
const MOST_SEGMENTS: usize = 10;

/// An IP packet of the usual MTU.
const FULL_BYTES: u64 = 1500;

/// A connection whose bursts take less is not paced: the timer would do little else.
const SHORTEST_BURST: Duration = Duration::from_micros(10);

/// A learnt rate is changed when it differs by more than one part in this many.
const SMALL: u64 = 128;
