//! The host that a script drives.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use softclock_core::Instant;

use crate::errno::Errno;
use crate::settings::Setting;

/// A TCP with sockets, in virtual time. It begins nothing on its own: packets, times and system calls are arguments,
/// and the packets that it sends are results.
///
/// Calls return [`Refusal::Errno`] with [`Errno::EAGAIN`] where a program would have to wait; the runner calls again.
pub trait Host {
    /// Changes a setting of all sockets that are created from here on, connections of present listeners included. What
    /// TIME-WAIT does changes at once.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`]: the host has no such setting, or cannot change it any more, so the script is not
    /// applicable.
    fn set(&mut self, setting: &Setting) -> Result<(), Refusal>;

    /// Listens at an address. `backlog` are the connections that may wait for [`accept`](Self::accept).
    fn listen(
        &mut self,
        now: Instant,
        local: SocketAddr,
        backlog: usize,
        options: &SocketOptions,
    ) -> Result<SocketId, Refusal>;

    /// Takes the next connection of a listener, with the remote end's address.
    fn accept(&mut self, now: Instant, listener: SocketId) -> Option<(SocketId, SocketAddr)>;

    /// Stops listening.
    fn close_listener(&mut self, now: Instant, listener: SocketId);

    /// Begins to connect; [`state`](Self::state) says when the connection is established.
    fn connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> Result<SocketId, Refusal>;

    /// The state of a connection.
    fn state(&self, connection: SocketId) -> State;

    /// Takes the error of a connection, as `SO_ERROR` does.
    fn take_error(&mut self, connection: SocketId) -> Option<Errno>;

    /// The bytes that could be read, 0 at the end of the stream; processes what has arrived first.
    fn readable(&mut self, now: Instant, connection: SocketId) -> Result<usize, Refusal>;

    /// Reads at most `most` bytes; none at the end of the stream.
    fn read(&mut self, now: Instant, connection: SocketId, most: usize)
    -> Result<Vec<u8>, Refusal>;

    /// Copies at most `most` bytes, which can be read again; none at the end of the stream.
    fn peek(&mut self, now: Instant, connection: SocketId, most: usize)
    -> Result<Vec<u8>, Refusal>;

    /// Writes bytes; returns how many there was room for.
    fn write(&mut self, now: Instant, connection: SocketId, bytes: &[u8])
    -> Result<usize, Refusal>;

    /// Ends the host's half of a connection.
    fn shutdown_write(&mut self, now: Instant, connection: SocketId) -> Result<(), Refusal>;

    /// Closes a connection. The number is not used again.
    fn close(&mut self, now: Instant, connection: SocketId);

    /// Changes options of a connection, or of a listener for the connections that it makes from here on: those that are
    /// stated.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`]: the host cannot change this option any more.
    fn change(
        &mut self,
        now: Instant,
        socket: SocketId,
        options: &SocketOptions,
    ) -> Result<(), Refusal>;

    /// The options that a connection really has, or those of a listener's connections. None of a connection that is
    /// gone.
    fn options(&self, socket: SocketId) -> SocketOptions;

    /// All connections, half-open ones and those in TIME-WAIT included.
    fn connections(&self) -> Vec<Listed>;

    /// Drops all connections in a state, without a segment.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`]: the host cannot.
    fn drop_all(&mut self, now: Instant, state: State) -> Result<(), Refusal>;

    /// Takes a packet of IP from the network.
    fn on_packet(&mut self, now: Instant, packet: &[u8]);

    /// Lets the owners of all connections process what has arrived.
    fn visit(&mut self, now: Instant);

    /// The next packet of IP for the network.
    fn next_packet(&mut self, now: Instant) -> Option<Vec<u8>>;

    /// When [`on_timer`](Self::on_timer) has work.
    fn next_timeout(&self) -> Option<Instant>;

    /// Does the work that is due.
    fn on_timer(&mut self, now: Instant);
}

/// The number of a socket, which the host chooses. Listeners and connections share the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SocketId(pub u64);

/// Why a call does not succeed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// An error that the program sees.
    Errno(Errno),
    /// The host does not have the feature: the script is not applicable.
    Unsupported(String),
}

/// The state of a connection (RFC 9293, 3.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// There is no connection any more.
    Closed,
    /// A SYN was sent.
    SynSent,
    /// A SYN was sent and one received.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// The host has closed its half; its FIN is not acknowledged.
    FinWait1,
    /// The host has closed its half; its FIN is acknowledged.
    FinWait2,
    /// The peer has closed its half.
    CloseWait,
    /// Both ends have closed at the same time; the host's FIN is not acknowledged.
    Closing,
    /// Both ends have closed, the peer first; the host's FIN is not acknowledged.
    LastAck,
    /// Both ends have closed. Old duplicates may be on their way.
    TimeWait,
}

