use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

mod model;

const MSS: u16 = 1000;

fn receiver(settings: &ReceiveSettings) -> Receiver<Vec<u8>> {
    Receiver::new(Seq(0), settings, 0, MSS)
}

fn at_ms(ms: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(ms)
}

fn payload(bytes: usize) -> Payload<Vec<u8>> {
    Payload::new(vec![0; bytes], 0..bytes)
}

/// Gives the receiver the bytes from `start` to `end`.
fn arrive(receiver: &mut Receiver<Vec<u8>>, start: u32, end: u32) -> Received {
    let bytes = payload((end - start) as usize);
    receiver.on_data(Instant::ORIGIN, Instant::ORIGIN, Seq(start), bytes, false)
}

/// Gives the receiver the bytes from `start` to `end`, and FIN.
fn finish(receiver: &mut Receiver<Vec<u8>>, start: u32, end: u32) -> Received {
    let bytes = payload((end - start) as usize);
    receiver.on_data(Instant::ORIGIN, Instant::ORIGIN, Seq(start), bytes, true)
}

fn read(receiver: &mut Receiver<Vec<u8>>, bytes: usize) -> usize {
    receiver.read(&mut vec![0; bytes])
}

/// Sends an acknowledgment: its number, its window, and its blocks.
fn acknowledge(receiver: &mut Receiver<Vec<u8>>) -> String {
    let window = receiver.advertise();
    let mut text = format!("{} {window}", receiver.next().0);
    for block in receiver.sack_blocks().as_slice() {
        text += &format!(" {}:{}", block.start.0, block.end.0);
    }
    receiver.on_ack_sent();
    text
}

#[test]
fn a_segment_that_overlaps_others_is_reported_by_its_first_duplicate_part() {
    // Bytes 1 to 50 are in order, and there are three ranges beyond. Then one more segment arrives.
    let cases = [
        // All of it is old; a part of it is.
        ((20, 50), "50 64951 20:50 500:550 300:350 100:150"),
        ((20, 70), "70 64931 20:50 500:550 300:350 100:150"),
        ((20, 320), "350 64651 20:50 500:550"),
        // It fills the gap, and more than one.
        ((50, 100), "150 64851 500:550 300:350"),
        ((50, 120), "150 64851 100:120 500:550 300:350"),
        ((50, 600), "600 64401 100:150"),
        // It enlarges ranges to the left, to the right, to both sides; it joins them.
        ((80, 100), "50 64951 80:150 500:550 300:350"),
        ((150, 180), "50 64951 100:180 500:550 300:350"),
        ((290, 360), "50 64951 300:350 290:360 500:550 100:150"),
        ((120, 310), "50 64951 120:150 100:350 500:550"),
        ((80, 520), "50 64951 100:150 80:550"),
        // It is a part of a range.
        ((310, 340), "50 64951 310:340 300:350 500:550 100:150"),
        ((500, 550), "50 64951 500:550 500:550 300:350 100:150"),
        // It begins a range.
        ((200, 210), "50 64951 200:210 500:550 300:350 100:150"),
    ];
    for ((start, end), acknowledgment) in cases {
        let mut receiver = receiver(&fixed(65_000));
        for (start, end) in [(1, 50), (100, 150), (300, 350), (500, 550)] {
            let _ = arrive(&mut receiver, start, end);
        }
        let received = arrive(&mut receiver, start, end);
        assert_eq!(received.ack, AckNeed::Now);
        assert_eq!(acknowledge(&mut receiver), acknowledgment, "{start}:{end}");
        assert!(receiver.duplicate.is_none());
    }
}

/// Settings with a buffer that keeps its size.
fn fixed(buffer_bytes: u32) -> ReceiveSettings {
    ReceiveSettings {
        buffer_bytes,
        most_buffer_bytes: 0,
        ..ReceiveSettings::default()
    }
}

#[test]
fn the_second_segment_is_acknowledged_at_once_whatever_its_size() {
    let mut receiver = receiver(&ReceiveSettings::default());
    assert_eq!(arrive(&mut receiver, 1, 2).ack, AckNeed::Delayed);
    assert_eq!(receiver.next_ack_at(), Some(at_ms(40)));
    assert_eq!(arrive(&mut receiver, 2, 3).ack, AckNeed::Now);
    assert_eq!(receiver.next_ack_at(), None);
    receiver.on_ack_sent();
    assert_eq!(
        (receiver.ack_need(), receiver.last_ack_sent()),
        (AckNeed::None, Seq(3))
    );
    assert_eq!(arrive(&mut receiver, 3, 4).ack, AckNeed::Delayed);
}

