//! How slowly a client may send a request's body.
//!
//! Only time spent waiting for the client counts: while an upstream takes nothing, or a connection to it is being made,
//! nothing is asked of the client.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use softclock::Instant;

use crate::connection::Timeouts;
use crate::late_timer::LateTimer;
use crate::limit::Limit;

/// The patience with the client during one body.
pub(super) struct UploadPatience {
    pace: Pace,
    timer: LateTimer,
    /// The limit that seems to be reached, and since when. It is once the sockets were looked at after that.
    over: Option<(Limit, Instant)>,
}

/// What was waited for, and what came; without a clock.
struct Pace {
    /// How long nothing may come.
    silence: Option<Duration>,
    /// Bytes that must come in each window of waiting.
    least: u64,
    window: Duration,
    /// Since when nothing has come, while more is waited for.
    since: Option<Instant>,
    /// From where on this wait counts for the window.
    counted: Instant,
    /// Of the window, the waits before this one.
    waited: Duration,
    received: u64,
}

impl UploadPatience {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        Self {
            pace: Pace::new(timeouts),
            timer: LateTimer::default(),
            over: None,
        }
    }

    /// So many bytes came from the client.
    pub(super) fn on_received(&mut self, bytes: usize) {
        self.pace.received += bytes as u64;
        self.over = None;
        // Mostly nothing was waited for, and the time need not be read.
        if self.pace.since.is_some() {
            self.pace.pause(softclock::now());
        }
    }

    /// An upstream is taken, and the next poll begins a window: what came at once before must not pay for holding it.
    pub(super) fn restart(&mut self) {
        self.pace.restart();
        self.over = None;
    }

    /// More is waited for, and nothing has come: ready with the limit when one is reached.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Limit> {
        loop {
            let now = softclock::now();
            if let Some((limit, since)) = self.over {
                // After a stop of the process the clock says that time has passed, though what came waits in the kernel.
                ready!(self.timer.poll_until(since, now, cx));
                return Poll::Ready(limit);
            }
            match self.pace.look(now) {
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

impl Pace {
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

    /// The client is not waited for until the next look.
    fn pause(&mut self, now: Instant) {
        if self.since.take().is_some() {
            self.waited += now.since(self.counted);
        }
    }

    /// When to look again while nothing comes, if ever.
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

    fn pace(silence_s: u64, min_upload_rate: u32) -> Pace {
        Pace::new(&Timeouts {
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
        let mut pace = pace(20, 10);
        for second in 1..=3 {
            assert_eq!(
                pace.look(at(10 * second)),
                Ok(Some(at(if second == 1 { 30 } else { 40 })))
            );
            pace.received += 99;
            pace.pause(at(10 * second + 10));
        }
        assert_eq!(pace.look(at(40)), Err(Limit::UploadRate));
    }

    #[test]
    fn enough_begins_another_window() {
        let mut pace = pace(0, 10);
        assert_eq!(pace.look(at(1)), Ok(Some(at(31))));
        pace.received = 300;
        assert_eq!(pace.look(at(31)), Ok(Some(at(61))));
        assert_eq!(pace.look(at(61)), Err(Limit::UploadRate));
    }

    #[test]
    fn pauses_of_ours_do_not_count() {
        let mut pace = pace(5, 1_000);
        for turn in 0..9 {
            assert!(pace.look(at(100 * turn)).is_ok());
            assert!(pace.look(at(100 * turn + 3)).is_ok());
            pace.received += 1;
            pace.pause(at(100 * turn + 3));
        }
        assert_eq!(pace.look(at(900)), Ok(Some(at(903))));
        assert_eq!(pace.look(at(903)), Err(Limit::UploadRate));
    }

    #[test]
    fn a_fast_beginning_is_no_credit() {
        let mut pace = pace(0, 10);
        assert_eq!(pace.look(at(0)), Ok(Some(at(30))));
        pace.received += 1_000_000;
        pace.restart();
        assert_eq!(pace.look(at(29)), Ok(Some(at(59))));
        assert_eq!(pace.look(at(59)), Err(Limit::UploadRate));
    }

    #[test]
    fn silence_is_limited_by_itself() {
        let mut pace = pace(5, 0);
        assert_eq!(pace.look(at(7)), Ok(Some(at(12))));
        assert_eq!(pace.look(at(12)), Err(Limit::BodyTimeout));
    }
}
