#![allow(missing_docs)]
use super::seq::Seq;
use core::time::Duration;
use softclock_core::Instant;
pub mod rate_sample;
pub use rate_sample::{DeliveredSegments, RateSample, RateSampler, Snapshot};
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CongestionSettings {
    pub algorithm: Algorithm,
}
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    NewReno,
    #[default]
    Cubic,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CongestionAck {
    pub now: Instant,
    pub arrived: Instant,
    pub acked: u32,
    pub in_flight: u32,
    pub rtt: Option<Duration>,
    pub srtt: Option<Duration>,
    pub min_rtt: Option<Duration>,
    pub rto: Duration,
    pub is_app_limited: bool,
    pub una: Seq,
    pub next: Seq,
    pub is_in_recovery: bool,
}
#[derive(Clone, Debug)]
pub struct Controller {
    window: u32,
    threshold: u32,
    mss: u32,
    before: (u32, u32),
    carry: u32,
    pad: [u64; 12],
}
impl Controller {
    pub fn new(_: Algorithm, _: &CongestionSettings, mss: u16) -> Self {
        Self {
            window: 10 * u32::from(mss),
            threshold: u32::MAX,
            mss: mss.into(),
            before: (0, 0),
            carry: 0,
            pad: [0; 12],
        }
    }
    pub fn window(&self) -> u32 {
        self.window
    }
    pub fn slow_start_threshold(&self) -> u32 {
        self.threshold
    }
    pub fn is_in_slow_start(&self) -> bool {
        self.window < self.threshold
    }
    pub fn on_sent(&mut self, _now: Instant, _bytes: u32, _in_flight: u32) {}
    pub fn on_ack(&mut self, ack: &CongestionAck) {
        if ack.is_in_recovery || ack.is_app_limited {
            return;
        }
        if self.is_in_slow_start() {
            self.window += ack.acked;
            return;
        }
        self.carry += ack.acked;
        if self.carry >= self.window {
            self.carry -= self.window;
            self.window += self.mss;
        }
    }
    pub fn on_loss(&mut self, _now: Instant, in_flight: u32, _next: Seq) {
        let _ = in_flight;
        self.before = (self.window, self.threshold);
        self.threshold = (self.window * 7 / 10).max(2 * self.mss);
        self.window = self.threshold;
    }
    pub fn on_recovered(&mut self, _now: Instant) {}
    pub fn on_timeout(&mut self, _now: Instant, in_flight: u32) {
        self.before = (self.window, self.threshold);
        self.threshold = (in_flight * 7 / 10).max(2 * self.mss);
        self.window = self.mss;
    }
    pub fn on_ecn(&mut self, now: Instant, in_flight: u32, next: Seq) -> bool {
        self.on_loss(now, in_flight, next);
        true
    }
    pub fn on_retransmitted(&mut self, _: u32) {}
    pub fn on_handshake_loss(&mut self) {}
    pub fn undo(&mut self) {
        (self.window, self.threshold) = (self.window.max(self.before.0), self.before.1);
    }
    pub fn set_window_after_recovery(&mut self, window: u32) {
        self.window = window;
    }
    pub fn set_mss(&mut self, mss: u16) {
        self.mss = mss.into();
    }
}
