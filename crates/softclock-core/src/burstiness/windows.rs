//! How far the rate in windows is above the mean.

use core::time::Duration;

use super::Volume;
use crate::Histogram;
use crate::time::saturating_ns;

/// The bytes in successive windows of one length, the first of which begins with the first packet.
#[derive(Clone, Debug)]
pub struct Window {
    length_ns: u64,
    /// Where the present window ends, since the first packet.
    end_ns: u64,
    bytes: u64,
    /// Bytes in each window before.
    past: Histogram,
    peak: u64,
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
            peak: 0,
        }
    }

    /// A packet; times do not go backwards.
    #[inline]
    pub fn on_packet(&mut self, since_first_ns: u64, bytes: u32) {
        if since_first_ns >= self.end_ns {
            self.advance(since_first_ns);
        }
        self.bytes = self.bytes.saturating_add(bytes.into());
        self.peak = self.peak.max(self.bytes);
    }

    fn advance(&mut self, to_ns: u64) {
        self.past.record(self.bytes);
        let empty = (to_ns - self.end_ns) / self.length_ns;
        self.past.record_times(0, empty);
        let begin_ns = self.end_ns + empty * self.length_ns;
        self.end_ns = begin_ns.saturating_add(self.length_ns);
        self.bytes = 0;
    }

    /// The windows' length.
    pub const fn length(&self) -> Duration {
        Duration::from_nanos(self.length_ns)
    }

    /// The most bytes in any window.
    pub const fn peak_bytes(&self) -> u64 {
        self.peak
    }

    /// The peak rate over the mean rate of `volume`, which all was counted in; `None` if that is shorter than a window.
    pub fn peak_over_mean(&self, volume: &Volume) -> Option<f64> {
        self.mean_bytes(volume).map(|mean| self.peak as f64 / mean)
    }

    /// The same for the bytes that 99.9 % of the windows do not exceed, to within 6.25 %.
    pub fn p999_over_mean(&self, volume: &Volume) -> Option<f64> {
        let mut all = self.past.clone();
        all.record(self.bytes);
        let bytes = all.quantile_ns(0.999);
        self.mean_bytes(volume).map(|mean| bytes as f64 / mean)
    }

    /// What the mean rate brings in a window.
    fn mean_bytes(&self, volume: &Volume) -> Option<f64> {
        let duration_ns = saturating_ns(volume.duration());
        let is_told = duration_ns >= self.length_ns && volume.bytes() > 0;
        is_told.then(|| volume.bytes() as f64 / duration_ns as f64 * self.length_ns as f64)
    }
}
