//! The settings of a connection.

use core::time::Duration;

use super::challenge::Trust;
use super::keepalive::KeepAlive;
use super::peer::{EcnMode, Offer};
use super::receive::ReceiveSettings;
use super::send::SendSettings;

/// The settings of a connection, each with the default that is best for most.
///
/// ```
/// use softclock_net::tcp::settings::Settings;
///
/// let mut settings = Settings::default();
/// settings.keep_alive.is_on = true;
/// assert_eq!(settings.keep_alive.idle.as_secs(), 7200);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The receiving half: buffers, acknowledgments.
    pub receive: ReceiveSettings,
    /// The sending half: buffers, retransmission, congestion control, pacing.
    pub send: SendSettings,
    /// Whether selective acknowledgments are offered (RFC 2018). The default is yes.
    pub has_sack: bool,
    /// Whether time stamps are offered (RFC 7323). The default is yes.
    pub has_timestamps: bool,
    /// Whether a segment without time stamps is dropped after both ends have agreed on them (RFC 7323, 3.2). The
    /// default is yes.
    pub requires_timestamps: bool,
    /// Whether windows of more than 65 535 bytes are offered (RFC 7323, 2). The default is yes.
    pub has_window_scale: bool,
    /// The use of explicit congestion notification (RFC 3168). The default is to accept it of peers that offer it, and
    /// not to offer it, as in Linux: a few paths still lose such SYNs.
    pub ecn: EcnMode,
    /// The least segment size that the peer can impose: see [`Offer::least_mss`].
    pub least_mss: u16,
    /// A limit of this end's segments, and of those that it asks for, beside that of the MTU. The default is none.
    pub most_mss: Option<u16>,
    /// The time until the first SYN is repeated; it doubles each time (RFC 6298, 2.1: 1 s).
    pub syn_timeout: Duration,
    /// A time that is added to each doubled one. The default is none; FreeBSD adds 200 ms (`rexmit_slop`).
    pub syn_slop: Duration,
    /// How often a SYN is repeated with the offer of ECN before one without (RFC 3168, 6.1.1.1). The default is once.
    pub ecn_retries: u8,
    /// How often a SYN is repeated. The default of 7 waits 4 minutes in all: RFC 9293, 3.8.3 demands 3 minutes or more.
    pub syn_retries: u8,
    /// The time from the first SYN after which a connection that is not established fails, before all retries are made.
    /// The default is none; FreeBSD's is 75 s (`keepinit`, `TCP_KEEPINIT`).
    pub connect_timeout: Option<Duration>,
    /// Whether and when an idle connection is probed (RFC 9293, 3.8.4).
    pub keep_alive: KeepAlive,
    /// The time for which a closed connection whose owner is gone waits for the peer's FIN. The default is 60 s, as in
    /// Linux (`tcp_fin_timeout`).
    pub fin_wait_2: Duration,
    /// The time for which a closed connection whose owner is gone tries to send the rest of its data, from the last
    /// progress on: each acknowledgment of more bytes begins it anew. The default is 100 s: eight retransmissions with
    /// the least timeout, as in Linux (`tcp_orphan_retries`).
    pub orphan_timeout: Duration,
    /// What happens to data that is not sent yet when the owner closes the connection.
    pub linger: Linger,
    /// The consecutive timeouts of one segment after which the path is taken for one that loses long packets without a
    /// report (a "black hole", RFC 8899, 4.3), and segments become those of 1280 bytes, after as many more those of 552
    /// (over IPv6 1280). Counts for segments that are longer. The default is 3; 0 switches it off.
    pub black_hole_timeouts: u8,
    /// The segments that end a connection although they may be forged. The default is none (RFC 5961).
    pub trust: Trust,
    /// Whether a hard error that the network reports about a SYN ends the attempt to connect: a port, a protocol or a
    /// communication that is refused (RFC 1122, 4.2.3.9); and such an error about the SYN-ACK of a listener, the
    /// handshake. The default is yes. If it is off, the error is only the reason that the owner gets if the attempt fails
    /// in the end. Then no router can end an attempt, but one that is refused by ICMP lasts until its timeout.
    pub hard_errors_abort: bool,
    /// Whether a SYN that carries FIN is dropped while the connection is being opened. The default is no: RFC 9293,
    /// 3.10.7.3 takes such a segment.
    pub drops_syn_fin: bool,
    /// The differentiated services of the packets: the upper six bits of the traffic class (RFC 2474).
    pub dscp: u8,
    /// The hop limit of the packets. The default is 64.
    pub hop_limit: u8,
}

/// The fields of the IP header that the owner of a connection chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// [`Settings::dscp`].
    pub dscp: u8,
    /// [`Settings::hop_limit`].
    pub hop_limit: u8,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            dscp: 0,
            hop_limit: 64,
        }
    }
}

/// What happens to data that is not sent yet when the owner closes the connection (`SO_LINGER`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Linger {
    /// It is sent without the owner, for at most [`Settings::orphan_timeout`] without progress.
    #[default]
    Background,
    /// It is sent without the owner for at most this time; then the connection is reset. With no time at all it is
    /// reset at once.
    AtMost(Duration),
}

impl Default for Settings {
    fn default() -> Self {
        let offer = Offer::default();
        Self {
            receive: ReceiveSettings::default(),
            send: SendSettings::default(),
            has_sack: offer.has_sack,
            has_timestamps: offer.has_timestamps,
            requires_timestamps: true,
            has_window_scale: true,
            ecn: offer.ecn,
            least_mss: offer.least_mss,
            most_mss: None,
            syn_timeout: Duration::from_secs(1),
            syn_slop: Duration::ZERO,
            ecn_retries: 1,
            syn_retries: 7,
            connect_timeout: None,
            keep_alive: KeepAlive::default(),
            fin_wait_2: Duration::from_secs(60),
            orphan_timeout: Duration::from_secs(100),
            linger: Linger::default(),
            black_hole_timeouts: 3,
            trust: Trust::default(),
            hard_errors_abort: true,
            drops_syn_fin: false,
            dscp: 0,
            hop_limit: 64,
        }
    }
}

impl Settings {
    /// The fields of the IP header of all segments of a connection.
    pub const fn service(&self) -> Service {
        Service {
            dscp: self.dscp,
            hop_limit: self.hop_limit,
        }
    }

    /// The options that a connection with these settings offers, for packets of `mtu` bytes.
    pub fn offer(&self, mtu: usize, is_v4: bool) -> Offer {
        let mss = super::peer::mss_of_mtu(mtu, is_v4);
        Offer {
            mss: self.most_mss.map_or(mss, |most| most.min(mss)),
            window_scale: self.has_window_scale.then(|| self.receive.window_scale()),
            has_sack: self.has_sack,
            has_timestamps: self.has_timestamps,
            ecn: self.ecn,
            least_mss: self.least_mss,
        }
    }
}
