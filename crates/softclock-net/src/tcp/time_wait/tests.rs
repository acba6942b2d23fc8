//! Tests of TIME-WAIT: each kind of segment, reuse by the rules of RFC 6191, and the order of deadlines.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::demux::{HashKey, Transport};
use crate::tcp::listen::SharedSettings;

const SEND: Seq = Seq(1000);
const RECEIVE: Seq = Seq(u32::MAX - 10);

fn flow(port: u16) -> Flow {
    Flow {
        transport: Transport::Tcp,
        remote: ("192.0.2.1".parse().unwrap(), port),
        local: ("192.0.2.2".parse().unwrap(), 80),
    }
}

fn last(timestamp: Option<u32>) -> LastState {
    LastState {
        send_next: SEND,
        receive_next: RECEIVE,
        window: 77,
        timestamp,
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * NS_IN_MS)
}

fn table(timestamp: Option<u32>) -> (Shared, TimeWaitTable) {
    let shared = Shared::new(SharedSettings::default(), HashKey([1, 2]));
    let mut table = TimeWaitTable::new(TimeWaitSettings::default(), &shared);
    assert_eq!(table.insert(at(0), flow(1), last(timestamp)), None);
    (shared, table)
}

fn segment(flags: Flags, sequence: Seq, timestamp: Option<u32>) -> Segment<'static> {
    Segment {
        header: Header {
            sequence,
            acknowledgment: SEND,
            flags,
            ..Header::default()
        },
        options: Options {
            timestamps: timestamp.map(|value| Timestamps { value, echo: 0 }),
            ..Options::default()
        },
        payload: &[],
    }
}

fn outcome(timestamp: Option<u32>, segment: &Segment<'_>) -> TimeWaitOutcome {
    let (mut shared, mut table) = table(timestamp);
    table.on_segment(
        &mut shared,
        at(1000),
        flow(1),
        segment,
        Some(&Offer::default()),
    )
}

fn is_acknowledged(outcome: TimeWaitOutcome) -> Option<DropReason> {
    let (reply, reason) = match outcome {
        TimeWaitOutcome::Reply(reply) => (reply, None),
        TimeWaitOutcome::Refused(reply, reason) => (reply, Some(reason)),
        other => panic!("{other:?}"),
    };
    let header = reply.header;
    assert_eq!((header.sequence, header.acknowledgment), (SEND, RECEIVE));
    assert_eq!((header.flags, header.window), (Flags::ACK, 77));
    reason
}

#[test]
fn a_fin_that_is_sent_again_is_acknowledged_and_the_wait_begins_anew() {
    let (mut shared, mut table) = table(None);
    let fin = segment(Flags::FIN | Flags::ACK, RECEIVE - 1, None);
    let outcome = table.on_segment(&mut shared, at(1000), flow(1), &fin, None);
    assert_eq!(is_acknowledged(outcome), None);
    assert_eq!(table.next_timeout(), Some(at(61_000)));
}

#[test]
fn a_segment_out_of_order_is_acknowledged_and_the_wait_goes_on() {
    for sequence in [RECEIVE - 1, RECEIVE + 1, RECEIVE + 70_000] {
        let ack = segment(Flags::ACK, sequence, None);
        let reason = is_acknowledged(outcome(None, &ack));
        assert_eq!(reason, Some(DropReason::TcpUnacceptable), "{sequence:?}");
    }
    let (mut shared, mut table) = table(None);
    let fin = segment(Flags::FIN | Flags::ACK, RECEIVE, None);
    is_acknowledged(table.on_segment(&mut shared, at(1000), flow(1), &fin, None));
    assert_eq!(table.next_timeout(), Some(at(60_000)));
}

#[test]
fn the_last_acknowledgment_and_resets_and_segments_without_ack_are_not_answered() {
    let ack = segment(Flags::ACK, RECEIVE, None);
    assert_eq!(outcome(None, &ack), TimeWaitOutcome::Done);
    for flags in [Flags::RST, Flags::RST | Flags::ACK, Flags::FIN, Flags::PSH] {
        for sequence in [RECEIVE - 1, RECEIVE, RECEIVE + 1] {
            let dropped = TimeWaitOutcome::Dropped(DropReason::TcpState);
            assert_eq!(outcome(None, &segment(flags, sequence, None)), dropped);
        }
    }
}

#[test]
fn an_old_duplicate_by_its_time_stamp_is_acknowledged_with_time_stamps() {
    let old = segment(Flags::ACK, RECEIVE, Some(99));
    let outcome = outcome(Some(100), &old);
    assert_eq!(is_acknowledged(outcome), Some(DropReason::TcpTimestamp));
    let TimeWaitOutcome::Refused(reply, _) = outcome else {
        unreachable!()
    };
    assert_eq!(reply.options.timestamps.map(|times| times.echo), Some(100));
}

#[test]
fn a_syn_that_is_surely_new_reuses_the_flow() {
    // The time stamps of both connections, the distance of the SYN, and whether it is new (RFC 6191, 2).
    let cases = [
        (None, None, 1, true),
        (None, None, 0, false),
        (None, None, u32::MAX, false),
        (None, Some(5), u32::MAX, true),
        (Some(5), None, 1, true),
        (Some(5), None, 0, false),
        (Some(5), Some(6), u32::MAX, true),
        (Some(5), Some(5), 1, true),
        (Some(5), Some(5), 0, false),
        (Some(5), Some(4), 1, false),
    ];
    for (before, now, distance, is_new) in cases {
        let syn = segment(Flags::SYN, RECEIVE + distance, now);
        match outcome(before, &syn) {
            TimeWaitOutcome::Reuse { previous } => assert!(is_new && previous == SEND),
            other => {
                assert!(!is_new, "{before:?} {now:?} {distance}");
                assert_eq!(is_acknowledged(other), Some(DropReason::TcpBlindReset));
            }
        }
    }
}