#[test]
fn a_segment_that_stands_for_several_is_acknowledged_at_once() {
    let mut receiver = receiver(&ReceiveSettings::default());
    assert_eq!(
        arrive(&mut receiver, 1, 1 + 2 * u32::from(MSS)).ack,
        AckNeed::Now
    );
}

#[test]
fn the_first_segments_are_acknowledged_at_once_if_the_settings_say_so() {
    let settings = ReceiveSettings {
        quick_acks: 2,
        ..ReceiveSettings::default()
    };
    let mut receiver = receiver(&settings);
    for (start, ack) in [(1, AckNeed::Now), (2, AckNeed::Now), (3, AckNeed::Delayed)] {
        assert_eq!(arrive(&mut receiver, start, start + 1).ack, ack);
        receiver.on_ack_sent();
    }
}

#[test]
fn a_delay_counts_from_the_arrival_and_a_short_round_trip_shortens_it() {
    let settings = ReceiveSettings {
        least_ack_delay: Duration::from_millis(2),
        ..ReceiveSettings::default()
    };
    let cases = [(None, 40), (Some(400), 40), (Some(40), 10), (Some(4), 2)];
    for (round_trip, delay) in cases {
        let mut receiver = receiver(&settings);
        if let Some(round_trip) = round_trip {
            receiver.set_round_trip(Duration::from_millis(round_trip));
        }
        let _ = receiver.on_data(at_ms(100), at_ms(7), Seq(1), payload(1), false);
        assert_eq!(receiver.next_ack_at(), Some(at_ms(7 + delay)));
    }
}

#[test]
fn a_segment_without_bytes_is_acknowledged_only_outside_the_window() {
    let mut receiver = receiver(&ReceiveSettings::default());
    assert_eq!(arrive(&mut receiver, 1, 1), Received::default());
    assert_eq!(arrive(&mut receiver, 9, 9), Received::default());
    let received = arrive(&mut receiver, 0, 0);
    assert_eq!((received.ack, received.readable), (AckNeed::Now, false));
    assert!(receiver.sack_blocks().as_slice().is_empty());
}

#[test]
fn bytes_behind_the_window_are_cut_off() {
    let mut receiver = receiver(&fixed(2000));
    let received = arrive(&mut receiver, 1, 3001);
    assert_eq!((received.ack, received.dropped), (AckNeed::Now, None));
    assert_eq!((receiver.next(), receiver.window()), (Seq(2001), 0));
    let received = arrive(&mut receiver, 2001, 2002);
    assert_eq!(
        (received.ack, received.dropped),
        (AckNeed::Now, Some(DropReason::TcpWindow))
    );
    assert_eq!(acknowledge(&mut receiver), "2001 0");
}

#[test]
fn a_closed_window_opens_for_a_segment_and_not_for_less() {
    let mut receiver = receiver(&fixed(8000));
    let _ = arrive(&mut receiver, 1, 8001);
    assert_eq!(acknowledge(&mut receiver), "8001 0");
    read(&mut receiver, 999);
    assert_eq!(
        (receiver.advertise(), receiver.window_update_is_due()),
        (0, false)
    );
    read(&mut receiver, 1);
    assert_eq!(
        receiver
            .clone_window()
            .advertise(receiver.next(), receiver.unread),
        1000
    );
    assert!(!receiver.window_update_is_due());
    read(&mut receiver, 1000);
    assert!(receiver.window_update_is_due());
    assert_eq!(acknowledge(&mut receiver), "8001 2000");
    assert!(!receiver.window_update_is_due());
}

impl Receiver<Vec<u8>> {
    fn clone_window(&self) -> Window {
        self.window.clone()
    }
}

#[test]
fn segments_after_a_closed_window_are_acknowledged_at_once() {
    let mut receiver = receiver(&fixed(8000));
    let _ = arrive(&mut receiver, 1, 8001);
    acknowledge(&mut receiver);
    read(&mut receiver, 4000);
    assert_eq!(arrive(&mut receiver, 8001, 8002).ack, AckNeed::Now);
}

