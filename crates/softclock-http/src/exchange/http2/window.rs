//! The flow-control window of a connection for the bodies that its client sends (RFC 9113, section 5.2.1).
//!
//! Bodies that are not read use it up, and then the client can send none of the others. h2 does not tell how much of it
//! is left, so it is counted in the frames of both directions.

use super::frames::{DATA, Header, Part, WINDOW_UPDATE};

/// The window as the client knows it, except for frames in flight.
#[derive(Debug)]
pub(super) struct Window {
    /// Bytes that the client may still send.
    left: i64,
    /// The payload of a frame that enlarges the window; its first `have` bytes were sent.
    update: [u8; UPDATE_BYTES],
    have: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            left: INITIAL_BYTES,
            update: [0; UPDATE_BYTES],
            have: UPDATE_BYTES,
        }
    }
}

impl Window {
    /// Records the header of a frame from the client.
    pub(super) fn on_received(&mut self, header: Header) {
        if header.kind == DATA {
            self.left -= header.bytes as i64;
        }
    }

    /// Records a part of a frame for the client.
    pub(super) fn on_sent(&mut self, part: Part<'_>) {
        match part {
            Part::Header(header) => {
                let is_update = (header.kind, header.stream) == (WINDOW_UPDATE, 0);
                self.have = if is_update { 0 } else { UPDATE_BYTES };
            }
            Part::Payload(payload) if self.have < UPDATE_BYTES => {
                let more = payload.len().min(UPDATE_BYTES - self.have);
                self.update[self.have..self.have + more].copy_from_slice(&payload[..more]);
                self.have += more;
                if self.have == UPDATE_BYTES {
                    self.left += i64::from(u32::from_be_bytes(self.update));
                }
            }
            Part::Payload(_) => {}
        }
    }

    /// Returns whether the client can send no content.
    pub(super) fn is_used_up(&self) -> bool {
        self.left <= 0
    }
}

/// The window at the start, which SETTINGS do not change (RFC 9113, section 6.9.2).
const INITIAL_BYTES: i64 = 65_535;

const UPDATE_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::http2::frames::{Frames, HEADERS};

    fn frame(kind: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        let header = [len[1], len[2], len[3], kind, 0, 0, 0, 0, stream];
        [&header, payload].concat()
    }

    #[test]
    fn content_uses_it_up_and_updates_of_the_connection_open_it() {
        let data = |bytes| Header {
            bytes,
            kind: DATA,
            flags: 0,
            stream: 1,
        };
        let sent = [
            frame(WINDOW_UPDATE, 1, &[0, 0, 1, 0]),
            frame(HEADERS, 1, &[0, 0, 1, 0]),
            frame(WINDOW_UPDATE, 0, &[0, 0, 1, 2]),
            frame(DATA, 1, &[0, 0, 1, 0]),
        ];
        let sent = sent.concat();
        for size in 1..sent.len() {
            let (mut window, mut frames) = (Window::default(), Frames::from_server());
            window.on_received(data(65_534));
            assert!(!window.is_used_up());
            window.on_received(data(1));
            assert!(window.is_used_up());
            for mut piece in sent.chunks(size) {
                while let Some(part) = frames.next(&mut piece) {
                    window.on_sent(part);
                }
            }
            assert_eq!(window.left, 0x102, "{size}");
        }
    }
}
