//! Limits how much work a client may cause beyond the responses that it receives.
//!
//! Each HTTP/2 frame costs the server some work, and the protocol lets a client send any number of most kinds: SETTINGS
//! and PING, which require an answer; PRIORITY and unknown frames, which do not; requests that are refused; and
//! thousands of header fields. So each frame costs the connection credit, charged before h2 reads it. Responses give
//! credit back, enough for the frames that a client needs to receive them: a WINDOW_UPDATE or two for each piece, and a
//! PING. Time gives a little, too, for clients that check whether an idle connection is alive. DATA is bounded by h2's
//! flow control.
//!
//! Pure: no I/O, no clock, no allocation.

use softclock::Instant;

use super::field_lines::FieldLines;
use super::frames::{CONTINUATION, DATA, Frames, HEADERS, Header, PADDED, PRIORITY, Part};
use super::refused_heads::RefusedHeads;
use super::window::Window;
use crate::observe::limit::Limit;

/// The credit of one connection.
#[derive(Debug)]
pub(super) struct Meter {
    received: Frames,
    sent: Frames,
    refused: RefusedHeads,
    window: Window,
    block: Block,
    /// The number of field lines in each header block that cost nothing.
    free_fields: usize,
    /// The credit at the start; 0 turns the meter off.
    allowance: u32,
    /// Negative once overdrawn.
    credit: i64,
    /// The time at which credit was last given for time.
    refilled: Instant,
}

/// A header block, which may span several frames.
#[derive(Debug, Default)]
struct Block {
    lines: FieldLines,
    /// Bytes of the current frame still to come before those of the block.
    skip: usize,
    /// Whether the first byte of `skip` is the length of the padding.
    is_padded: bool,
    /// Bytes of the block still to come in the current frame; 0 in frames of other kinds.
    left: usize,
}

impl Meter {
    pub(super) fn new(allowance: u32, fields: usize, now: Instant) -> Self {
        Self {
            received: Frames::from_client(),
            sent: Frames::from_server(),
            refused: RefusedHeads::default(),
            window: Window::default(),
            block: Block::default(),
            free_fields: fields.saturating_mul(FREE_FIELDS),
            allowance,
            credit: allowance.into(),
            refilled: now,
        }
    }

    /// Charges for bytes that the client has sent. O(bytes).
    ///
    /// # Errors
    /// The limit that is exceeded, when the credit does not cover the bytes.
    pub(super) fn on_received(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Limit> {
        self.refill(now);
        while let Some(part) = self.received.next(&mut bytes) {
            match part {
                Part::Header(header) => self.on_frame(header)?,
                Part::Payload(payload) => {
                    let before = self.charged_fields();
                    self.block.push(payload);
                    let more = self.charged_fields() - before;
                    self.charge(more, Limit::RequestFields)?;
                }
            }
        }
        Ok(())
    }

    /// Gives credit for bytes that were sent to the client. Returns the number of heads that h2 refused with them.
    pub(super) fn on_sent(&mut self, mut bytes: &[u8]) -> usize {
        let mut refused = 0;
        while let Some(part) = self.sent.next(&mut bytes) {
            self.window.on_sent(part);
            let Part::Header(header) = part else {
                continue;
            };
            refused += usize::from(self.refused.on_sent(header));
            let credit = match header.kind {
                HEADERS => FOR_RESPONSE,
                DATA if header.bytes > 0 => FOR_DATA + (header.bytes / BYTES_A_READ) as i64,
                _ => continue,
            };
            // Bounded, so that a long download does not pay for a later flood.
            let most = i64::from(self.allowance) * MOST_SAVED;
            self.credit = most.min(self.credit + credit);
        }
        refused
    }

    /// Returns whether the client can send no content, as the window of the connection is used up.
    pub(super) fn is_window_used_up(&self) -> bool {
        self.window.is_used_up()
    }

    /// Records that h2 has reported a request on this stream.
    pub(super) fn on_request(&mut self, stream: u32) {
        self.refused.on_request(stream);
    }

    /// Charges for a refused request that had too many `fields`. If that overdraws the credit, the next frame that
    /// costs any reports it.
    pub(super) fn on_refused(&mut self, fields: usize) {
        self.credit -= fields as i64;
    }

    /// Charges for a frame from the client, given its header.
    fn on_frame(&mut self, header: Header) -> Result<(), Limit> {
        self.refused.on_received(header);
        self.window.on_received(header);
        match header.kind {
            // Bounded by h2's flow control.
            DATA => return Ok(()),
            HEADERS => self.block = Block::of(header),
            CONTINUATION => self.block.go_on(header),
            _ => {
                self.block.left = 0;
                return self.charge(1 + header.bytes / KIB, Limit::ControlFrames);
            }
        }
        self.charge(1, Limit::ControlFrames)
    }

    fn charged_fields(&self) -> usize {
        self.block.lines.count().saturating_sub(self.free_fields)
    }

    fn charge(&mut self, cost: usize, limit: Limit) -> Result<(), Limit> {
        if self.allowance == 0 {
            return Ok(());
        }
        self.credit -= cost as i64;
        if self.credit < 0 { Err(limit) } else { Ok(()) }
    }

    /// Gives credit for the time passed, up to the allowance.
    fn refill(&mut self, now: Instant) {
        let (allowance, passed) = (i64::from(self.allowance), now.since(self.refilled));
        let passed = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        let more = passed.saturating_mul(allowance) / 100_000;
        // Fractions of a credit add up: `refilled` advances only with a whole one.
        if more > 0 {
            self.refilled = now;
            // Time alone never raises the credit above the allowance, and never takes credit from responses away.
            let refilled = allowance.min(self.credit.saturating_add(more));
            self.credit = self.credit.max(refilled);
        }
    }
}

impl Block {
    /// The block that begins in the HEADERS frame with this header.
    fn of(header: Header) -> Self {
        let is_padded = header.has(PADDED);
        let priority = if header.has(PRIORITY) { 5 } else { 0 };
        let skip = usize::from(is_padded) + priority;
        Self {
            lines: FieldLines::default(),
            skip,
            is_padded,
            left: header.bytes.saturating_sub(skip),
        }
    }