#[test]
fn an_update_waits_for_a_pending_acknowledgment_unless_the_window_is_small() {
    for (unread, offered, is_due) in [(66_000, 3500, false), (68_000, 1500, true)] {
        let mut receiver = receiver(&fixed(70_000));
        for start in (1..unread).step_by(500) {
            let _ = arrive(&mut receiver, start, start + 500);
            acknowledge(&mut receiver);
        }
        let received = arrive(&mut receiver, unread + 1, unread + 501);
        assert_eq!(
            (received.ack, receiver.window()),
            (AckNeed::Delayed, offered)
        );
        read(&mut receiver, 70_000);
        assert_eq!(receiver.window_update_is_due(), is_due);
        receiver.on_ack_sent();
        assert!(receiver.window_update_is_due());
    }
}

#[test]
fn windows_are_rounded_up_to_the_unit_of_their_scale_while_the_buffer_is_exceeded_by_one_at_most() {
    let mut receiver = Receiver::<Vec<u8>>::new(Seq(0), &ReceiveSettings::default(), 6, 1460);
    assert_eq!(receiver.buffer_bytes(), 65_700);
    assert_eq!(receiver.advertise(), 1027);
    assert_eq!(receiver.window.edge(), Seq(1 + 65_728));
    let _ = arrive(&mut receiver, 1, 30);
    assert_eq!(receiver.advertise(), 1027);
    assert_eq!(receiver.window.edge(), Seq(30 + 65_728));
    // What was offered stays acceptable, though the field says less.
    let _ = arrive(&mut receiver, 30, 60);
    assert_eq!(receiver.advertise(), 1026);
    assert_eq!(receiver.window.edge(), Seq(30 + 65_728));
    assert_eq!(receiver.window(), 65_698);
}

#[test]
fn a_peer_is_stopped_though_its_segments_are_shorter_than_the_unit_of_the_scale() {
    for (scale, length) in [(7, 100), (11, 1448)] {
        let mut receiver = Receiver::<Vec<u8>>::new(Seq(0), &fixed(14_600), scale, 1460);
        for _ in 0..10_000 {
            let next = receiver.next().0;
            let _ = arrive(&mut receiver, next, next + length);
            receiver.advertise();
            receiver.on_ack_sent();
        }
        assert!(
            receiver.readable() <= 14_600 + (1 << scale),
            "{}",
            receiver.readable()
        );
        assert_eq!(receiver.advertise(), 0);
    }
}

#[test]
fn an_update_opens_a_window_that_was_rounded_down_to_nothing() {
    // The unit exceeds the buffer.
    let mut receiver = Receiver::<Vec<u8>>::new(Seq(0), &fixed(14_600), 14, 1460);
    for offered in [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0] {
        let next = receiver.next().0;
        let _ = arrive(&mut receiver, next, next + 1460);
        assert_eq!(receiver.advertise(), offered);
        receiver.on_ack_sent();
    }
    assert!(receiver.window() > 0);
    read(&mut receiver, 40_000);
    assert!(receiver.window_update_is_due());
    assert_eq!(receiver.advertise(), 1);
}

#[test]
fn a_reset_is_judged_by_the_room_in_the_buffer() {
    let receiver = Receiver::<Vec<u8>>::new(Seq(0), &ReceiveSettings::default(), 0, 1460);
    assert_eq!(receiver.judge_reset(Seq(0)), ResetVerdict::Ignore);
    assert_eq!(receiver.judge_reset(Seq(1)), ResetVerdict::Abort);
    assert_eq!(receiver.judge_reset(Seq(65_700)), ResetVerdict::Challenge);
    assert_eq!(receiver.judge_reset(Seq(65_701)), ResetVerdict::Ignore);
}

#[test]
fn fin_waits_for_the_bytes_before_it_and_is_no_part_of_a_range() {
    let mut receiver = receiver(&fixed(65_000));
    let received = finish(&mut receiver, 20, 30);
    assert_eq!((received.readable, received.fin_reached), (false, false));
    assert_eq!(acknowledge(&mut receiver), "1 65000 20:30");
    let received = arrive(&mut receiver, 1, 20);
    assert_eq!((received.readable, received.fin_reached), (true, true));
    assert_eq!(acknowledge(&mut receiver), "31 64971");
    assert!(!receiver.is_finished() && !receiver.window_update_is_due());
    assert_eq!(read(&mut receiver, 100), 29);
    assert!(receiver.is_finished());
}

