//! The settings of listeners.

use core::time::Duration;

use super::isn::TimestampUnit;
use crate::tcp::challenge::{ChallengeSettings, Trust};
use crate::tcp::peer::Offer;

/// The settings of a [`Listener`](super::Listener).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ListenSettings {
    /// The most connections that wait to be accepted, at least 1. While they are as many, SYNs are dropped before any
    /// other work. The default is 4096, as in Linux (`somaxconn`).
    pub backlog: usize,
    /// The most half-open connections of the listener. The default is 1024, which is a second of handshakes at 1000 a
    /// second, and takes 91 KiB.
    pub half_open: usize,
    /// When SYN cookies are used. The default is when there are too many half-open connections.
    pub cookies: CookieUse,
    /// The most SYNs in a second that are answered by cookies, and as many of proven peers
    /// ([`SharedSettings::proven_peers`]). Further ones wait in their channel, and are discarded early when that is
    /// full. A [stack](crate::stack::Stack) sees to it, unless it is eager without early discard. The default is 20 000.
    pub cookies_per_second: u32,
    /// The time after which a listener counts as unattended, if its owner neither accepts nor waits for a connection.
    /// An unattended listener sends no cookies when they are needed: SYNs wait in their
    /// channel until the owner accepts again, and are discarded early when that is full (LRP, section 3.4). The
    /// default is 1 s.
    pub unattended: Duration,
    /// The time to the first retransmission of a SYN-ACK. Doubles each time. The default is 1 s (RFC 6298, 2).
    pub initial_timeout: Duration,
    /// The retransmissions of a SYN-ACK, at most 8. The default is 5, as in Linux (`tcp_synack_retries`): the handshake
    /// is given up after 63 s.
    pub retries: u8,
    /// The options that SYN-ACKs offer. The segment size is that of [`mtu`](Self::mtu).
    pub offer: Offer,
    /// The length of the longest IP packet that the link carries. The default is 1500 bytes.
    pub mtu: usize,
    /// The receive window before any bytes have arrived. A SYN-ACK states at most 65 535 bytes of it (RFC 7323, 2.2).
    /// The default is 65 535 bytes.
    pub window: u32,
    /// Whether a SYN that carries FIN is dropped. No implementation sends such segments, scanners do. The default is
    /// yes, as in Linux.
    pub drops_syn_fin: bool,
    /// The segments that end a half-open connection although they may be forged. The default is none (RFC 5961).
    pub trust: Trust,
    /// Whether a segment without time stamps is dropped after both ends have agreed on them (RFC 7323, 3.2). The
    /// default is yes.
    pub requires_timestamps: bool,
}

impl Default for ListenSettings {
    fn default() -> Self {
        Self {
            backlog: 4096,
            half_open: 1024,
            cookies: CookieUse::WhenFull,
            cookies_per_second: 20_000,
            unattended: Duration::from_secs(1),
            initial_timeout: Duration::from_secs(1),
            retries: 5,
            offer: Offer::default(),
            mtu: 1500,
            window: 65_535,
            drops_syn_fin: true,
            trust: Trust::default(),
            requires_timestamps: true,
        }
    }
}

/// When a listener uses SYN cookies, which need no memory, but forget most options of a peer without time stamps, and
/// have no retransmissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CookieUse {
    /// Never: the oldest half-open connection gives way to a new one.
    Never,
    /// While there are as many half-open connections as the settings allow.
    #[default]
    WhenFull,
    /// For each handshake.
    Always,
}

/// The settings that all listeners of a stack share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SharedSettings {
    /// The most half-open connections of all listeners. The default is 65 536, which take 6 MB.
    pub half_open: usize,
    /// The most hosts that count as proven, since they have completed a handshake: when SYN cookies are needed, their
    /// SYNs go before those of others, which may be forged. An address of IPv4 is a host, and a /64 of IPv6. The default
    /// is 4096, which take 68 KiB, and a third of a MiB of the kernel's memory where the network interface
    /// demultiplexes.
    pub proven_peers: usize,
    /// The limits on challenge ACKs.
    pub challenges: ChallengeSettings,
    /// The unit of the clock of time stamps.
    pub timestamps: TimestampUnit,
}

impl Default for SharedSettings {
    fn default() -> Self {
        Self {
            half_open: 65_536,
            proven_peers: 4096,
            challenges: ChallengeSettings::default(),
            timestamps: TimestampUnit::default(),
        }
    }
}
