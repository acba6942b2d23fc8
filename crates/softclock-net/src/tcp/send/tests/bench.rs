//! A sender whose peer the test plays.

use super::*;

/// A sender of segments of 1000 bytes, with a round trip of 40 ms.
pub(super) struct Bench {
    pub(super) sender: Sender,
    pub(super) now: Instant,
}

impl Bench {
    pub(super) fn new(settings: &SendSettings, options: &PeerOptions) -> Self {
        let now = at(1000);
        let mut sender = Sender::new(Seq(0), settings, options, 1 << 20, now);
        sender.on_handshake_rtt(now, ms(40));
        Self { sender, now }
    }

    pub(super) fn plain() -> Self {
        Self::unpaced(&peer())
    }

    pub(super) fn with_ecn() -> Self {
        let options = PeerOptions {
            ecn: Ecn::Classic,
            ..peer()
        };
        Self::unpaced(&options)
    }

    fn unpaced(options: &PeerOptions) -> Self {
        let mut settings = SendSettings::default();
        settings.pacing.is_enabled = false;
        Self::new(&settings, options)
    }

    pub(super) fn write(&mut self, bytes: usize) {
        self.sender.write(vec![7; bytes].into()).unwrap();
    }

    pub(super) fn sent(&mut self) -> Vec<Transmit> {
        core::iter::from_fn(|| self.sender.poll_transmit(self.now)).collect()
    }

    pub(super) fn starts(&mut self) -> Vec<u32> {
        self.sent().iter().map(|segment| segment.seq.0).collect()
    }

    pub(super) fn pass(&mut self, millis: u64) {
        self.now += ms(millis);
    }

    pub(super) fn ack(&mut self, to: u32, sack: &[(u32, u32)]) -> Acked {
        self.ack_with(to, sack, 1 << 20, None, false)
    }

    pub(super) fn ack_with(
        &mut self,
        to: u32,
        sack: &[(u32, u32)],
        window: u32,
        echo: Option<u32>,
        ece: bool,
    ) -> Acked {
        let mut blocks = SackBlocks::default();
        for &(start, end) in sack {
            blocks.push(SackBlock {
                start: Seq(start),
                end: Seq(end),
            });
        }
        let ack = Ack {
            acknowledgment: Seq(to),
            window,
            sack: &blocks,
            echo,
            ece,
            carries_data: false,
            seq: Seq(0),
        };
        self.sender.on_ack(self.now, self.now, &ack)
    }

    /// Goes to the next timeout.
    pub(super) fn wait(&mut self) -> TimerOutcome {
        self.now = self.sender.next_timeout().unwrap();
        self.sender.on_timer(self.now)
    }
}
