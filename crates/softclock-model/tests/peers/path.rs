//! One direction of the path: delay, loss, duplication, reordering, and changed bits.

use core::time::Duration;

use softclock_core::Instant;

use crate::random::Random;
use crate::world::Scale;

/// What a direction does to segments. Chances are out of 1000.
#[derive(Clone, Debug)]
pub(crate) struct PathPlan {
    delay_us: u64,
    jitter_us: u64,
    loss: u64,
    duplication: u64,
    /// The chance that a segment is overtaken, and the longest time by which it is late.
    reordering: (u64, u64),
    corruption: u64,
}

impl PathPlan {
    pub(crate) fn random(random: &mut Random, scale: &Scale) -> Self {
        let mut often = |most: u64| match random.chance(500) {
            true => random.magnitude(1..=most),
            false => 0,
        };
        let (loss, duplication, reordering, corruption) = (
            often(scale.loss),
            often(150),
            often(300),
            often(scale.loss / 2),
        );
        let delay_us = random.magnitude(200..=scale.delay_us);
        Self {
            delay_us,
            jitter_us: random.within(0..=delay_us / 2),
            loss,
            duplication,
            reordering: (reordering, random.within(1000..=scale.delay_us * 3 / 2)),
            corruption,
        }
    }
}

/// A direction of the path.
pub(crate) struct Path {
    plan: PathPlan,
    random: Random,
    /// The latest arrival of a segment that was not overtaken.
    latest: Instant,
    pub(crate) lost: u64,
}

impl Path {
    pub(crate) fn new(plan: PathPlan, random: Random) -> Self {
        Self {
            plan,
            random,
            latest: Instant::ORIGIN,
            lost: 0,
        }
    }

    /// Sends a frame. Returns its copies with their times of arrival. Only segments of TCP have a bad path.
    pub(crate) fn carry(&mut self, now: Instant, frame: &[u8]) -> Vec<(Instant, Vec<u8>)> {
        if !is_tcp(frame) {
            return vec![(
                now + Duration::from_micros(self.plan.delay_us),
                frame.to_vec(),
            )];
        }
        if self.random.chance(self.plan.loss) {
            self.lost += 1;
            return Vec::new();
        }
        let copies = 1 + u64::from(self.random.chance(self.plan.duplication));
        (0..copies)
            .map(|_| (self.arrival(now), self.changed(frame)))
            .collect()
    }

    fn arrival(&mut self, now: Instant) -> Instant {
        let delay = Duration::from_micros(self.plan.delay_us);
        let at = (now + delay + self.random.micros(self.plan.jitter_us)).max(self.latest);
        let (chance, most) = self.plan.reordering;
        if self.random.chance(chance) {
            return at + self.random.micros(most);
        }
        self.latest = at;
        at
    }

    /// The frame, at times with one bit changed, which a checksum finds.
    fn changed(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        if self.random.chance(self.plan.corruption) {
            self.lost += 1;
            // A header of IPv6 has no checksum. That of TCP covers its addresses only, which begin here.
            let first = match is_v6(&frame) {
                true => LINK_BYTES + 8,
                false => LINK_BYTES,
            };
            let bits = 8 * (frame.len() - first);
            let bit = 8 * first + (self.random.next() % bits as u64) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        frame
    }
}

pub(crate) fn is_tcp(frame: &[u8]) -> bool {
    let is_v4 = frame[12..14] == [0x08, 0x00];
    is_v4 && frame[23] == TCP || is_v6(frame) && frame[20] == TCP
}

fn is_v6(frame: &[u8]) -> bool {
    frame[12..14] == [0x86, 0xdd]
}

/// The protocol number of TCP.
const TCP: u8 = 6;

pub(crate) const LINK_BYTES: usize = 14;
