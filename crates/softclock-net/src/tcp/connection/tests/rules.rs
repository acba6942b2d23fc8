//! Single rules, step by step.

use alloc::vec;
use core::time::Duration;

use softclock_core::Instant;

use super::*;

/// A connection whose peer the test plays. Its initial sequence number, and that of the peer, are 0.
struct Bench {
    connection: Connection<Vec<u8>>,
    limiter: ChallengeLimiter,
    now: Instant,
}

impl Bench {
    /// A connection whose SYN was sent. Its segments carry 1000 bytes.
    fn connecting(settings: Settings) -> Self {
        let flow = Flow {
            transport: Transport::Tcp,
            remote: ("192.0.2.7".parse().unwrap(), 80),
            local: ("192.0.2.1".parse().unwrap(), 40_000),
        };
        let now = Instant::from_ns(1_000_000_000);
        let mut bench = Self {
            connection: Connection::connect(now, flow, settings.into(), (Seq(0), 0), 1040),
            limiter: ChallengeLimiter::new(ChallengeSettings::default(), HashKey([1, 2])),
            now,
        };
        assert_eq!(bench.sent().len(), 1);
        bench
    }

    /// An established connection to a peer whose SYN has these options.
    fn open(settings: Settings, options: Options) -> Self {
        let mut bench = Self::connecting(settings);
        let _ = bench.receive(Flags::SYN | Flags::ACK, (0, 1), options, 0);
        assert_eq!(bench.connection.state(), State::Established);
        assert_eq!(bench.sent().len(), 1);
        bench
    }

    /// All segments that can be sent now.
    fn sent(&mut self) -> Vec<Outgoing> {
        core::iter::from_fn(|| self.connection.poll_transmit(self.now)).collect()
    }

    /// Processes a segment of the peer with as many bytes.
    fn receive(
        &mut self,
        flags: Flags,
        (sequence, acknowledgment): (u32, u32),
        options: Options,
        bytes: usize,
    ) -> Events {
        let header = Header {
            sequence: Seq(sequence),
            acknowledgment: Seq(acknowledgment),
            flags,
            window: 60_000,
            ..Header::default()
        };
        let arrival = Arrival {
            now: self.now,
            arrived: self.now,
            is_marked: false,
        };
        let payload = Payload::new(vec![7; bytes], 0..bytes);
        let limiter = &mut self.limiter;
        self.connection
            .on_segment(arrival, (&header, &options), payload, limiter)
    }
}

#[test]
fn an_acknowledgment_behind_a_window_that_is_full_but_for_its_front_counts() {
    let mut settings = Settings {
        has_window_scale: false,
        ..Settings::default()
    };
    settings.receive.buffer_bytes = 3000;
    settings.receive.most_buffer_bytes = 3000;
    let options = Options {
        mss: Some(1000),
        is_sack_permitted: true,
        ..Options::default()
    };
    let mut bench = Bench::open(settings, options);
    bench.connection.write(vec![7; 1000].into()).unwrap();
    assert_eq!(bench.sent().len(), 1);
    bench.now += Duration::from_millis(40);
    // The first of three segments is lost.
    for sequence in [1001, 2001] {
        let _ = bench.receive(Flags::ACK, (sequence, 1), Options::default(), 1000);
    }
    assert_eq!(bench.connection.unacknowledged(), 1000);
    let events = bench.receive(Flags::ACK, (3001, 1001), Options::default(), 0);
    assert_eq!(events.dropped, None);
    assert_eq!(bench.connection.unacknowledged(), 0);
    // Data there is not taken.
    let events = bench.receive(Flags::ACK, (3001, 1001), Options::default(), 1000);
    assert_eq!(events.dropped, Some(DropReason::TcpWindow));
    assert_eq!(bench.connection.numbers().1, Seq(1));
}

#[test]
fn a_peer_that_repeats_its_crossing_syn_does_not_prolong_an_attempt_to_connect() {
    let settings = Settings {
        connect_timeout: Some(Duration::from_secs(10)),
        ..Settings::default()
    };
    let mut bench = Bench::connecting(settings);
    let end = bench.now + Duration::from_secs(60);
    while bench.now < end {
        let _ = bench.receive(Flags::SYN, (0, 0), Options::default(), 0);
        bench.sent();
        bench.now += Duration::from_millis(500);
        let due = bench.connection.next_timeout();
        if due.is_some_and(|due| due <= bench.now) {
            let _ = bench.connection.on_timer(bench.now);
        }
    }
    assert_eq!(bench.connection.take_error(), Some(Error::TimedOut));
}

#[test]
fn syns_with_an_old_time_stamp_have_the_limits_of_challenges() {
    let timestamps = |value| Options {
        timestamps: Some(Timestamps { value, echo: 0 }),
        ..Options::default()
    };
    for bytes in [0, 10] {
        let mut bench = Bench::open(Settings::default(), timestamps(1000));
        let mut answers = 0;
        for _ in 0..5 {
            let events = bench.receive(Flags::SYN, (0, 0), timestamps(999), bytes);
            assert_eq!(events.dropped, Some(DropReason::TcpTimestamp));
            answers += bench.sent().len();
        }
        assert_eq!(answers, 1);
    }
}
