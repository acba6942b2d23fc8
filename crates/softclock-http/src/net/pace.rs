//! The rates at which responses are sent.

use softclock::Rate;
use softclock::net::{Pacer, Pacing};

/// Rates at which a server sends on TCP connections. They count bytes of TCP payload, including TLS records but not
/// packet headers. `None` is as fast as clients receive.
///
/// ```
/// use softclock_http::Pace;
///
/// let pace = Pace {
///     rate: Some("20mbit".parse()?),
///     total: Some("1gbit".parse()?),
///     ..Pace::default()
/// };
/// assert!(pace.rate >= Some(Pace::LEAST));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// The rate of each connection, averaged since its response began; at least [`Pace::LEAST`].
    pub rate: Option<Rate>,
    /// The rate of a connection that has fallen behind because the server was busy; by default twice its rate.
    pub burst: Option<Rate>,
    /// The bytes sent at a time, 1 to 65536. By default one TCP segment, or more if the thread cannot send so often
    /// ([`Pacing::piece_bytes`]).
    pub quantum: Option<usize>,
    /// The rate of all connections together. Each thread of a server has an equal share.
    pub total: Option<Rate>,
}

impl Pace {
    /// The least rate of a connection: 64 kbit/s, at which the contents of its buffers take about 20 seconds to send.
    /// At lower rates an HTTP/2 keep-alive PING could wait behind them for so long that a live client counts as gone.
    pub const LEAST: Rate = match Rate::from_bps(64_000) {
        Some(rate) => rate,
        None => unreachable!(),
    };

    /// Returns the pace of one of `threads` threads, with its share of the total.
    pub(crate) fn for_one_of(self, threads: usize) -> Self {
        let share = |rate: Rate| Rate::from_bps((rate.bps() / threads as u64).max(1));
        Self {
            total: self.total.and_then(share),
            ..self
        }
    }

    /// Sets these rates in `pacer`.
    pub(crate) fn apply(self, pacer: &Pacer) {
        pacer.set(self.pacing());
        pacer.set_total(self.total);
    }

    /// Returns the pacing of one connection. Without a rate of its own, it may use the total alone.
    fn pacing(self) -> Option<Pacing> {
        let mut pacing = Pacing::of_rate(self.rate.or(self.total)?);
        if let Some(burst) = self.burst {
            pacing.burst = burst;
        }
        pacing.piece_bytes = self.quantum;
        Some(pacing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_alone_paces_too() {
        let rate = |text: &str| Some(text.parse().unwrap());
        let total = Pace {
            total: rate("10mbit"),
            ..Pace::default()
        };
        assert_eq!(Pace::default().pacing(), None);
        assert_eq!(total.for_one_of(4).total, rate("2500kbit"));
        assert_eq!(total.pacing().map(|pacing| pacing.rate), rate("10mbit"));
        let both = Pace {
            rate: rate("1mbit"),
            burst: rate("5mbit"),
            quantum: Some(3_000),
            ..total
        };
        let pacing = both.pacing().unwrap();
        assert_eq!(
            (Some(pacing.rate), Some(pacing.burst), pacing.piece_bytes),
            (both.rate, both.burst, both.quantum)
        );
    }
}
