//! The settings of the sending half, and the compact copy that each connection keeps.

use core::time::Duration;

use softclock_core::Instant;

use crate::tcp::congestion::CongestionSettings;
use crate::tcp::pacing::PacingSettings;

/// The settings of the sending half of connections.
///
/// ```
/// use softclock_net::tcp::send::SendSettings;
///
/// let mut settings = SendSettings::default();
/// settings.has_nagle = false;
/// assert_eq!(settings.minimum_timeout.as_millis(), 200);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SendSettings {
    /// The bytes that the send buffer takes before the congestion window has grown. The default is 64 KiB, four times
    /// the initial window.
    pub buffer: u32,
    /// The bytes that the send buffer grows to: it takes twice the congestion window, so that a round trip's worth
    /// waits while another is in flight. A loss is repaired without a pause if this is 1.7 times the window. The
    /// default is 4 MiB, as in Linux (`tcp_wmem`).
    pub most_buffer: u32,
    /// The least allowance for the variation of round trips in the retransmission timeout. RFC 6298 asks for a timeout
    /// of 1 s; the default is 200 ms, as in Linux, beyond the delay of acknowledgments by common receivers.
    pub minimum_timeout: Duration,
    /// The longest retransmission timeout, backed off, in whole seconds. The default is 120 s (RFC 6298, 2.5: at least
    /// 60 s).
    pub maximum_timeout: Duration,
    /// The retransmission timeout before the first sample. The default is 1 s (RFC 6298, 2.1).
    pub initial_timeout: Duration,
    /// The longest time that the peer is expected to hold back an acknowledgment (RFC 8985, 7.2). Rounded up to 10 ms,
    /// at most 2.55 s. The default is 200 ms.
    pub peer_ack_delay: Duration,
    /// The least time before a tail loss probe (RFC 8985, 7.2), at most 255 ms. Where round trips are far below 1 ms,
    /// an acknowledgment that waits for the peer's processor comes later than two of them. The default is 10 ms, as in
    /// FreeBSD (`rack.tlp_min`); in Linux it is two ticks of the system, 2 to 20 ms.
    pub least_probe_timeout: Duration,
    /// The timeouts in a row, without an answer, after which the connection is given up. The default is 15, as in Linux
    /// (`tcp_retries2`): about 15 minutes, beyond the 100 s of RFC 1122, 4.2.3.5.
    pub retries: u8,
    /// The user timeout (RFC 9293, 3.9.1, and RFC 5482): the time for which data may wait to be acknowledged, or to be
    /// sent because the peer's window is closed, without any progress. Then the connection is given up, also if the
    /// peer answers probes of its window. Rounded up to 100 ms, at most 109 minutes. The default is none.
    pub user_timeout: Option<Duration>,
    /// Whether a short segment waits while another short segment is in flight (RFC 9293, 3.7.4, in Minshall's form).
    /// The default is yes.
    pub has_nagle: bool,
    /// The unit of the clock that time stamps state. All connections of a stack have that of its default settings. The
    /// default is 1 ms.
    pub clock: ClockUnit,
    /// The settings of congestion control.
    pub congestion: CongestionSettings,
    /// The settings of pacing.
    pub pacing: PacingSettings,
}

impl Default for SendSettings {
    fn default() -> Self {
        Self {
            buffer: 64 << 10,
            most_buffer: 4 << 20,
            minimum_timeout: Duration::from_millis(200),
            maximum_timeout: Duration::from_secs(120),
            initial_timeout: Duration::from_secs(1),
            peer_ack_delay: Duration::from_millis(200),
            least_probe_timeout: Duration::from_millis(10),
            retries: 15,
            user_timeout: None,
            has_nagle: true,
            clock: ClockUnit::Milliseconds,
            congestion: CongestionSettings::default(),
            pacing: PacingSettings::default(),
        }
    }
}

/// The unit of the clock that time stamps state (RFC 7323, 5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClockUnit {
    /// 1 ms: the clock wraps after 49 days.
    #[default]
    Milliseconds,
    /// 1 µs: the clock wraps after 71 minutes, so it suits peers that are known to judge ages by it alone (PAWS).
    Microseconds,
}

