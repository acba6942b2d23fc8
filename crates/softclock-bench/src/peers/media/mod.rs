//! Senders of media streams from one thread: by softclock, and by the timers that other programs use for this. Each
//! sends all streams evenly spaced, and serves TCP echo beside them if it has a loop for both.

mod epoll;
mod nanosleep;
mod softclock;
mod tokio;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use ::softclock::Runtime;
use clap::{Args, ValueEnum};

use super::runtimes::word;
use crate::servers::Server;

/// A sender to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sender {
    /// Tasks with intervals of softclock.
    Softclock,
    /// The same without spinning for timers.
    SoftclockBlocking,
    /// The same without spinning, and prepared for waits at regular distances.
    SoftclockRegular,
    /// Tasks with intervals of tokio.
    Tokio,
    /// A loop of epoll with a heap of due times and one timerfd.
    Timerfd,
    /// A loop of epoll with a heap of due times, which bounds its waits (epoll_pwait2).
    EpollTimeout,
    /// A heap of due times and clock_nanosleep, which serves nothing else.
    Nanosleep,
}

impl Sender {
    /// All senders, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Softclock,
        Self::SoftclockBlocking,
        Self::SoftclockRegular,
        Self::Tokio,
        Self::Timerfd,
        Self::EpollTimeout,
        Self::Nanosleep,
    ];

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Softclock => "softclock",
            Self::SoftclockBlocking => "softclock, no spinning",
            Self::SoftclockRegular => "softclock, regular waits",
            Self::Tokio => "tokio",
            Self::Timerfd => "epoll, timerfd",
            Self::EpollTimeout => "epoll_pwait2",
            Self::Nanosleep => "clock_nanosleep",
        }
    }

    /// Returns whether the thread can serve connections, too.
    pub fn serves(self) -> bool {
        self != Self::Nanosleep
    }

    /// Starts a sender to `receiver` in another process of this program. It stays on the processor that this thread is
    /// pinned to.
    ///
    /// # Errors
    /// The process does not listen; the error has its output.
    pub fn start(self, streams: Streams, receiver: SocketAddr) -> io::Result<Server> {
        Server::start(|address, _| {
            let options = MediaSender {
                sender: self,
                receiver,
                address,
                streams: streams.count,
                period: streams.period.as_micros() as u64,
            };
            options.command()
        })
    }
}

/// Streams of packets.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Their number.
    pub count: u32,
    /// The time between two packets of one, in whole microseconds.
    pub period: Duration,
}

/// The arguments of the process of such a sender.
#[derive(Args, Clone, Copy, Debug)]
pub struct MediaSender {
    #[arg(value_enum)]
    sender: Sender,
    receiver: SocketAddr,
    /// The address at which it serves TCP echo.
    address: SocketAddr,
    streams: u32,
    /// In microseconds.
    period: u64,
}

impl MediaSender {
    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "media-sender".to_owned(),
            word(self.sender),
            self.receiver.to_string(),
            self.address.to_string(),
            self.streams.to_string(),
            self.period.to_string(),
        ]);
        Ok(command)
    }

    /// Sends until the process is killed.
    ///
    /// # Errors
    /// Those of its sockets and timers.
    pub fn run(&self) -> io::Result<()> {
        let period = Duration::from_micros(self.period);
        let streams = Streams {
            count: self.streams,
            period,
        };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(self.receiver)?;
        socket.set_nonblocking(true)?;
        let blocking = Runtime::builder().spin_cap(0.0);
        match self.sender {
            Sender::Softclock => {
                softclock::send(&Runtime::builder(), streams, socket, self.address)
            }
            Sender::SoftclockBlocking => softclock::send(&blocking, streams, socket, self.address),
            Sender::SoftclockRegular => {
                softclock::send(&blocking.regular_waits(true), streams, socket, self.address)
            }
            Sender::Tokio => tokio::send(streams, socket, self.address),
            Sender::Timerfd => epoll::send(streams, &socket, self.address, epoll::Wake::Timerfd),
            Sender::EpollTimeout => {
                epoll::send(streams, &socket, self.address, epoll::Wake::Timeout)
            }
            Sender::Nanosleep => nanosleep::send(streams, &socket, self.address),
        }
    }
}

/// A packet of a stream: its number, in 172 bytes, those of 20 ms of PCMU by RTP.
fn packet(stream: u32) -> [u8; PACKET] {
    let mut packet = [0xff; PACKET];
    packet[..4].copy_from_slice(&stream.to_be_bytes());
    packet
}

/// Returns the stream of a packet.
pub fn stream_of(packet: &[u8]) -> Option<u32> {
    packet.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The due times of streams, soonest first.
struct Schedule {
    due: BinaryHeap<Reverse<(Instant, u32)>>,
    period: Duration,
}

impl Schedule {
    fn new(streams: Streams) -> Self {
        let begin = Instant::now() + LEAD;
        let spaced = |stream| Reverse((begin + streams.period * stream / streams.count, stream));
        Self {
            due: (0..streams.count).map(spaced).collect(),
            period: streams.period,
        }
    }

    /// The time of the next packet.
    fn next(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    /// Sends all packets that are due. A packet without room in the socket is lost.
    fn send_due(&mut self, socket: &UdpSocket) {
        let now = Instant::now();
        while let Some(mut next) = self.due.peek_mut() {
            let Reverse((due, stream)) = &mut *next;
            if *due > now {
                return;
            }
            let _ = socket.send(&packet(*stream));
            *due += self.period;
        }
    }
}

const PACKET: usize = 172;

/// The time from the start to the first packet.
const LEAD: Duration = Duration::from_millis(1);
