//! The window that a receiver offers, and the size of its buffer.

use core::time::Duration;

use softclock_core::Instant;

use super::settings::{MOST_SCALE, ReceiveSettings};
use crate::tcp::seq::Seq;

/// The right edge of the window, and the buffer behind it.
///
/// - What was offered stays acceptable: the right edge never moves left (RFC 9293, 3.8.6). A window is rounded up to the
///   unit of its scale as long as the buffer is exceeded by one unit at most, and rounded down otherwise. The window
///   field then seems to take back less than a unit, as RFC 7323, 2.4 allows.
/// - Silly windows are avoided (RFC 9293, 3.8.6.2.2): without room for a segment or a quarter of the buffer, the edge
///   stays. Otherwise all room is offered in acknowledgments that are sent anyway; a window update by itself waits for
///   room for at least two segments. FreeBSD does the same.
/// - The buffer grows if the application reads more than half of it in a round trip (dynamic right-sizing, Fisk and
///   Feng 2001, as in Linux). It never shrinks.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The position behind the last byte that the other end may send.
    edge: Seq,
    /// The size of the buffer, in bytes.
    buffer: u32,
    /// The size to which it may grow.
    most_buffer: u32,
    /// The bytes that the application read in the most successful round trip.
    most_read: u32,
    /// The bytes that the application has read since `epoch`.
    read: u32,
    /// The begin of the round trip in which `read` counts.
    epoch: Instant,
    mss: u16,
    scale: u8,
    /// Whether the last segment offered no window.
    was_closed: bool,
}

impl Window {
    /// The window that the SYN has offered.
    pub(super) fn new(next: Seq, settings: &ReceiveSettings, scale: u8, mss: u16) -> Self {
        let (scale, mss) = (scale.min(MOST_SCALE), mss.max(1));
        let most_offered = u32::from(u16::MAX) << scale;
        let buffer = round_up(settings.buffer_bytes.clamp(1, MOST_BUFFER), mss);
        Self {
            edge: next + u32::from(settings.syn_window()),
            buffer,
            most_buffer: settings.most_buffer_bytes.min(most_offered),
            // The buffer is to be twice as large as the bytes of a round trip, so it grows before it limits the other
            // end.
            most_read: buffer / 2,
            read: 0,
            epoch: Instant::ORIGIN,
            mss,
            scale,
            was_closed: false,
        }
    }

    /// RCV.WND: the bytes that the other end may send, or the room in the buffer if that is larger. The window field is
    /// RCV.WND cut to 16 bits and to the unit of the scale (RFC 7323, 2.3).
    pub(super) fn size(&self, next: Seq, unread: u32) -> u32 {
        self.edge.since(next).max(self.room(unread))
    }

    /// The position behind the last byte that the other end may send.
    #[cfg(test)]
    pub(super) const fn edge(&self) -> Seq {
        self.edge
    }

    /// The size of the buffer, in bytes.
    pub(super) const fn buffer(&self) -> u32 {
        self.buffer
    }

    /// The size of a full segment, in bytes.
    pub(super) const fn mss(&self) -> u16 {
        self.mss
    }

    /// Whether the last segment offered no window.
    pub(super) const fn was_closed(&self) -> bool {
        self.was_closed
    }

    /// Moves the edge as far as there is room; returns the window field.
    pub(super) fn advertise(&mut self, next: Seq, unread: u32) -> u16 {
        let offered = self.edge.since(next).max(self.worthwhile(unread));
        let unit = 1 << self.scale;
        // If each acknowledgment were rounded up, the edge would move with those of an owner that does not read.
        let most = (self.buffer + unit).saturating_sub(unread);
        let units = match offered.next_multiple_of(unit) <= most {
            true => offered.div_ceil(unit),
            false => offered / unit,
        };
        let field = u16::try_from(units).unwrap_or(u16::MAX);
        self.edge = self.edge.max(next + (u32::from(field) << self.scale));
        self.was_closed = field == 0;
        field
    }

    /// Whether a segment should be sent only to move the edge. `is_ack_pending`: a segment will be sent soon anyway.
    pub(super) fn update_is_due(&self, next: Seq, unread: u32, is_ack_pending: bool) -> bool {
        // What was rounded down to nothing does not let the other end send.
        let offered = match self.was_closed {
            true => 0,
            false => self.edge.since(next),
        };
        let worthwhile = self.worthwhile(unread);
        let gain = worthwhile.saturating_sub(offered);
        let (gain, segments) = (u64::from(gain), 2 * u64::from(self.mss));
        let buffer = u64::from(self.buffer);
        // An acknowledgment that waits takes the update along, unless the other end could have to wait for it.
        if is_ack_pending && u64::from(offered) >= segments {
            return false;
        }
        let is_much = gain >= buffer / 4 || gain >= u64::from(u16::MAX) << self.scale;
        let is_urgent = u64::from(worthwhile) <= buffer / 8 || buffer <= 4 * segments;
        gain >= segments && (is_much || is_urgent) || gain > 0 && 2 * gain >= buffer
    }

    /// The application has read bytes.
    pub(super) const fn on_read(&mut self, bytes: u32) {
        self.read = self.read.saturating_add(bytes);
    }

    /// Enlarges the buffer if the application has read more than ever before in a round trip: to twice as much, as the
    /// other end may double its rate in the next one, and in proportion to the growth, as it may already have done so
    /// while this one was measured.
    pub(super) fn tune(&mut self, now: Instant, round_trip: Duration) {
        if self.most_buffer <= self.buffer || now.since(self.epoch) < round_trip {
            return;
        }
        if self.epoch != Instant::ORIGIN && self.read > self.most_read {
            let (read, before) = (u64::from(self.read), u64::from(self.most_read));
            let target = 2 * read + 16 * u64::from(self.mss);
            let target = target + target * (read - before) / before.max(1);
            let target = target.min(u64::from(self.most_buffer)) as u32;
            self.buffer = self.buffer.max(target);
            self.most_read = self.read;
        }
        self.read = 0;
        self.epoch = now;
    }

    /// The room in the buffer, in bytes.
    const fn room(&self, unread: u32) -> u32 {
        self.buffer.saturating_sub(unread)
    }

    /// The room that is worth offering, in bytes.
    fn worthwhile(&self, unread: u32) -> u32 {
        let room = self.room(unread);
        let is_silly = room < self.buffer / 4 && room < u32::from(self.mss);
        match is_silly {
            true => 0,
            false => room.min(u32::from(u16::MAX) << self.scale),
        }
    }
}

/// A multiple of the segment size, so that full segments fill the buffer. Less than one segment stays as it is.
fn round_up(buffer: u32, mss: u16) -> u32 {
    match buffer > u32::from(mss) {
        true => buffer.next_multiple_of(u32::from(mss)),
        false => buffer,
    }
}

/// The largest buffer: scales can express windows up to 2^30 (RFC 7323, 2.3).
const MOST_BUFFER: u32 = 1 << 30;
