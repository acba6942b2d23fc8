//! Tests of listeners: handshakes with and without records, segments that do not belong to one, limits and timers.

use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::demux::{HashKey, Transport};
use crate::fuzz_input;
use crate::tcp::peer::EcnMode;
use crate::tcp::segment::Header;

#[path = "target.rs"]
mod target;

const REMOTE: Seq = Seq(u32::MAX - 1);

fn flow(port: u16) -> Flow {
    let address = |text: &str| text.parse().unwrap();
    Flow {
        transport: Transport::Tcp,
        remote: match port % 2 {
            0 => (address("192.0.2.1"), port),
            _ => (address("2001:db8::1"), port),
        },
        local: match port % 2 {
            0 => (address("192.0.2.2"), 80),
            _ => (address("2001:db8::2"), 80),
        },
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_ns(1_000_000_000_000 + ms * 1_000_000)
}

fn segment(flags: Flags, sequence: Seq, acknowledgment: Seq) -> Segment<'static> {
    Segment {
        header: Header {
            sequence,
            acknowledgment,
            flags,
            window: 1000,
            ..Header::default()
        },
        options: Options::default(),
        payload: &[],
    }
}

/// A listener and the state that it shares.
struct Host {
    shared: Shared,
    listener: Listener<u16>,
}

impl Host {
    fn new(settings: ListenSettings) -> Self {
        Self::with(settings, SharedSettings::default())
    }

    fn with(settings: ListenSettings, shared: SharedSettings) -> Self {
        let shared = Shared::new(shared, HashKey([1, 2]));
        let listener = Listener::new(settings, &shared);
        Self { shared, listener }
    }

    fn receive(&mut self, ms: u64, port: u16, segment: &Segment<'_>) -> Outcome {
        let now = at(ms);
        self.listener
            .on_segment(&mut self.shared, now, now, flow(port), segment)
    }

