//! The options of connections: how long heads may be, and how long clients may take.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::syntax::head::HeadLimits;

/// How connections are treated.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOptions {
    /// How long heads may be.
    pub head: HeadLimits,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// HTTP/2 frames that a client may send beyond those that it needs to receive its responses; 0 is unlimited. With
    /// more the connection is ended.
    ///
    /// Each request counts as one, and so does each field line far beyond [`HeadLimits::fields`]. Each control frame
    /// (SETTINGS, PING, PRIORITY, WINDOW_UPDATE, RST_STREAM, unknown ones) counts as one, and as one more for each KiB.
    /// Responses and their DATA give some back, and so does time: a hundredth of this number each second.
    pub control_frames: u32,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            head: HeadLimits::default(),
            timeouts: Timeouts::default(),
            control_frames: 1_000,
        }
    }
}

/// How long a client may take, in each phase; `None` is for ever.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the start of the connection to its first byte. Then it is closed without a word.
    pub first_byte: Option<Duration>,
    /// From the first byte of a head to its end. Then the answer is 408. The same for the handshake of TLS, from its
    /// first byte; then it is closed.
    pub head: Option<Duration>,
    /// Between bytes of a body that is passed on. Then the answer is 408, if there was none, and the connection is
    /// closed; in HTTP/2 the stream ends. Where a body is not read, as in requests for files, the answer does not wait
    /// for it, and the connection is closed then, or after 2 seconds if that is sooner; in HTTP/2 its stream is reset
    /// after a second.
    pub body: Option<Duration>,
    /// Between requests. Then the connection is closed without a word.
    pub idle: Option<Duration>,
    /// During a response, without any of it being taken. Then the connection is reset; in HTTP/2 the stream, and the
    /// connection when all its streams wait. Time in which the server itself holds back, as it paces, does not count.
    pub send: Option<Duration>,
    /// The least a client must take of a response in bytes a second, averaged over [`rate_window`](Self::rate_window)
    /// of waiting for it; 0 for any. Then the connection is reset.
    ///
    /// In HTTP/2 the waiting streams of a connection share the rate equally, and a stream whose client takes less than
    /// its share is reset.
    pub min_rate: u32,
    /// The least a client must send of a body in bytes a second, averaged over [`rate_window`](Self::rate_window) of
    /// waiting for it; 0 for any. A slower body fails as for [`body`](Self::body).
    pub min_upload_rate: u32,
    /// See [`min_rate`](Self::min_rate).
    pub rate_window: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first_byte: Some(Duration::from_secs(30)),
            head: Some(Duration::from_secs(10)),
            body: Some(Duration::from_secs(30)),
            idle: Some(Duration::from_secs(60)),
            send: Some(Duration::from_secs(60)),
            min_rate: 256,
            min_upload_rate: 256,
            rate_window: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// Bytes of a response that a client must take in a window.
    pub(crate) fn least_in_window(&self) -> u64 {
        self.in_window(self.min_rate)
    }

    /// Bytes of a body that a client must send in a window.
    pub(crate) fn least_upload_in_window(&self) -> u64 {
        self.in_window(self.min_upload_rate)
    }

    fn in_window(&self, rate: u32) -> u64 {
        let bytes = u128::from(rate) * self.rate_window.as_millis() / 1_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// How long a client may need for so many bytes where it does not show how much of them it has taken: at the least
    /// rate, after a pause. For ever if any rate will do.
    pub(crate) fn for_bytes(&self, bytes: usize) -> Option<Duration> {
        let rate = NonZeroU32::new(self.min_rate)?;
        let pause = self.send.unwrap_or(self.rate_window);
        Some(pause + Duration::from_secs(bytes as u64) / rate.get())
    }
}

/// Bounds, with one chunk of a file, the memory of a connection.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
