//! The pacer of a flight, in little memory while there is none.

use alloc::boxed::Box;
use core::time::Duration;

use softclock_core::Instant;

use super::Sender;
use crate::tcp::pacing::{Pacer, PacingSettings};

/// Makes a pacer when a flight begins, and drops it when everything is acknowledged, unless a rate is stated. Nothing
/// is lost: the last acknowledgment comes a round trip after the last segment, and after such a pause a pacer begins
/// anew. The slack is kept in whole microseconds up to 65 ms.
#[derive(Debug)]
pub(super) struct Pace {
    pacer: Option<Box<Pacer>>,
    slow_start_percent: u16,
    avoidance_percent: u16,
    initial_burst: u16,
    burst: u16,
    slack_us: u16,
    most_behind_ms: u16,
    is_stated: bool,
}

impl Pace {
    pub(super) fn new(settings: &PacingSettings) -> Self {
        let percent = |percent| if settings.is_enabled { percent } else { 0 };
        Self {
            pacer: None,
            slow_start_percent: percent(settings.slow_start_percent),
            avoidance_percent: percent(settings.avoidance_percent),
            initial_burst: settings.initial_burst,
            burst: settings.burst,
            slack_us: to_u16(settings.slack.as_micros()),
            most_behind_ms: to_u16(settings.most_behind.as_millis()),
            is_stated: false,
        }
    }

    pub(super) fn set_rate(&mut self, bytes_per_second: Option<u64>) {
        self.is_stated = bytes_per_second.is_some();
        self.begin().set_rate(bytes_per_second);
    }

    /// Whether the owner states a rate.
    pub(super) const fn is_stated(&self) -> bool {
        self.is_stated
    }

    /// Whether segments wait for the rate that the owner states, rather than for that of the window.
    fn is_at_stated_rate(&self) -> bool {
        let pacer = self.pacer.as_ref().filter(|_| self.is_stated);
        pacer.is_some_and(|pacer| pacer.is_at_stated_rate())
    }

    /// The pacer, if there is one.
    pub(super) fn pacer(&mut self) -> Option<&mut Pacer> {
        self.pacer.as_deref_mut()
    }

    /// Whether there is no pacer, so that [`begin`](Self::begin) makes one.
    pub(super) fn is_at_rest(&self) -> bool {
        self.pacer.is_none()
    }

    /// The pacer, a new one if there is none.
    pub(super) fn begin(&mut self) -> &mut Pacer {
        let Self {
            pacer,
            slow_start_percent,
            avoidance_percent,
            initial_burst,
            burst,
            slack_us,
            most_behind_ms,
            ..
        } = self;
        pacer.get_or_insert_with(|| {
            Box::new(Pacer::new(&PacingSettings {
                is_enabled: true,
                slow_start_percent: *slow_start_percent,
                avoidance_percent: *avoidance_percent,
                initial_burst: *initial_burst,
                burst: *burst,
                slack: Duration::from_micros((*slack_us).into()),
                most_behind: Duration::from_millis((*most_behind_ms).into()),
            }))
        })
    }

    /// Everything is acknowledged.
    pub(super) fn rest(&mut self) {
        if !self.is_stated {
            self.pacer = None;
        }
    }
}

impl Sender {
    /// The unsent bytes, if the next segment waits for the rate that the owner states; 0 if it waits for the peer or
    /// the path. As of the last call of [`poll_transmit`](Self::poll_transmit).
    pub fn held_back(&self) -> usize {
        let is_held_back = self.paced_at != Instant::FAR_FUTURE && self.pace.is_at_stated_rate();
        match is_held_back {
            true => self.unsent() as usize,
            false => 0,
        }
    }
}

fn to_u16(number: u128) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