    /// The answer to a SYN.
    fn syn_ack(&mut self, ms: u64, port: u16, syn: &Segment<'_>) -> Reply {
        match self.receive(ms, port, syn) {
            Outcome::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// A half-open connection: its SYN-ACK.
    fn half_open(&mut self, ms: u64, port: u16) -> Reply {
        self.syn_ack(ms, port, &segment(Flags::SYN, REMOTE, Seq(0)))
    }

    fn timer(&mut self, ms: u64) -> Vec<Reply> {
        let (listener, shared) = (&mut self.listener, &mut self.shared);
        core::iter::from_fn(|| listener.on_timer(shared, at(ms))).collect()
    }
}

fn settings(change: impl FnOnce(&mut ListenSettings)) -> ListenSettings {
    let mut settings = ListenSettings::default();
    change(&mut settings);
    settings
}

/// The acknowledgment of a SYN-ACK, with the time stamps of its peer.
fn third(syn_ack: &Reply, timestamp: Option<u32>) -> Segment<'static> {
    let header = syn_ack.header;
    let mut third = segment(Flags::ACK, header.acknowledgment, header.sequence + 1);
    third.options.timestamps = timestamp.map(|value| Timestamps {
        value,
        echo: syn_ack.options.timestamps.map_or(0, |times| times.value),
    });
    third
}

fn clients() -> impl Strategy<Value = Offer> {
    let options = (
        88..=9000_u16,
        prop::option::of(0..=14_u8),
        any::<[bool; 2]>(),
        prop::sample::select(&[EcnMode::Off, EcnMode::Accept, EcnMode::On][..]),
    );
    options.prop_map(
        |(mss, window_scale, [has_sack, has_timestamps], ecn)| Offer {
            mss,
            window_scale,
            has_sack,
            has_timestamps,
            ecn,
            ..Offer::default()
        },
    )
}

proptest! {
    #[test]
    fn a_handshake_comes_to_the_same_options_at_both_ends(
        client in clients(),
        server in clients(),
        port in any::<u16>(),
        is_by_cookie in any::<bool>(),
        round_trip in 0..60_000_u64,
        times in any::<u32>(),
    ) {
        let mut host = Host::new(settings(|settings| {
            settings.offer = server;
            settings.cookies = if is_by_cookie { CookieUse::Always } else { CookieUse::Never };
        }));
        let mut syn = segment(client.syn_flags(), REMOTE, Seq(0));
        syn.options = client.syn_options(times);
        let syn_ack = host.syn_ack(0, port, &syn);
        prop_assert_eq!(syn_ack.header.acknowledgment, REMOTE + 1);
        prop_assert_eq!((syn_ack.flow, syn_ack.header.destination_port), (flow(port), port));
        prop_assert_eq!(host.listener.half_open(), usize::from(!is_by_cookie));
        let is_v4 = flow(port).remote.0.is_ipv4();
        let (flags, options) = (syn_ack.header.flags, &syn_ack.options);
        let agreed = PeerOptions::negotiate(&client, flags, options, is_v4);
        prop_assert_eq!(agreed.mss, if is_v4 { 1460 } else { 1440 });

        let timestamp = agreed.timestamps.map(|_| times.wrapping_add(1));
        let outcome = host.receive(round_trip, port, &third(&syn_ack, timestamp));
        let Outcome::Completed(handshake) = outcome else { panic!("{outcome:?}") };
        prop_assert_eq!(handshake.local_initial, syn_ack.header.sequence);
        prop_assert_eq!(handshake.remote_initial, REMOTE);
        let peer = handshake.peer;
        prop_assert!(peer.mss <= client.mss && (is_by_cookie || peer.mss == client.mss));
        prop_assert_eq!(handshake.own_shift, agreed.window_shift());
        prop_assert_eq!(peer.window_shift(), client.agreed_shift(&agreed));
        prop_assert_eq!(handshake.window, 1000 << peer.window_shift());
        prop_assert_eq!(peer.is_sack_permitted, agreed.is_sack_permitted);
        prop_assert_eq!(peer.timestamps.is_some(), agreed.timestamps.is_some());
        prop_assert_eq!(peer.ecn, agreed.ecn);
        let sent = (!is_by_cookie).then(|| Duration::from_millis(round_trip));
        prop_assert_eq!(handshake.round_trip, sent);
        prop_assert_eq!((host.listener.half_open(), host.shared.half_open()), (0, 0));
    }

    #[test]
    fn any_segments_leave_a_listener_within_its_limits(
        cookies in prop_oneof![Just(CookieUse::Never), Just(CookieUse::WhenFull), Just(CookieUse::Always)],
        steps in prop::collection::vec(
            (0..6_u16, 0..0x200_u16, -2..3_i32, -2..3_i32, any::<Option<u32>>(), 0..3_000_u64),
            1..200,
        ),
    ) {
        let mut host = Host::new(settings(|settings| {
            settings.cookies = cookies;
            settings.half_open = 3;
            settings.backlog = 2;
            settings.drops_syn_fin = false;
        }));
        let mut local = Seq(0);
        let mut ms = 0;
        for (port, flags, sequence, acknowledgment, times, later) in steps {
            ms += later;
            for reply in host.timer(ms) {
                prop_assert!(reply.header.flags.contains(Flags::SYN | Flags::ACK));
            }
            let sequence = REMOTE + sequence as u32;
            let mut segment = segment(Flags(flags), sequence, local + acknowledgment as u32);
            segment.options.timestamps = times.map(|value| Timestamps { value, echo: 0 });
            match host.receive(ms, port, &segment) {
                Outcome::Reply(reply) => {
                    prop_assert!(reply.header.flags.contains(Flags::SYN | Flags::ACK));
                    local = reply.header.sequence;
                }
                Outcome::Refused(reply, _) => {
                    let expected = [Flags::ACK, Flags::RST, Flags::RST | Flags::ACK];
                    prop_assert!(expected.contains(&reply.header.flags));
                    prop_assert!(!segment.header.flags.contains(Flags::RST) || reply.header.flags == Flags::ACK);
                }
                Outcome::Completed(handshake) => {
                    prop_assert_eq!(handshake.flow, flow(port));
                    prop_assert_eq!(host.listener.push(port), Ok(()));
                }
                Outcome::Reset | Outcome::Dropped(_) => {}
            }
            if host.listener.is_full() && ms % 3 == 0 {
                prop_assert!(host.listener.accept().is_some());
            }
            prop_assert!(host.listener.half_open() <= 3 && host.listener.waiting() <= 2);
            prop_assert_eq!(host.listener.half_open(), host.shared.half_open());
            prop_assert_eq!(host.listener.next_timeout().is_some(), host.listener.half_open() > 0);
        }
        let waiting = host.listener.waiting();
        prop_assert_eq!(host.listener.close(&mut host.shared).count(), waiting);
        prop_assert_eq!(host.shared.half_open(), 0);
    }
}

#[test]
fn a_syn_ack_is_sent_again_after_1_2_4_8_and_16_seconds_and_then_given_up() {
    let mut host = Host::new(ListenSettings::default());
    let syn_ack = host.half_open(0, 1);
    let mut times = Vec::new();
    while let Some(deadline) = host.listener.next_timeout() {
        let ms = deadline.since(at(0)).as_millis() as u64;
        assert!(host.timer(ms - 1).is_empty());
        for reply in host.timer(ms) {
            assert_eq!(reply, syn_ack);
            times.push(ms / 1000);
        }
    }
    assert_eq!(times, [1, 3, 7, 15, 31]);
    assert_eq!((host.listener.half_open(), host.shared.half_open()), (0, 0));
    let stats = host.listener.stats();
    assert_eq!((stats.retransmitted, stats.timed_out), (5, 1));
}

#[test]
fn a_handshake_after_a_retransmission_tells_no_round_trip_time() {
    for by_timer in [true, false] {
        let mut host = Host::new(ListenSettings::default());
        let syn_ack = host.half_open(0, 1);
        match by_timer {
            true => assert_eq!(host.timer(1000), [syn_ack]),
            false => assert_eq!(host.half_open(500, 1), syn_ack),
        }
        let outcome = host.receive(1100, 1, &third(&syn_ack, None));
        let Outcome::Completed(handshake) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(handshake.is_retransmitted && handshake.round_trip.is_none());
    }
}

#[test]
fn a_syn_that_comes_again_with_fewer_options_is_answered_with_fewer() {
    let mut host = Host::new(ListenSettings::default());
    let mut syn = segment(Flags::SYN, REMOTE, Seq(0));
    syn.options = Offer::default().syn_options(5);
    let first = host.syn_ack(0, 1, &syn);
    assert_eq!(first.options.window_scale, Some(7));
    let second = host.half_open(1000, 1);
    assert_eq!(second.header, first.header);
    let only_mss = Options {
        mss: Some(1440),
        ..Options::default()
    };
    assert_eq!(second.options, only_mss);
}

#[test]
fn a_reset_ends_a_half_open_connection_only_at_exactly_the_next_sequence_number() {
    for flags in [Flags::RST, Flags::RST | Flags::ACK] {
        let mut host = Host::new(ListenSettings::default());
        let syn_ack = host.half_open(0, 1);
        let reset = |sequence| segment(flags, sequence, Seq(5));

        for outside in [REMOTE, REMOTE + 65_536] {
            let dropped = Outcome::Dropped(DropReason::TcpUnacceptable);
            assert_eq!(host.receive(1, 1, &reset(outside)), dropped);
        }
        let outcome = host.receive(2, 1, &reset(REMOTE + 65_535));
        let Outcome::Refused(challenge, DropReason::TcpBlindReset) = outcome else {
            panic!("{outcome:?}")
        };
        let header = challenge.header;
        assert_eq!((header.flags, header.window), (Flags::ACK, 65_535));
        assert_eq!(header.sequence, syn_ack.header.sequence + 1);
        assert_eq!(header.acknowledgment, REMOTE + 1);
        let limited = host.receive(3, 1, &reset(REMOTE + 2));
        assert_eq!(limited, Outcome::Dropped(DropReason::TcpBlindReset));

        assert_eq!(host.receive(4, 1, &reset(REMOTE + 1)), Outcome::Reset);
        let unknown = host.receive(5, 1, &reset(REMOTE + 1));
        assert_eq!(unknown, Outcome::Dropped(DropReason::TcpState));
        assert_eq!(host.shared.half_open(), 0);
    }
}

#[test]
fn another_syn_of_a_half_open_flow_is_challenged_and_the_peer_that_restarted_gets_through() {
    let mut host = Host::new(ListenSettings::default());
    host.half_open(0, 1);
    let syn = segment(Flags::SYN, Seq(500), Seq(0));
    let outcome = host.receive(1, 1, &syn);
    let Outcome::Refused(challenge, DropReason::TcpBlindReset) = outcome else {
        panic!("{outcome:?}")
    };
    // The peer in SYN-SENT answers an acknowledgment that it does not expect by a reset (RFC 9293, 3.10.7.3).
    let reset = segment(Flags::RST, challenge.header.acknowledgment, Seq(0));
    assert_eq!(host.receive(2, 1, &reset), Outcome::Reset);
    assert_eq!(host.syn_ack(3, 1, &syn).header.acknowledgment, Seq(501));
}

#[test]
fn acknowledgments_to_a_listener_without_half_open_connection_are_reset() {
    let mut host = Host::new(ListenSettings::default());
    for flags in [Flags::ACK, Flags::ACK | Flags::FIN, Flags::ACK | Flags::SYN] {
        let outcome = host.receive(0, 2, &segment(flags, Seq(17), Seq(34)));
        let Outcome::Refused(reset, DropReason::TcpBadCookie) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(
            (reset.header.flags, reset.header.sequence),
            (Flags::RST, Seq(34))
        );
    }
    for flags in [Flags::empty(), Flags::FIN, Flags::PSH, Flags::RST] {
        let outcome = host.receive(0, 2, &segment(flags, Seq(17), Seq(34)));
        assert_eq!(outcome, Outcome::Dropped(DropReason::TcpState));
    }
}

#[test]
fn a_wrong_acknowledgment_is_reset_and_the_half_open_connection_stays() {
    let mut host = Host::new(ListenSettings::default());
    let syn_ack = host.half_open(0, 1);
    for wrong in [0, 2, 1 << 31] {
        let wrong = syn_ack.header.sequence + wrong;
        let outcome = host.receive(1, 1, &segment(Flags::ACK, REMOTE + 1, wrong));
        let Outcome::Refused(reset, DropReason::TcpAck) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(
            (reset.header.flags, reset.header.sequence),
            (Flags::RST, wrong)
        );
    }
    let outcome = host.receive(2, 1, &third(&syn_ack, None));
    assert!(matches!(outcome, Outcome::Completed(_)));
}

#[test]
fn segments_outside_the_window_or_with_old_or_missing_time_stamps_are_acknowledged() {
    let mut host = Host::new(ListenSettings::default());
    let mut syn = segment(Flags::SYN, REMOTE, Seq(0));
    syn.options = Offer::default().syn_options(100);
    let syn_ack = host.syn_ack(0, 1, &syn);

    let old = third(&syn_ack, Some(99));
    let missing = third(&syn_ack, None);
    let mut outside = third(&syn_ack, Some(101));
    outside.header.sequence = REMOTE;
    let cases = [
        (old, DropReason::TcpTimestamp),
        (missing, DropReason::TcpTimestamp),
        (outside, DropReason::TcpUnacceptable),
    ];
    for (number, (segment, reason)) in cases.into_iter().enumerate() {
        let outcome = host.receive(1000 * number as u64, 1, &segment);
        let Outcome::Refused(challenge, refused) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((challenge.header.flags, refused), (Flags::ACK, reason));
        assert_eq!(
            challenge.options.timestamps.map(|times| times.echo),
            Some(100)
        );
        assert_eq!(challenge.header.window, 65_535 >> 7);
    }
}

#[test]
fn data_and_fin_with_the_third_segment_complete_the_handshake() {
    let mut host = Host::new(ListenSettings::default());
    let syn_ack = host.half_open(0, 1);
    let mut request = third(&syn_ack, None);
    request.header.flags |= Flags::FIN | Flags::PSH;
    request.payload = b"GET /";
    let outcome = host.receive(1, 1, &request);
    assert!(matches!(outcome, Outcome::Completed(_)));
}

#[test]
fn a_syn_with_fin_is_dropped_by_default_and_a_setting_takes_it_for_a_syn() {
    let syn_fin = segment(Flags::SYN | Flags::FIN, Seq(17), Seq(0));
    let mut host = Host::new(ListenSettings::default());
    let outcome = host.receive(0, 2, &syn_fin);
    assert_eq!(outcome, Outcome::Dropped(DropReason::TcpState));

    let mut host = Host::new(settings(|settings| settings.drops_syn_fin = false));
    assert_eq!(host.syn_ack(0, 2, &syn_fin).header.acknowledgment, Seq(18));
}

#[test]
fn data_with_a_syn_is_not_acknowledged() {
    let mut host = Host::new(ListenSettings::default());
    let mut syn = segment(Flags::SYN, Seq(27), Seq(0));
    syn.payload = b"abc";
    assert_eq!(host.syn_ack(0, 2, &syn).header.acknowledgment, Seq(28));
}

#[test]
fn a_full_backlog_drops_syns_and_keeps_half_open_connections() {
    let mut host = Host::new(settings(|settings| settings.backlog = 1));
    let (first, second) = (host.half_open(0, 1), host.half_open(0, 2));
    let outcome = host.receive(1, 1, &third(&first, None));
    assert!(matches!(outcome, Outcome::Completed(_)));
    assert_eq!(host.listener.push(1), Ok(()));
    assert_eq!(host.listener.push(3), Err(3));
    assert!(host.listener.is_full());

    let dropped = Outcome::Dropped(DropReason::TcpAcceptQueueFull);
    assert_eq!(
        host.receive(2, 3, &segment(Flags::SYN, REMOTE, Seq(0))),
        dropped
    );
    assert_eq!(host.receive(2, 2, &third(&second, None)), dropped);
    assert_eq!(host.listener.accept(), Some(1));
    let outcome = host.receive(3, 2, &third(&second, None));
    assert!(matches!(outcome, Outcome::Completed(_)));
}

#[test]
fn a_connection_that_was_reset_leaves_the_backlog() {
    let mut host = Host::new(ListenSettings::default());
    for port in 0..3 {
        host.listener.push(port).unwrap();
    }
    assert!(host.listener.forget(&1) && !host.listener.forget(&1));
    let accepted: Vec<_> = core::iter::from_fn(|| host.listener.accept()).collect();
    assert_eq!(accepted, [0, 2]);
}

#[test]
fn without_cookies_the_oldest_half_open_connection_gives_way() {
    let mut host = Host::new(settings(|settings| {
        settings.cookies = CookieUse::Never;
        settings.half_open = 2;
    }));
    let first = host.half_open(0, 1);
    assert_eq!(host.timer(1000).len(), 1);
    let second = host.half_open(1001, 2);
    host.half_open(1002, 3);
    assert_eq!(
        (host.listener.half_open(), host.listener.stats().displaced),
        (2, 1)
    );
    let forgotten = host.receive(1003, 1, &third(&first, None));
    assert!(matches!(
        forgotten,
        Outcome::Refused(_, DropReason::TcpBadCookie)
    ));
    let outcome = host.receive(1003, 2, &third(&second, None));
    assert!(matches!(outcome, Outcome::Completed(_)));
}

/// The client repeats its SYN when there is room again, and then acknowledges the cookie.
#[test]
fn a_cookie_is_taken_beside_a_half_open_connection_of_its_flow() {
    let mut host = Host::new(settings(|settings| settings.half_open = 1));
    let (other, by_cookie) = (host.half_open(0, 1), host.half_open(0, 2));
    assert_eq!(host.listener.stats().cookies_sent, 1);
    let complete = |outcome| matches!(outcome, Outcome::Completed(_));
    assert!(complete(host.receive(1, 1, &third(&other, None))));
    let again = host.half_open(1_000, 2);
    assert_ne!(again.header.sequence, by_cookie.header.sequence);
    let mut forged = third(&by_cookie, None);
    forged.header.acknowledgment += 1 << 20;
    let refused = host.receive(1_001, 2, &forged);
    assert!(matches!(refused, Outcome::Refused(_, DropReason::TcpAck)));
    assert_eq!(host.listener.half_open(), 1);
    assert!(complete(host.receive(1_001, 2, &third(&by_cookie, None))));
    assert_eq!((host.listener.half_open(), host.shared.half_open()), (0, 0));
}

#[test]
fn the_limit_of_all_listeners_starves_none_that_uses_cookies() {
    let all = SharedSettings {
        half_open: 1,
        ..SharedSettings::default()
    };
    let mut host = Host::with(ListenSettings::default(), all);
    host.half_open(0, 1);
    let mut other = Listener::new(ListenSettings::default(), &host.shared);
    core::mem::swap(&mut host.listener, &mut other);
    let by_cookie = host.half_open(0, 2);
    assert_eq!(host.listener.stats().cookies_sent, 1);
    let outcome = host.receive(1, 2, &third(&by_cookie, None));
    assert!(matches!(outcome, Outcome::Completed(_)));
    assert_eq!(host.shared.half_open(), 1);

    let never = settings(|settings| settings.cookies = CookieUse::Never);
    host.listener = Listener::new(never, &host.shared);
    let outcome = host.receive(2, 3, &segment(Flags::SYN, REMOTE, Seq(0)));
    assert_eq!(outcome, Outcome::Dropped(DropReason::TcpSynQueueFull));
}

#[test]
fn a_cookie_is_refused_when_it_is_old_or_forged_or_none_was_sent() {
    let always = settings(|settings| settings.cookies = CookieUse::Always);
    let mut host = Host::new(always);
    let mut syn = segment(Flags::SYN, REMOTE, Seq(0));
    syn.options = Offer::default().syn_options(100);
    let syn_ack = host.syn_ack(0, 1, &syn);
    let refused = |outcome| matches!(outcome, Outcome::Refused(_, DropReason::TcpBadCookie));
    let valid = third(&syn_ack, Some(101));

    let mut other_number = valid.clone();
    other_number.header.acknowledgment += 1 << 20;
    assert!(refused(host.receive(1, 1, &other_number)));
    let mut other_echo = valid.clone();
    other_echo.options.timestamps = Some(Timestamps {
        value: 101,
        echo: 0,
    });
    assert!(refused(host.receive(1, 1, &other_echo)));
    assert!(refused(host.receive(1, 3, &valid)));
    assert!(refused(host.receive(128_001, 1, &valid)));

    let mut without = Host::new(ListenSettings::default());
    assert!(refused(without.receive(1, 1, &valid)));
    assert!(matches!(host.receive(1, 1, &valid), Outcome::Completed(_)));
    assert_eq!(host.listener.stats().cookies_accepted, 1);
}

#[test]
fn a_connection_that_reuses_a_flow_begins_behind_the_previous_one_and_uses_no_cookie() {
    let mut host = Host::new(ListenSettings::default());
    let syn = segment(Flags::SYN, REMOTE, Seq(0));
    let Reply { header, .. } = host.half_open(0, 1);
    let reset = segment(Flags::RST, REMOTE + 1, Seq(0));
    assert_eq!(host.receive(0, 1, &reset), Outcome::Reset);

    let previous = header.sequence + 1_000_000;
    let (listener, shared) = (&mut host.listener, &mut host.shared);
    let outcome = listener.on_syn(shared, at(1), flow(1), &syn, Some(previous));
    let Outcome::Reply(syn_ack) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(previous.is_before(syn_ack.header.sequence));

    host.listener.settings.cookies = CookieUse::Always;
    let (listener, shared) = (&mut host.listener, &mut host.shared);
    listener.on_syn(shared, at(1), flow(2), &syn, Some(previous));
    assert_eq!(
        (listener.half_open(), listener.stats().cookies_sent),
        (2, 0)
    );
}

#[test]
fn an_icmp_error_ends_a_half_open_connection_only_if_it_quotes_the_syn_ack() {
    let mut host = Host::new(ListenSettings::default());
    let sequence = host.half_open(0, 1).header.sequence;
    let (listener, shared) = (&mut host.listener, &mut host.shared);
    assert!(!listener.on_unreachable(shared, &flow(1), sequence + 1));
    assert!(!listener.on_unreachable(shared, &flow(2), sequence));
    assert!(listener.on_unreachable(shared, &flow(1), sequence));
    assert_eq!(shared.half_open(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_steps_leave_a_listener_in_order(steps in prop::collection::vec(any::<u8>(), 0..400)) {
        target::check(&steps);
    }
}