#[test]
fn a_syn_does_not_reuse_the_flow_without_listener_or_by_time_stamps_that_it_does_not_offer() {
    let (mut shared, mut table) = table(None);
    let syn = segment(Flags::SYN, RECEIVE - 1, Some(5));
    let offer = Offer {
        has_timestamps: false,
        ..Offer::default()
    };
    for (ms, offer) in [(1000, Some(&offer)), (2000, None)] {
        is_acknowledged(table.on_segment(&mut shared, at(ms), flow(1), &syn, offer));
    }
    let beyond = segment(Flags::SYN, RECEIVE + 1, None);
    is_acknowledged(table.on_segment(&mut shared, at(3000), flow(1), &beyond, None));
    let syn_ack = segment(Flags::SYN | Flags::ACK, RECEIVE + 1, None);
    is_acknowledged(table.on_segment(&mut shared, at(4000), flow(1), &syn_ack, Some(&offer)));
    assert!(table.contains(&flow(1)));
}

#[test]
fn a_loop_of_acknowledgments_ends_but_bytes_are_always_acknowledged() {
    let (mut shared, mut table) = table(None);
    let mut answers = |segment: &Segment<'_>| {
        (0..5000)
            .filter(|ms| {
                let outcome = table.on_segment(&mut shared, at(*ms), flow(1), segment, None);
                !matches!(outcome, TimeWaitOutcome::Dropped(_))
            })
            .count()
    };
    assert_eq!(answers(&segment(Flags::ACK, RECEIVE + 5, None)), 10);
    assert_eq!(
        answers(&segment(Flags::FIN | Flags::ACK, RECEIVE - 1, None)),
        5000
    );
}

#[test]
fn a_full_table_forgets_the_oldest_connection() {
    let shared = Shared::new(SharedSettings::default(), HashKey([1, 2]));
    let settings = |most| TimeWaitSettings {
        most,
        ..TimeWaitSettings::default()
    };
    let mut table = TimeWaitTable::new(settings(2), &shared);
    let displaced: Vec<_> = (1..5)
        .map(|port| table.insert(at(port.into()), flow(port), last(None)))
        .collect();
    assert_eq!(displaced, [None, None, Some(flow(1)), Some(flow(2))]);
    assert_eq!(table.remove(&flow(3)), Some(SEND));
    assert_eq!(table.len(), 1);

    let mut none = TimeWaitTable::new(settings(0), &shared);
    assert_eq!(none.insert(at(0), flow(1), last(None)), Some(flow(1)));
    assert!(none.is_empty());
}

proptest! {
    #[test]
    fn connections_leave_in_the_order_of_their_deadlines(
        steps in prop::collection::vec((0..20_u16, 0..5_000_u64, any::<bool>()), 1..200),
    ) {
        let mut shared = Shared::new(SharedSettings::default(), HashKey([1, 2]));
        let mut table = TimeWaitTable::new(TimeWaitSettings::default(), &shared);
        let mut model: Vec<(u16, u64)> = Vec::new();
        let mut now = 0;
        let fin = segment(Flags::FIN | Flags::ACK, RECEIVE - 1, None);
        for (port, later, is_fin) in steps {
            now += later;
            while let Some(flow) = table.on_timer(at(now)) {
                let (port, deadline) = model.remove(0);
                prop_assert_eq!(flow.remote.1, port);
                prop_assert!(deadline <= now);
            }
            prop_assert!(model.first().is_none_or(|(_, deadline)| *deadline > now));
            prop_assert_eq!(table.next_timeout(), model.first().map(|(_, deadline)| at(*deadline)));
            let is_present = model.iter().any(|(present, _)| *present == port);
            if is_fin {
                let outcome = table.on_segment(&mut shared, at(now), flow(port), &fin, None);
                prop_assert_eq!(outcome == TimeWaitOutcome::Unknown, !is_present);
            } else {
                table.insert(at(now), flow(port), last(None));
            }
            if is_present || !is_fin {
                model.retain(|(present, _)| *present != port);
                model.push((port, now + 60_000));
            }
            prop_assert_eq!(table.len(), model.len());
        }
    }

    #[test]
    fn any_segment_is_dealt_with(
        flags in 0..0x200_u16,
        numbers in any::<[u32; 2]>(),
        timestamp in any::<Option<u32>>(),
        before in any::<Option<u32>>(),
        ns in any::<u64>(),
    ) {
        let (mut shared, mut table) = table(before);
        let mut segment = segment(Flags(flags), Seq(numbers[0]), timestamp);
        segment.header.acknowledgment = Seq(numbers[1]);
        let now = Instant::from_ns(ns);
        let offer = Offer::default();
        let outcome = table.on_segment(&mut shared, now, flow(1), &segment, Some(&offer));
        prop_assert_ne!(outcome, TimeWaitOutcome::Unknown);
        let is_reuse = matches!(outcome, TimeWaitOutcome::Reuse { .. });
        prop_assert_eq!(table.is_empty(), is_reuse);
    }
}