impl ClockUnit {
    /// The reading of the clock at an instant, before the connection's own offset is added.
    pub const fn reading(self, at: Instant) -> u32 {
        (at.as_ns() / self.ns()) as u32
    }

    /// The time from an earlier reading to an instant. `None` if the reading lies in the future, or further back than
    /// half the clock's range.
    pub fn since(self, reading: u32, at: Instant) -> Option<Duration> {
        let units = self.reading(at).wrapping_sub(reading);
        (units <= u32::MAX / 2).then(|| Duration::from_nanos(u64::from(units) * self.ns()))
    }

    const fn ns(self) -> u64 {
        match self {
            Self::Milliseconds => 1_000_000,
            Self::Microseconds => 1000,
        }
    }
}

/// The settings that a connection needs after it has begun, in few bytes. Times that exceed their field count as its
/// maximum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) buffer: u32,
    pub(super) most_buffer: u32,
    minimum_timeout_us: u32,
    initial_timeout_ms: u16,
    maximum_timeout_s: u16,
    /// In units of 100 ms, 0 for none.
    user_timeout: u16,
    /// In units of 10 ms.
    peer_ack_delay: u8,
    least_probe_timeout_ms: u8,
    pub(super) retries: u8,
    pub(super) has_nagle: bool,
    pub(super) has_sack: bool,
    pub(super) clock: ClockUnit,
}

impl Limits {
    pub(super) fn new(settings: &SendSettings, has_sack: bool) -> Self {
        Self {
            buffer: settings.buffer,
            most_buffer: settings.most_buffer.max(settings.buffer),
            minimum_timeout_us: to_u32(settings.minimum_timeout.as_micros()),
            initial_timeout_ms: to_u16(settings.initial_timeout.as_millis()).max(1),
            maximum_timeout_s: to_u16(settings.maximum_timeout.as_secs().into()).max(1),
            peer_ack_delay: to_u8(settings.peer_ack_delay.as_millis().div_ceil(10)),
            user_timeout: settings.user_timeout.map_or(0, user_timeout),
            least_probe_timeout_ms: to_u8(settings.least_probe_timeout.as_millis()),
            retries: settings.retries,
            has_nagle: settings.has_nagle,
            has_sack,
            clock: settings.clock,
        }
    }

    pub(super) fn minimum_timeout(&self) -> Duration {
        Duration::from_micros(self.minimum_timeout_us.into())
    }

    pub(super) fn maximum_timeout(&self) -> Duration {
        Duration::from_secs(self.maximum_timeout_s.into())
    }

    pub(super) fn initial_timeout(&self) -> Duration {
        Duration::from_millis(self.initial_timeout_ms.into())
    }

    pub(super) fn raise_initial_timeout(&mut self, least: Duration) {
        let least_ms = to_u16(least.as_millis());
        self.initial_timeout_ms = self.initial_timeout_ms.max(least_ms);
    }

    pub(super) fn peer_ack_delay(&self) -> Duration {
        Duration::from_millis(10 * u64::from(self.peer_ack_delay))
    }

    pub(super) fn least_probe_timeout(&self) -> Duration {
        Duration::from_millis(self.least_probe_timeout_ms.into())
    }

    pub(super) fn set_user_timeout(&mut self, time: Option<Duration>) {
        self.user_timeout = time.map_or(0, user_timeout);
    }

    pub(super) fn user_timeout(&self) -> Option<Duration> {
        let millis = 100 * u64::from(self.user_timeout);
        (millis > 0).then(|| Duration::from_millis(millis))
    }
}

/// In units of 100 ms, at least one.
fn user_timeout(time: Duration) -> u16 {
    to_u16(time.as_millis().div_ceil(100)).max(1)
}

fn to_u8(value: u128) -> u8 {
    value.try_into().unwrap_or(u8::MAX)
}

fn to_u16(number: u128) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn to_u32(number: u128) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
