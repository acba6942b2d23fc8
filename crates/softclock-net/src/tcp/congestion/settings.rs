//! Settings of congestion control.

use core::time::Duration;

/// The algorithm that grows and reduces the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// One segment for each window of acknowledged bytes, and half of the window after a loss (RFC 5681).
    NewReno,
    /// A cubic function of the time since the last loss (RFC 9438).
    #[default]
    Cubic,
}

/// The response to a pause of the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IdlePolicy {
    /// Keeps a window that is not in use for [`non_validated`](CongestionSettings::non_validated), then halves it
    /// (RFC 7661). Losses after a pause are answered by the rate that was in use, not by the window.
    #[default]
    Validate,
    /// Begins again with the initial window after an idle time longer than the retransmission timeout (RFC 5681, 4.1).
    Restart,
}

/// Settings of a [`Controller`](super::Controller).
///
/// ```
/// use softclock_net::tcp::congestion::{Algorithm, CongestionSettings};
///
/// let mut settings = CongestionSettings::default();
/// assert_eq!((settings.algorithm, settings.initial_segments), (Algorithm::Cubic, 10));
/// settings.algorithm = Algorithm::NewReno;
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CongestionSettings {
    /// The algorithm. Default: [`Algorithm::Cubic`], as all large systems use it.
    pub algorithm: Algorithm,
    /// The initial window in segments, before the byte limit of RFC 6928 (14 600 bytes, or two segments if these are
    /// larger) at the default. Default: 10. Other values are not limited in bytes.
    pub initial_segments: u8,
    /// The most segments by which one acknowledgment raises the window in slow start without HyStart++ (L of RFC 3465).
    /// After a timeout it is 1. 0: no limit, as in Linux, which counts all acknowledged bytes and relies on pacing.
    /// Default: 2.
    pub byte_counting_limit: u8,
    /// Whether the initial slow start watches round-trip times and leaves before losses (RFC 9406). Default: true.
    pub hystart: bool,
    /// The most segments by which one acknowledgment raises the window in a slow start with HyStart++ (L of RFC 9406,
    /// 4.3). 0: no limit, as the RFC recommends for paced senders; 8 is its value for others. Default: 0.
    pub hystart_limit: u8,
    /// Whether a connection that loses before it reaches its former window leaves room for others (RFC 9438, 4.7).
    /// Default: true.
    pub fast_convergence: bool,
    /// The response to pauses of the application. Default: [`IdlePolicy::Validate`].
    pub idle: IdlePolicy,
    /// How long a window that is not in use is kept, in whole seconds up to 65 535 (the non-validated period of
    /// RFC 7661, 4.4). Default: 5 minutes, as there.
    pub non_validated: Duration,
}

impl Default for CongestionSettings {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Cubic,
            initial_segments: 10,
            byte_counting_limit: 2,
            hystart: true,
            hystart_limit: 0,
            fast_convergence: true,
            idle: IdlePolicy::Validate,
            non_validated: Duration::from_secs(300),
        }
    }
}
