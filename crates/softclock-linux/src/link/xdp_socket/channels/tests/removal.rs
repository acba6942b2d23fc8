//! Removed channels, whose slots others use.

use super::*;

#[test]
fn a_removed_channel_leaves_nothing() {
    let setup = setup!(settings(1));
    let channels = &setup.channels;
    let [first, second] = [udp(OURS, 7), udp(OURS, 8)];
    let channel = channels.add(&[first], LIMIT).unwrap();
    setup.send_to(&first, &channel, 0..20);
    let mut held = Vec::new();
    channel
        .receive(|received| held.push(received.unwrap().bytes))
        .unwrap();
    held.truncate(1);
    setup.send_to(&first, &channel, 20..30);
    drop(channel);
    // Its frames now belong to no endpoint.
    setup.send_to(&first, channels.unclaimed(), 30..40);
    assert_eq!(taken(channels.unclaimed()), Vec::from_iter(30..40));

    let error = channels.add(&[second], LIMIT).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded, "one is held");
    assert_eq!(held[0][..], frame(&first, 0));
    held.clear();
    let channel = channels.add(&[second], 10).unwrap();
    assert_eq!((channel.delivered(), channel.discarded()), (0, 0));
    setup.send_to(&second, &channel, 0..15);
    assert_eq!((channel.delivered(), channel.discarded()), (10, 5));
    assert_eq!(taken(&channel), Vec::from_iter(0..10));
}

#[test]
fn the_counters_of_a_stopped_channel_stand_still() {
    let setup = setup!(settings(2));
    let channels = &setup.channels;
    let endpoint = udp(OURS, 7);
    let channel = channels.add(&[endpoint], 10).unwrap();
    setup.send_to(&endpoint, &channel, 0..15);
    channel.stop();
    setup.send_to(&endpoint, channels.unclaimed(), 15..20);
    assert_eq!((channel.delivered(), channel.discarded()), (10, 5));
    assert_eq!(taken(&channel), Vec::from_iter(0..10));
    // The endpoint is free, and stays that of its next channel when this one is dropped.
    let next = channels.add(&[endpoint], 10).unwrap();
    drop(channel);
    setup.send_to(&endpoint, &next, 20..25);
    assert_eq!(taken(&next), Vec::from_iter(20..25));
}

/// Sends frames to an endpoint, and waits until the program has counted them on this account.
fn send_on(setup: &Setup, account: Account, to: &EndpointKey, numbers: std::ops::Range<u32>) {
    let credits = &setup.channels.shared.maps.credits;
    let total = || {
        let counts = credits.counts(account);
        counts.delivered + counts.discarded
    };
    let expected = total() + numbers.len() as u64;
    setup.send(to, numbers);
    wait(|| (total() == expected).then_some(()));
    settle();
}

/// Frames whose channel the program has found before the channel's end.
#[test]
fn frames_that_the_program_handles_during_a_removal_are_counted_once() {
    let setup = setup!(settings(1));
    let channels = &setup.channels;
    let keys = &channels.shared.maps.keys;
    let endpoint = udp(OURS, 7);
    let channel = channels.add(&[endpoint], 10).unwrap();
    let account = channel.slot.account;
    let send = |numbers| send_on(&setup, account, &endpoint, numbers);
    send(0..4);
    channel.stop();
    // The entry stays, as if the program had read it before.
    keys.insert(&endpoint.to_bytes(), account.0).unwrap();
    send(4..6);
    assert_eq!(taken(&channel), Vec::from_iter(0..6));
    send(6..7);
    channel.freeze();
    send(7..20);
    assert_eq!((channel.delivered(), channel.discarded()), (7, 0));
    assert_eq!(channels.take_late(), 0, "the channel is there");
    drop(channel);
    assert_eq!([channels.take_late(), channels.take_late()], [13, 0]);
    send(20..22);
    keys.remove(&endpoint.to_bytes()).unwrap();

    // Another channel counts its own frames only.
    let next = channels.add(&[endpoint], 10).unwrap();
    assert_eq!((next.delivered(), next.discarded()), (0, 0));
    assert_eq!([channels.take_late(), channels.take_late()], [2, 0]);
    send(30..42);
    assert_eq!((next.delivered(), next.discarded()), (10, 2));
    assert_eq!(taken(&next), Vec::from_iter(30..40));
    drop(next);
    assert_eq!(channels.take_late(), 0);
}

#[test]
fn frames_that_were_lost_in_a_removed_channel_are_not_those_of_the_next() {
    let setup = setup!(settings(1));
    let channels = &setup.channels;
    let endpoint = udp(OURS, 7);
    let channel = channels.add(&[endpoint], LIMIT).unwrap();
    let (credits, account) = (&channels.shared.maps.credits, channel.slot.account);
    // More credits than the ring has room for.
    let (room, lost) = (LIMIT.next_power_of_two(), 9);
    let more = i64::from(room + lost - LIMIT);
    credits.grant(account, more);
    setup.send_to(&endpoint, &channel, 0..room + lost);
    credits.grant(account, -more);
    channel.freeze();
    assert_eq!(channel.delivered(), u64::from(room + lost));
    drop(channel);
    let next = wait(|| channels.add(&[endpoint], LIMIT).ok());
    assert_eq!(next.take_lost().unwrap(), 0);
    setup.send_to(&endpoint, &next, 0..LIMIT);
    assert_eq!(taken(&next), Vec::from_iter(0..LIMIT));
}
