#![allow(missing_docs)]
use core::time::Duration;
use softclock_core::Instant;
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PacingSettings {}
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: u64,
    next: Instant,
    pad: [u64; 6],
}
impl Pacer {
    pub fn new(_: &PacingSettings) -> Self {
        Self {
            rate: 0,
            next: Instant::ORIGIN,
            pad: [0; 6],
        }
    }
    pub fn set_rate(&mut self, _: Option<u64>) {}
    pub fn update(&mut self, window: u32, srtt: Option<Duration>, is_in_slow_start: bool) {
        let Some(srtt) = srtt else { return };
        let gain = if is_in_slow_start { 200 } else { 120 };
        self.rate =
            (u64::from(window) * gain * 10_000_000 / (srtt.as_nanos() as u64).max(1)).max(1000);
    }
    pub fn on_no_data(&mut self) {}
    pub fn next_send(&self, now: Instant) -> Instant {
        self.next.max(now)
    }
    pub fn on_sent(&mut self, now: Instant, bytes: u32) {
        if self.rate == 0 {
            return;
        }
        self.next = self
            .next
            .max(now.sub_ns(1_000_000))
            .add_ns(u64::from(bytes) * 1_000_000_000 / self.rate);
    }
}
