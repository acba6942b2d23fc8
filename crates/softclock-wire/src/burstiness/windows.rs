//! How far the rate in windows is above the mean.

use core::time::Duration;

use softclock_core::Histogram;
use softclock_core::time::saturating_ns;

/// The bytes in successive windows of one length, the first of which begins with the first packet.
///
/// A window counts when it is over, so the last one does not, as nobody knows what it would have become.
#[derive(Clone, Debug)]
pub struct Window {
    length_ns: u64,
    /// Where the present window ends, since the first packet.
    end_ns: u64,
    bytes: u64,
    /// Bytes in each window before, and their sum.
    past: Histogram,
    past_bytes: u64,
}

impl Window {
    /// Windows of this length, at least a nanosecond.
    pub fn new(length: Duration) -> Self {
        let length_ns = saturating_ns(length).max(1);
        Self {
            length_ns,
            end_ns: length_ns,
            bytes: 0,
            past: Histogram::new(),
            past_bytes: 0,
        }
    }

    /// A packet; times do not go backwards.
    #[inline]
    pub fn on_packet(&mut self, since_first_ns: u64, bytes: u32) {
        if since_first_ns >= self.end_ns {
            self.advance(since_first_ns);
        }
        self.bytes = self.bytes.saturating_add(bytes.into());
    }

    fn advance(&mut self, to_ns: u64) {
        let empty = (to_ns - self.end_ns) / self.length_ns;
        self.past.record(self.bytes);
        self.past.record_times(0, empty);
        self.past_bytes = self.past_bytes.saturating_add(self.bytes);
        let begin_ns = self.end_ns + empty * self.length_ns;
        self.end_ns = begin_ns.saturating_add(self.length_ns);
        self.bytes = 0;
    }

    /// The windows' length.
    pub const fn length(&self) -> Duration {
        Duration::from_nanos(self.length_ns)
    }

    /// How many windows are over.
    pub fn count(&self) -> u64 {
        self.past.count()
    }

    /// The most bytes in a window that is over.
    pub const fn peak_bytes(&self) -> u64 {
        self.past.max_ns()
    }

    /// The most bytes in a window over the mean of all, at least 1; `None` if none is over, or nothing was in any.
    pub fn peak_over_mean(&self) -> Option<f64> {
        self.over_mean(self.peak_bytes())
    }

    /// The same for the bytes that 99.9 % of the windows do not exceed, to within 6.25 %.
    pub fn p999_over_mean(&self) -> Option<f64> {
        self.over_mean(self.past.quantile_ns(0.999))
    }

    fn over_mean(&self, bytes: u64) -> Option<f64> {
        let ratio = || bytes as f64 * self.count() as f64 / self.past_bytes as f64;
        (self.past_bytes > 0).then(ratio)
    }
}