    /// Continues in the CONTINUATION frame with this header.
    fn go_on(&mut self, header: Header) {
        self.skip = 0;
        self.left = header.bytes;
    }

    /// Takes the next bytes of a frame's payload.
    fn push(&mut self, payload: &[u8]) {
        // The first byte of a padded frame is the length of the padding at its end.
        if self.is_padded {
            self.is_padded = false;
            self.left = self.left.saturating_sub(payload[0].into());
        }
        let skip = self.skip.min(payload.len());
        self.skip -= skip;
        let now = (payload.len() - skip).min(self.left);
        self.left -= now;
        self.lines.push(&payload[skip..skip + now]);
    }
}

/// Field lines are free up to this multiple of the fields that a request may have: HTTP/2 clients send each cookie in a
/// separate field, and may have 180 of them.
const FREE_FIELDS: usize = 4;

/// Credit for the head of a response: it covers the request, the end of its stream, its priority and a window update.
const FOR_RESPONSE: i64 = 8;

/// Credit for a DATA frame: it covers window updates for the stream and the connection, and a PING.
const FOR_DATA: i64 = 3;

/// A DATA frame gives one more credit for each of these bytes: some clients update their windows after every small
/// read.
const BYTES_A_READ: usize = 2 << 10;

/// Credit from responses is capped at this multiple of the allowance: clients may read long after they received.
const MOST_SAVED: i64 = 10;

const KIB: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(1) + Duration::from_secs(seconds)
    }

    /// A meter of 100 fields and 1000 frames, which has received the preface.
    fn meter() -> Meter {
        let mut meter = Meter::new(1_000, 100, at(0));
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        meter.on_received(preface, at(0)).unwrap();
        meter
    }

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![len[1], len[2], len[3], kind, flags, 0, 0, 0, stream];
        frame.extend_from_slice(payload);
        frame
    }

    /// Returns how many of these frames a client may send at once, and the limit that stops it.
    fn allowed(meter: &mut Meter, frame: &[u8]) -> (usize, Limit) {
        for count in 0..100_000 {
            if let Err(limit) = meter.on_received(frame, at(0)) {
                return (count, limit);
            }
        }
        panic!("without end");
    }

    const PING: u8 = 6;
    const UNKNOWN: u8 = 99;

    #[test]
    fn frames_of_control_are_bounded_by_number_and_bytes() {
        let control = Limit::ControlFrames;
        for kind in [2, 3, 4, 6, 7, 8, UNKNOWN] {
            let frame = frame(kind, 0, 0, &[0; 8]);
            assert_eq!(allowed(&mut meter(), &frame), (1_000, control), "{kind}");
        }
        let large = frame(UNKNOWN, 0, 0, &[0; 16 << 10]);
        assert_eq!(allowed(&mut meter(), &large), (1_000 / 17, control));
        assert_eq!(
            meter().on_received(&frame(DATA, 0, 1, b"x").repeat(5_000), at(0)),
            Ok(())
        );
        let mut unlimited = Meter::new(0, 100, at(0));
        assert_eq!(
            unlimited.on_received(&frame(PING, 0, 0, &[0; 8]).repeat(5_000), at(0)),
            Ok(())
        );
    }

    #[test]
    fn requests_without_responses_are_bounded() {
        let mut meter = meter();
        let request = frame(HEADERS, 5, 9, b"\x82\x84\x86\x41\x01a");
        assert_eq!(allowed(&mut meter, &request), (1_000, Limit::ControlFrames));
    }

    #[test]
    fn what_is_sent_makes_up_for_what_it_needs() {
        let mut meter = meter();
        let request = frame(HEADERS, 5, 1, b"\x82\x84\x86\x41\x01a");
        let update = frame(8, 0, 1, &[0, 0, 64, 0]);
        let ping = frame(PING, 0, 0, &[0; 8]);
        let response = frame(HEADERS, 4, 1, b"\x88");
        for _ in 0..10_000 {
            // Small pieces, as in a stream of messages.
            let asked = [&request[..], &update, &update, &ping].concat();
            assert_eq!(meter.on_received(&asked, at(0)), Ok(()));
            meter.on_sent(&response);
            meter.on_sent(&frame(DATA, 0, 1, &[0; 6]));
        }
        for _ in 0..1_000 {
            // Large pieces, read 4 KiB at a time, with two updates for each read.
            meter.on_sent(&frame(DATA, 0, 1, &[0; 16 << 10]));
            assert_eq!(meter.on_received(&update.repeat(8), at(0)), Ok(()));
        }
        // Sent acknowledgements give no credit, and saved credit is bounded.
        meter.on_sent(&frame(PING, 1, 0, &[0; 8]).repeat(100));
        assert!(allowed(&mut meter, &ping).0 <= 10_000);
    }

    #[test]
    fn time_makes_up_for_ten_a_second() {
        let mut meter = meter();
        let ping = frame(PING, 0, 0, &[0; 8]);
        for second in 0..5_000 {
            assert_eq!(meter.on_received(&ping.repeat(10), at(second)), Ok(()));
        }
        for second in 5_000..6_000 {
            if meter.on_received(&ping.repeat(20), at(second)).is_err() {
                return;
            }
        }
        panic!("without end");
    }

    #[test]
    fn fields_far_beyond_the_limit_cost_as_much() {
        let block = |fields: usize| frame(HEADERS, 5, 1, &vec![0x82; fields]);
        let mut generous = meter();
        assert_eq!(
            allowed(&mut generous, &block(400)),
            (1_000, Limit::ControlFrames)
        );
        assert_eq!(
            allowed(&mut meter(), &block(1_000)),
            (1, Limit::RequestFields)
        );
        assert_eq!(
            allowed(&mut meter(), &block(1_500)),
            (0, Limit::RequestFields)
        );
        let mut refused = meter();
        refused.on_refused(600);
        assert_eq!(allowed(&mut refused, &block(1)).0, 400);
        refused.on_refused(600);
        assert_eq!(allowed(&mut refused, &block(1)).0, 0);
    }

    #[test]
    fn blocks_in_pieces_and_behind_padding_are_counted_alike() {
        let mut padded = vec![100, 0, 0, 0, 0, 16];
        padded.extend([0x82; 300]);
        padded.extend([0; 100]);
        let mut stream = frame(HEADERS, PADDED | PRIORITY, 1, &padded);
        stream.extend(frame(CONTINUATION, 0, 1, &[0x82; 200]));
        stream.extend(frame(CONTINUATION, 4, 1, b""));
        for size in 1..40 {
            let mut meter = meter();
            for piece in stream.chunks(size) {
                assert_eq!(meter.on_received(piece, at(0)), Ok(()));
            }
            assert_eq!(meter.block.lines.count(), 500, "{size}");
            assert_eq!(meter.credit, 1_000 - 3 - 100, "{size}");
        }
    }
}