#[test]
fn a_repeated_fin_is_acknowledged_and_has_no_effect() {
    let mut receiver = receiver(&fixed(65_000));
    assert!(finish(&mut receiver, 1, 5).fin_reached);
    receiver.on_ack_sent();
    let received = finish(&mut receiver, 5, 5);
    assert_eq!((received.readable, received.fin_reached), (false, false));
    assert_eq!(
        (received.ack, received.dropped),
        (AckNeed::Now, Some(DropReason::TcpDuplicate))
    );
    assert!(receiver.sack_blocks().as_slice().is_empty());
    let _ = finish(&mut receiver, 3, 5);
    assert_eq!(acknowledge(&mut receiver), "6 64996 3:5");
}

#[test]
fn bytes_behind_fin_are_dropped() {
    let mut receiver = receiver(&fixed(65_000));
    let _ = finish(&mut receiver, 10, 10);
    let received = arrive(&mut receiver, 10, 20);
    assert_eq!(received.dropped, Some(DropReason::TcpWindow));
    assert!(arrive(&mut receiver, 1, 20).fin_reached);
    let received = arrive(&mut receiver, 11, 20);
    assert_eq!(received.dropped, Some(DropReason::TcpWindow));
    assert_eq!((receiver.next(), receiver.readable()), (Seq(11), 9));
}

#[test]
fn a_fin_before_bytes_that_have_arrived_counts_only_in_order() {
    let mut receiver = receiver(&fixed(65_000));
    let _ = arrive(&mut receiver, 20, 30);
    assert!(!finish(&mut receiver, 10, 12).fin_reached);
    assert!(!arrive(&mut receiver, 1, 10).fin_reached);
    assert!(finish(&mut receiver, 12, 12).fin_reached);
    assert_eq!((receiver.readable(), receiver.beyond.is_none()), (11, true));
}

#[test]
fn fin_needs_no_room_behind_bytes_that_fill_the_window() {
    let mut receiver = receiver(&fixed(2000));
    assert!(finish(&mut receiver, 1, 2001).fin_reached);
    assert_eq!(acknowledge(&mut receiver), "2002 0");
}

#[test]
fn the_buffer_grows_with_the_bytes_read_in_a_round_trip() {
    let settings = ReceiveSettings {
        most_buffer_bytes: 1 << 20,
        ..ReceiveSettings::default()
    };
    let mut receiver = Receiver::<Vec<u8>>::new(Seq(0), &settings, 7, MSS);
    receiver.set_round_trip(Duration::from_millis(10));
    let mut sizes = vec![receiver.buffer_bytes()];
    // The other end sends a full window in each round trip.
    for round in 1..40 {
        let window = u32::from(receiver.advertise()) << 7;
        for start in (0..window).step_by(usize::from(MSS)) {
            let length = (window - start).min(u32::from(MSS));
            let now = at_ms(round * 10);
            let _ = receiver.on_data(now, now, receiver.next(), payload(length as usize), false);
            read(&mut receiver, 1 << 20);
        }
        sizes.push(receiver.buffer_bytes());
    }
    assert!(sizes.is_sorted());
    assert_eq!(sizes.last(), Some(&(1 << 20)));
    assert!(
        sizes.iter().position(|&size| size == 1 << 20) < Some(10),
        "{sizes:?}"
    );
}

#[test]
fn the_buffer_keeps_its_size_if_the_application_reads_less() {
    let mut receiver = Receiver::<Vec<u8>>::new(Seq(0), &ReceiveSettings::default(), 7, MSS);
    receiver.set_round_trip(Duration::from_millis(10));
    for round in 1..40 {
        receiver.advertise();
        let now = at_ms(round * 10);
        for _ in 0..30 {
            let _ = receiver.on_data(now, now, receiver.next(), payload(1000), false);
        }
        read(&mut receiver, 30_000);
    }
    assert_eq!(receiver.buffer_bytes(), 66_000);
}

