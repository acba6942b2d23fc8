//! Options of connections: limits of request heads, timeouts and least rates.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::syntax::head::HeadLimits;

/// Limits and timeouts of client connections.
///
/// ```
/// use softclock_http::{ConnectionOptions, Timeouts};
/// use std::time::Duration;
///
/// let options = ConnectionOptions {
///     timeouts: Timeouts {
///         idle: Some(Duration::from_secs(15)),
///         ..Timeouts::default()
///     },
///     ..ConnectionOptions::default()
/// };
/// assert_eq!(options.timeouts.head, Some(Duration::from_secs(10)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOptions {
    /// Limits of request heads.
    pub head: HeadLimits,
    /// Timeouts and least rates.
    pub timeouts: Timeouts,
    /// The number of HTTP/2 frames that a client may send beyond those that it needs to receive its responses; 0 is
    /// unlimited. The connection ends when it is exceeded.
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

/// How long a client may take in each phase of a connection; `None` disables a timeout.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the start of the connection to its first byte. After that the connection is closed without a response.
    pub first_byte: Option<Duration>,
    /// From the first byte of a head to its end. After that the response is 408. Also limits the TLS handshake from its
    /// first byte; after that the connection is closed.
    pub head: Option<Duration>,
    /// Between bytes of a body that is passed on to an upstream. After that the response is 408 if none was sent yet,
    /// and the connection is closed; in HTTP/2 only the stream ends.
    ///
    /// A body that is not read, as in a request for a file, does not delay the response. The connection is closed after
    /// this time or after 2 seconds, whichever is sooner; in HTTP/2 the stream is reset after 1 second.
    pub body: Option<Duration>,
    /// Between requests. After that the connection is closed without a response.
    pub idle: Option<Duration>,
    /// During a response, without the client taking any of it. After that the connection is reset; in HTTP/2 the
    /// stream, or the connection if all its streams wait. Time in which the server itself holds back data, as when it
    /// paces, does not count.
    pub send: Option<Duration>,
    /// The least rate in bytes per second at which a client must take a response, averaged over
    /// [`rate_window`](Self::rate_window) of waiting for the client; 0 for none. A slower connection is reset.
    ///
    /// In HTTP/2 the waiting streams of a connection share the rate equally, and a stream whose client takes less than
    /// its share is reset.
    pub min_rate: u32,
    /// The least rate in bytes per second at which a client must send a body, averaged over
    /// [`rate_window`](Self::rate_window) of waiting for the client; 0 for none. A slower body fails as for
    /// [`body`](Self::body).
    pub min_upload_rate: u32,
    /// The time over which [`min_rate`](Self::min_rate) and [`min_upload_rate`](Self::min_upload_rate) are averaged.
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
    /// Returns the bytes of a response that a client must take in each window.
    pub(crate) fn least_in_window(&self) -> u64 {
        self.in_window(self.min_rate)
    }

    /// Returns the bytes of a body that a client must send in each window.
    pub(crate) fn least_upload_in_window(&self) -> u64 {
        self.in_window(self.min_upload_rate)
    }

    fn in_window(&self, rate: u32) -> u64 {
        let bytes = u128::from(rate) * self.rate_window.as_millis() / 1_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns how long a client may need for this many bytes if its progress cannot be observed: the time at the least
    /// rate, and one pause of [`send`](Self::send). `None` if there is no least rate.
    pub(crate) fn for_bytes(&self, bytes: usize) -> Option<Duration> {
        let rate = NonZeroU32::new(self.min_rate)?;
        let pause = self.send.unwrap_or(self.rate_window);
        Some(pause + Duration::from_secs(bytes as u64) / rate.get())
    }
}

/// The largest buffer of a connection; with one chunk of a file, it bounds the memory of a connection.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