impl State {
    /// The name in FreeBSD's `sockstat`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::SynSent => "SYN_SENT",
            Self::SynReceived => "SYN_RCVD",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN_WAIT_1",
            Self::FinWait2 => "FIN_WAIT_2",
            Self::CloseWait => "CLOSE_WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
        }
    }
}

/// A connection in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The number, if the connection has an owner.
    pub id: Option<SocketId>,
    /// The address of the host.
    pub local: SocketAddr,
    /// The address of the remote end.
    pub remote: SocketAddr,
    /// The state.
    pub state: State,
}

/// Options of a socket. Those that are `None` were not stated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SocketOptions {
    /// `SO_RCVBUF`.
    pub receive_buffer: Option<u32>,
    /// `SO_SNDBUF`.
    pub send_buffer: Option<u32>,
    /// `SO_KEEPALIVE`.
    pub keep_alive: Option<bool>,
    /// `TCP_KEEPIDLE`.
    pub keep_alive_idle: Option<Duration>,
    /// `TCP_KEEPINTVL`.
    pub keep_alive_interval: Option<Duration>,
    /// `TCP_KEEPCNT`.
    pub keep_alive_probes: Option<u32>,
    /// `TCP_KEEPINIT`: how long connecting may take.
    pub connect_timeout: Option<Duration>,
    /// `TCP_USER_TIMEOUT`.
    pub user_timeout: Option<Duration>,
    /// `TCP_NODELAY`.
    pub no_delay: Option<bool>,
    /// `TCP_NOPUSH` or `TCP_CORK`.
    pub cork: Option<bool>,
    /// `TCP_NOOPT`: segments have no options.
    pub no_options: Option<bool>,
    /// `TCP_MAXSEG`.
    pub mss: Option<u16>,
    /// `SO_LINGER` with its time; `Some(None)` switches it off.
    pub linger: Option<Option<Duration>>,
    /// `IP_TTL` or `IPV6_UNICAST_HOPS`.
    pub ttl: Option<u8>,
    /// `IP_TOS` or `IPV6_TCLASS`.
    pub class: Option<u8>,
    /// `SO_MAX_PACING_RATE`, in bytes per second.
    pub pacing_rate: Option<u64>,
    /// `TCP_CONGESTION`.
    pub congestion_control: Option<String>,
}

impl SocketOptions {
    /// Takes over the options that `change` states.
    pub fn update(&mut self, change: &Self) {
        let Self {
            receive_buffer,
            send_buffer,
            keep_alive,
            keep_alive_idle,
            keep_alive_interval,
            keep_alive_probes,
            connect_timeout,
            user_timeout,
            no_delay,
            cork,
            no_options,
            mss,
            linger,
            ttl,
            class,
            pacing_rate,
            congestion_control,
        } = change.clone();
        *self = Self {
            receive_buffer: receive_buffer.or(self.receive_buffer),
            send_buffer: send_buffer.or(self.send_buffer),
            keep_alive: keep_alive.or(self.keep_alive),
            keep_alive_idle: keep_alive_idle.or(self.keep_alive_idle),
            keep_alive_interval: keep_alive_interval.or(self.keep_alive_interval),
            keep_alive_probes: keep_alive_probes.or(self.keep_alive_probes),
            connect_timeout: connect_timeout.or(self.connect_timeout),
            user_timeout: user_timeout.or(self.user_timeout),
            no_delay: no_delay.or(self.no_delay),
            cork: cork.or(self.cork),
            no_options: no_options.or(self.no_options),
            mss: mss.or(self.mss),
            linger: linger.or(self.linger),
            ttl: ttl.or(self.ttl),
            class: class.or(self.class),
            pacing_rate: pacing_rate.or(self.pacing_rate),
            congestion_control: congestion_control.or(self.congestion_control.take()),
        };
    }
}

/// The network around a host: from the options of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// The host's address.
    pub local: IpAddr,
    /// The bits of the prefix of the host's network.
    pub prefix_bits: u8,
    /// The router.
    pub gateway: IpAddr,
    /// The address of the remote end.
    pub remote: IpAddr,
    /// The longest packet of IP.
    pub mtu: usize,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => write!(f, "{errno}"),
            Self::Unsupported(reason) => f.write_str(reason),
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}
