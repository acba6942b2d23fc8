//! The rates at which responses are sent.

use softclock::Rate;
use softclock::net::{Pacer, Pacing};

/// Rates at which a server sends, of bytes on its TCP connections (TLS included, the headers of packets not). `None` is as
/// fast as clients take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// Of each connection, on average since a response began; at least [`Pace::LEAST`].
    pub rate: Option<Rate>,
    /// Of a connection that has fallen behind, because the server was busy; twice its rate if not given.
    pub burst: Option<Rate>,
    /// Bytes that go at once, 1 to 65536: else a segment, or more where a thread cannot send so often
    /// ([`Pacing::piece_bytes`]).
    pub quantum: Option<usize>,
    /// Of all connections together. Each thread of a server has an equal share of it.
    pub total: Option<Rate>,
}

impl Pace {
    /// At 64 kbit/s what a connection keeps in its buffers takes some 20 seconds. At less, HTTP/2 would take clients for
    /// dead whose answers wait for our own.
    pub const LEAST: Rate = match Rate::from_bps(64_000) {
        Some(rate) => rate,
        None => unreachable!(),
    };

    /// The share of one of `threads`.
    pub(crate) fn for_one_of(self, threads: usize) -> Self {
        let share = |rate: Rate| Rate::from_bps((rate.bps() / threads as u64).max(1));
        Self {
            total: self.total.and_then(share),
            ..self
        }
    }

    /// Has `pacer` keep these rates from now on.
    pub(crate) fn apply(self, pacer: &Pacer) {
        pacer.set(self.pacing());
        pacer.set_total(self.total);
    }

    /// Of one connection: alone it has the total.
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
