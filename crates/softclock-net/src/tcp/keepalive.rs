//! Probes of idle connections (RFC 9293, 3.8.4; RFC 1122, 4.2.3.6).

use core::time::Duration;

use softclock_core::Instant;

/// When an idle connection is probed. The defaults are those of Linux; the RFC demands that it is off unless the owner
/// wants it, and two hours at least by default.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// use softclock_net::tcp::keepalive::KeepAlive;
///
/// // A connection fails 90 s after the last segment of a peer that is gone.
/// let keep_alive = KeepAlive {
///     is_on: true,
///     idle: Duration::from_secs(60),
///     interval: Duration::from_secs(10),
///     probes: 3,
/// };
/// let fails_after = keep_alive.idle + keep_alive.interval * u32::from(keep_alive.probes);
/// assert_eq!(fails_after, Duration::from_secs(90));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Whether idle connections are probed. The default is no.
    pub is_on: bool,
    /// The time without segments of the peer after which the first probe is sent. The default is 2 hours.
    pub idle: Duration,
    /// The time between probes. The default is 75 s.
    pub interval: Duration,
    /// The probes without an answer after which the connection fails. The default is 9.
    pub probes: u8,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            is_on: false,
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            probes: 9,
        }
    }
}

/// The probes of a connection so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probes {
    /// When the last segment of the peer arrived, in units of 256 ns; in the lower 8 bits the probes since then.
    heard_and_sent: u64,
}

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    Nothing,
    Probe,
    /// The peer has not answered.
    Fail,
}

impl Probes {
    pub(super) const fn new(now: Instant) -> Self {
        Self::of(now, 0)
    }

    const fn of(heard: Instant, sent: u8) -> Self {
        Self {
            heard_and_sent: heard.as_ns() & !0xff | sent as u64,
        }
    }

    const fn heard(self) -> Instant {
        Instant::from_ns(self.heard_and_sent & !0xff)
    }

    const fn sent(self) -> u8 {
        self.heard_and_sent as u8
    }

    pub(super) fn on_segment(&mut self, arrived: Instant) {
        *self = Self::new(self.heard().max(arrived));
    }

    /// When the next probe, or the failure, is due.
    pub(super) fn next(&self, settings: &KeepAlive) -> Option<Instant> {
        let waited = settings.idle + settings.interval * self.sent().into();
        settings.is_on.then(|| self.heard() + waited)
    }

    /// Notes the probe that is due, if one is.
    pub(super) fn on_timer(&mut self, now: Instant, settings: &KeepAlive) -> Due {
        if self.next(settings).is_none_or(|due| due > now) {
            return Due::Nothing;
        }
        let sent = self.sent();
        if sent >= settings.probes {
            return Due::Fail;
        }
        // A timer that is very late sends one probe, not several, and leaves the peer time to answer it.
        let latest = now - (settings.idle + settings.interval * sent.into());
        *self = Self::of(self.heard().max(latest), sent + 1);
        Due::Probe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_follow_each_other_until_the_peer_answers_or_the_connection_fails() {
        let settings = KeepAlive {
            is_on: true,
            idle: Duration::from_secs(100),
            interval: Duration::from_secs(10),
            probes: 2,
        };
        let at = |seconds: u64| Instant::from_ns(seconds * 1_000_000_000);
        let mut probes = Probes::new(at(0));
        assert_eq!(probes.next(&KeepAlive::default()), None);
        assert_eq!(probes.on_timer(at(99), &settings), Due::Nothing);
        assert_eq!(probes.on_timer(at(100), &settings), Due::Probe);
        assert_eq!(probes.on_timer(at(100), &settings), Due::Nothing);
        let about = |due: Option<Instant>| due.map(|due| due.round_up(1_000_000));
        assert_eq!(about(probes.next(&settings)), Some(at(110)));
        probes.on_segment(at(105));
        assert_eq!(about(probes.next(&settings)), Some(at(205)));
        // Late: the second probe waits for its interval all the same.
        assert_eq!(probes.on_timer(at(300), &settings), Due::Probe);
        assert_eq!(probes.on_timer(at(309), &settings), Due::Nothing);
        assert_eq!(probes.on_timer(at(310), &settings), Due::Probe);
        assert_eq!(probes.on_timer(at(320), &settings), Due::Fail);
    }
}
