//! The timeout and the minimum rate of a request's body.
//!
//! Only time spent waiting for the client counts, not time in which the proxy connects or an upstream accepts nothing,
//! nor time in which an HTTP/2 client cannot send, as other bodies use up the window of its connection.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use softclock::Instant;

use crate::client::options::Timeouts;
use crate::net::late_timer::LateTimer;
use crate::observe::limit::Limit;

/// The limits of one body, and the timer for them.
pub(super) struct UploadPatience {
    waits: Waits,
    timer: LateTimer,
    /// The limit that seems to be exceeded, and the time at which that was found. It is exceeded if no bytes arrive
    /// when the sockets are next checked.
    over: Option<(Limit, Instant)>,
}

/// The waits and bytes of one body, without a clock.
struct Waits {
    /// The longest silence allowed.
    silence: Option<Duration>,
    /// Bytes that must arrive in each window of waiting.
    least: u64,
    window: Duration,
    /// The begin of the current wait; `None` while the proxy does not wait for the client.
    since: Option<Instant>,
    /// The time from which the current wait counts for this window.
    counted: Instant,
    /// The length of earlier waits in this window.
    waited: Duration,
    /// The bytes that arrived in this window.
    received: u64,
}

impl UploadPatience {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        Self {
            waits: Waits::new(timeouts),
            timer: LateTimer::default(),
            over: None,
        }
    }

    /// Records bytes that arrived from the client. `held_back` returns the time until which the client could not send:
    /// its argument, the current time, while that is so.
    pub(super) fn on_received(
        &mut self,
        bytes: usize,
        held_back: impl FnOnce(Instant) -> Option<Instant>,
    ) {
        self.over = None;
        // Most bytes arrive without a wait. Then the clock need not be read.
        if self.waits.since.is_some() {
            let now = softclock::now();
            self.waits.excuse(held_back(now));
            self.waits.pause(now);
        }
        self.waits.received += bytes as u64;
    }

    /// Begins a new window with the next poll. Call it when an upstream is chosen: bytes that arrived quickly before
    /// must not earn time in which the upstream is occupied.
    pub(super) fn restart(&mut self) {
        self.waits.restart();
        self.over = None;
    }

    /// Ready with the limit that the client has exceeded. Call it when a read is pending, with `held_back` as in
    /// [`on_received`](Self::on_received).
    pub(super) fn poll_over(
        &mut self,
        held_back: impl Fn(Instant) -> Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<Limit> {
        loop {
            let now = softclock::now();
            if let Some((limit, since)) = self.over {
                // If the process was stopped, time has passed, but bytes may wait in the kernel. `LateTimer` fires only
                // after the sockets were checked once more.
                ready!(self.timer.poll_until(since, now, cx));
                return Poll::Ready(limit);
            }
            match self.waits.look(now) {
                Err(_) if self.waits.excuse(held_back(now)) => {}
                Err(limit) => self.over = Some((limit, now)),
                Ok(None) => return Poll::Pending,
                Ok(Some(next)) if self.timer.poll_until(next, now, cx).is_pending() => {
                    return Poll::Pending;
                }
                Ok(Some(_)) => {}
            }
        }
    }
}

impl Waits {
    fn new(timeouts: &Timeouts) -> Self {
        Self {
            silence: timeouts.body,
            least: timeouts.least_upload_in_window(),
            window: timeouts.rate_window,
            since: None,
            counted: Instant::from_ns(0),
            waited: Duration::ZERO,
            received: 0,
        }
    }

    fn restart(&mut self) {
        (self.since, self.waited, self.received) = (None, Duration::ZERO, 0);
    }

    /// Begins the current wait and its window anew at the time `until` which the client could not send. Returns whether
    /// that is later than the wait has begun.
    fn excuse(&mut self, until: Option<Instant>) -> bool {
        let later = until.filter(|&until| self.since.is_some_and(|since| since < until));
        if let Some(until) = later {
            self.restart();
            (self.since, self.counted) = (later, until);
        }
        later.is_some()
    }

    /// Ends the current wait; the next look begins another.
    fn pause(&mut self, now: Instant) {
        if self.since.take().is_some() {
            self.waited += now.since(self.counted);
        }
    }

