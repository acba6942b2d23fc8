//! Compares the peak rate in windows of time with the mean rate.

use core::time::Duration;

use softclock_core::Histogram;
use softclock_core::time::saturating_ns;

/// Counts the bytes in consecutive windows of one length. The first window begins at the first packet.
///
/// A window counts when it is over. The last one does not count, since it is incomplete.
///
/// ```
/// use std::time::Duration;
///
/// use softclock_wire::burstiness::Window;
///
/// let mut window = Window::new(Duration::from_millis(1));
/// // 3000 bytes in the first millisecond, 1000 in the second; the third is not over.
/// for (since_first_us, bytes) in [(0, 1_500), (10, 1_500), (1_500, 1_000), (2_500, 1_500)] {
///     window.on_packet(since_first_us * 1_000, bytes);
/// }
/// assert_eq!((window.count(), window.peak_bytes()), (2, 3_000));
/// assert_eq!(window.peak_over_mean(), Some(1.5));
/// ```
#[derive(Clone, Debug)]
pub struct Window {
    length_ns: u64,
    /// The end of the current window, in nanoseconds since the first packet.
    end_ns: u64,
    bytes: u64,
    /// The distribution of the bytes in each window that is over.
    past: Histogram,
    past_bytes: u64,
}

impl Window {
    /// Creates windows of this length, at least one nanosecond.
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

    /// Adds a packet that arrived `since_first_ns` after the first one. Times must not go backwards.
    #[inline]
    pub fn on_packet(&mut self, since_first_ns: u64, bytes: u32) {
        if since_first_ns >= self.end_ns {
            self.advance(since_first_ns);
        }
        self.bytes = self.bytes.saturating_add(bytes.into());
    }

    /// Ends the current window and the empty ones after it, up to the window that contains `to_ns`.
    fn advance(&mut self, to_ns: u64) {
        let empty = (to_ns - self.end_ns) / self.length_ns;
        self.past.record(self.bytes);
        self.past.record_times(0, empty);
        self.past_bytes = self.past_bytes.saturating_add(self.bytes);
        let begin_ns = self.end_ns + empty * self.length_ns;
        self.end_ns = begin_ns.saturating_add(self.length_ns);
        self.bytes = 0;
    }

    /// The length of the windows.
    pub const fn length(&self) -> Duration {
        Duration::from_nanos(self.length_ns)
    }

    /// The number of windows that are over.
    pub fn count(&self) -> u64 {
        self.past.count()
    }

    /// The most bytes in a window that is over.
    pub const fn peak_bytes(&self) -> u64 {
        self.past.max_ns()
    }

    /// The most bytes in a window, divided by the mean of all windows; at least 1. `None` if no window is over, or all
    /// are empty.
    pub fn peak_over_mean(&self) -> Option<f64> {
        self.over_mean(self.peak_bytes())
    }

    /// The number of bytes that 99.9 % of the windows do not exceed, divided by the mean of all windows. Precise to
    /// 6.25 %.
    pub fn p999_over_mean(&self) -> Option<f64> {
        self.over_mean(self.past.quantile_ns(0.999))
    }

    fn over_mean(&self, bytes: u64) -> Option<f64> {
        let ratio = || bytes as f64 * self.count() as f64 / self.past_bytes as f64;
        (self.past_bytes > 0).then(ratio)
    }
}