#[test]
fn packets_of_a_slow_reader_are_copied() {
    let settings = ReceiveSettings {
        packet_memory_bytes: 3 * 2048,
        ..fixed(65_000)
    };
    // A short packet takes as much memory as one of the usual length.
    for packet_bytes in [2048, 101] {
        let mut receiver = receiver(&settings);
        for start in 1..=10u32 {
            let packet = Payload::new(vec![start as u8; packet_bytes], 100..101);
            let _ = receiver.on_data(Instant::ORIGIN, Instant::ORIGIN, Seq(start), packet, false);
        }
        assert!(receiver.memory_bytes() < 3 * 2048 + 100);
        let (first, second) = (receiver.take(), receiver.take());
        assert!(first.is_some_and(|first| !first.is_copy() && *first == [1]));
        assert!(second.is_some_and(|second| !second.is_copy() && *second == [2]));
        assert!(
            receiver
                .take()
                .is_some_and(|rest| rest.is_copy() && *rest == [3, 4, 5, 6, 7, 8, 9, 10])
        );
        assert_eq!(
            (receiver.take().is_none(), receiver.memory_bytes()),
            (true, 0)
        );
    }
}

#[test]
fn memory_is_bounded_against_tiny_segments_in_large_packets() {
    let settings = ReceiveSettings {
        out_of_order_ranges: 16,
        ..fixed(20_000)
    };
    let most = settings.packet_memory_bytes as usize + 2 * 20_000 + 16 * 1024;
    let in_order: Vec<u32> = (1..20_000).collect();
    let reverse: Vec<u32> = (1..20_000).rev().collect();
    let every_second: Vec<u32> = (1..20_000).step_by(2).collect();
    for order in [in_order, reverse, every_second] {
        let mut receiver = receiver(&settings);
        for start in order {
            let packet = Payload::new(vec![0; 2048], 64..65);
            let _ = receiver.on_data(Instant::ORIGIN, Instant::ORIGIN, Seq(start), packet, false);
            assert!(
                receiver.memory_bytes() <= most,
                "{}",
                receiver.memory_bytes()
            );
        }
    }
}

#[test]
fn too_many_ranges_are_refused_but_gaps_are_filled() {
    let settings = ReceiveSettings {
        out_of_order_ranges: 2,
        ..fixed(65_000)
    };
    let mut receiver = receiver(&settings);
    assert_eq!(arrive(&mut receiver, 10, 11).dropped, None);
    assert_eq!(arrive(&mut receiver, 20, 21).dropped, None);
    assert_eq!(
        arrive(&mut receiver, 30, 31).dropped,
        Some(DropReason::TcpReassembly)
    );
    assert_eq!(arrive(&mut receiver, 21, 22).dropped, None);
    assert_eq!(arrive(&mut receiver, 1, 2).dropped, None);
    assert_eq!(acknowledge(&mut receiver), "2 64999 20:22 10:11");
}

#[test]
fn a_peek_keeps_the_bytes() {
    let mut receiver = receiver(&fixed(65_000));
    let _ = receiver.on_data(
        Instant::ORIGIN,
        Instant::ORIGIN,
        Seq(1),
        Payload::copied(b"abc"),
        false,
    );
    let mut bytes = [0; 5];
    assert_eq!((receiver.peek(&mut bytes), &bytes[..3]), (3, &b"abc"[..]));
    assert_eq!(
        (receiver.peek(&mut bytes[..2]), receiver.readable()),
        (2, 3)
    );
}

proptest! {
    #[test]
    fn no_segment_makes_a_receiver_panic(
        initial in any::<u32>(),
        scale in 0..=255u8,
        mss in any::<u16>(),
        buffer_bytes in any::<u32>(),
        packet_memory_bytes in 0..10_000u32,
        segments in prop::collection::vec(
            (prop_oneof![any::<u32>(), 0..5000u32, (u32::MAX - 3000)..], 0..3000usize, any::<bool>(), 0..4000usize),
            0..60,
        ),
    ) {
        let settings = ReceiveSettings {
            buffer_bytes,
            packet_memory_bytes,
            out_of_order_ranges: 5,
            ..ReceiveSettings::default()
        };
        let mut receiver = Receiver::new(Seq(initial), &settings, scale, mss);
        for (offset, bytes, has_fin, to_read) in segments {
            let seq = receiver.next() + offset;
            let _ = receiver.judge_reset(seq);
            let _ = receiver.on_data(Instant::ORIGIN, Instant::ORIGIN, seq, payload(bytes), has_fin);
            read(&mut receiver, to_read);
            receiver.window_update_is_due();
            acknowledge(&mut receiver);
        }
    }
}