    /// Begins or continues a wait. Returns the time of the next look if nothing arrives; `None` without limits.
    ///
    /// # Errors
    /// The limit that is exceeded.
    fn look(&mut self, now: Instant) -> Result<Option<Instant>, Limit> {
        let since = *self.since.get_or_insert_with(|| {
            self.counted = now;
            now
        });
        let silent = self.silence.map(|silence| since + silence);
        if silent.is_some_and(|end| now >= end) {
            return Err(Limit::BodyTimeout);
        }
        if self.least == 0 {
            return Ok(silent);
        }
        // The window is full: judge it, and begin the next.
        if self.waited + now.since(self.counted) >= self.window {
            if self.received < self.least {
                return Err(Limit::UploadRate);
            }
            (self.waited, self.received, self.counted) = (Duration::ZERO, 0, now);
        }
        let full = self.counted + self.window.saturating_sub(self.waited);
        Ok(Some(silent.map_or(full, |end| end.min(full))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(silence_s: u64, min_upload_rate: u32) -> Waits {
        Waits::new(&Timeouts {
            body: (silence_s > 0).then(|| Duration::from_secs(silence_s)),
            min_upload_rate,
            rate_window: Duration::from_secs(30),
            ..Timeouts::default()
        })
    }

    const fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn too_little_in_a_window_is_too_slow() {
        let mut waits = waits(20, 10);
        for second in 1..=3 {
            assert_eq!(
                waits.look(at(10 * second)),
                Ok(Some(at(if second == 1 { 30 } else { 40 })))
            );
            waits.received += 99;
            waits.pause(at(10 * second + 10));
        }
        assert_eq!(waits.look(at(40)), Err(Limit::UploadRate));
    }

    #[test]
    fn enough_begins_another_window() {
        let mut waits = waits(0, 10);
        assert_eq!(waits.look(at(1)), Ok(Some(at(31))));
        waits.received = 300;
        assert_eq!(waits.look(at(31)), Ok(Some(at(61))));
        assert_eq!(waits.look(at(61)), Err(Limit::UploadRate));
    }

    #[test]
    fn pauses_of_ours_do_not_count() {
        let mut waits = waits(5, 1_000);
        for turn in 0..9 {
            assert!(waits.look(at(100 * turn)).is_ok());
            assert!(waits.look(at(100 * turn + 3)).is_ok());
            waits.received += 1;
            waits.pause(at(100 * turn + 3));
        }
        assert_eq!(waits.look(at(900)), Ok(Some(at(903))));
        assert_eq!(waits.look(at(903)), Err(Limit::UploadRate));
    }

    #[test]
    fn a_fast_beginning_is_no_credit() {
        let mut waits = waits(0, 10);
        assert_eq!(waits.look(at(0)), Ok(Some(at(30))));
        waits.received += 1_000_000;
        waits.restart();
        assert_eq!(waits.look(at(29)), Ok(Some(at(59))));
        assert_eq!(waits.look(at(59)), Err(Limit::UploadRate));
    }

    #[test]
    fn a_client_that_could_not_send_has_its_time_anew() {
        let mut waits = waits(20, 10);
        assert!(!waits.excuse(Some(at(9))), "no wait");
        assert_eq!(waits.look(at(10)), Ok(Some(at(30))));
        assert!(
            !waits.excuse(None) && !waits.excuse(Some(at(10))),
            "before it"
        );
        assert_eq!(waits.look(at(30)), Err(Limit::BodyTimeout));
        assert!(waits.excuse(Some(at(30))));
        assert_eq!(waits.look(at(30)), Ok(Some(at(50))));
        assert_eq!(waits.look(at(50)), Err(Limit::BodyTimeout));
        assert!(waits.excuse(Some(at(45))));
        assert_eq!(waits.look(at(50)), Ok(Some(at(65))));
        waits.pause(at(60));
        assert_eq!(waits.look(at(70)), Ok(Some(at(85))));
        assert_eq!(waits.look(at(85)), Err(Limit::UploadRate));
        assert!(waits.excuse(Some(at(80))));
        assert_eq!(waits.look(at(85)), Ok(Some(at(100))));
    }

    #[test]
    fn silence_is_limited_by_itself() {
        let mut waits = waits(5, 0);
        assert_eq!(waits.look(at(7)), Ok(Some(at(12))));
        assert_eq!(waits.look(at(12)), Err(Limit::BodyTimeout));
    }
}
