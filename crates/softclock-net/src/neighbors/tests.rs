use super::*;
use alloc::vec;
use core::net::Ipv4Addr;
use proptest::prelude::*;

const LINK: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 1]);
const OTHER_LINK: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 2]);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn host(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + number))
}

fn at(seconds: u64) -> Instant {
    Instant::ORIGIN + Duration::from_secs(seconds)
}

fn answer(is_solicited: bool, is_override: bool) -> Answer {
    Answer {
        is_solicited,
        is_override,
    }
}

fn solicit(to: Option<LinkAddress>) -> Option<TimerEvent<u32>> {
    Some(TimerEvent::Solicit { address: HOST, to })
}

/// A table in which HOST is in this state at 100 s. One packet, 7, waits if it is Incomplete.
fn in_state(state: NeighborState) -> Neighbors<u32> {
    let mut neighbors = Neighbors::new(NeighborSettings::default());
    let start = at(100);
    match state {
        NeighborState::Incomplete => {
            assert_eq!(neighbors.resolve(start, HOST, 7), Resolved::Waits);
        }
        NeighborState::Reachable => {
            assert!(neighbors.on_request(start, HOST, LINK).is_empty());
            neighbors.on_confirmed(start, HOST);
        }
        NeighborState::Stale => assert!(neighbors.on_request(start, HOST, LINK).is_empty()),
        NeighborState::Delay => {
            assert!(neighbors.on_request(start, HOST, LINK).is_empty());
            assert_eq!(neighbors.resolve(start, HOST, 0), Resolved::Send(LINK, 0));
        }
        NeighborState::Probe => {
            assert!(neighbors.on_request(start, HOST, LINK).is_empty());
            assert_eq!(neighbors.resolve(at(90), HOST, 0), Resolved::Send(LINK, 0));
            assert_eq!(neighbors.on_timer(start), solicit(Some(LINK)));
        }
    }
    assert_eq!(neighbors.find(start, HOST).unwrap().state, state);
    neighbors
}

fn state_of(neighbors: &Neighbors<u32>) -> (NeighborState, Option<LinkAddress>) {
    let neighbor = neighbors.find(at(100), HOST).unwrap();
    (neighbor.state, neighbor.link)
}

const KNOWN: [NeighborState; 4] = [
    NeighborState::Reachable,
    NeighborState::Stale,
    NeighborState::Delay,
    NeighborState::Probe,
];

#[test]
fn answers_change_states_as_in_appendix_c_of_rfc_4861() {
    use NeighborState::{Incomplete, Reachable, Stale};
    let after = |state, link, answer| {
        let mut neighbors = in_state(state);
        let released = neighbors.on_answer(at(100), HOST, link, answer);
        (state_of(&neighbors), released.len())
    };
    for is_override in [false, true] {
        let solicited = after(Incomplete, LINK, answer(true, is_override));
        assert_eq!(solicited, ((Reachable, Some(LINK)), 1));
        // Stale, and the packet that waited is sent.
        let unsolicited = after(Incomplete, LINK, answer(false, is_override));
        assert_eq!(unsolicited, ((NeighborState::Delay, Some(LINK)), 1));
    }
    for state in KNOWN {
        for is_override in [false, true] {
            let solicited = after(state, LINK, answer(true, is_override));
            assert_eq!(solicited, ((Reachable, Some(LINK)), 0));
            let unsolicited = after(state, LINK, answer(false, is_override));
            assert_eq!(unsolicited, ((state, Some(LINK)), 0));
        }
        let moved = after(state, OTHER_LINK, answer(true, true));
        assert_eq!(moved, ((Reachable, Some(OTHER_LINK)), 0));
        let announced = after(state, OTHER_LINK, answer(false, true));
        assert_eq!(announced, ((Stale, Some(OTHER_LINK)), 0));
        for is_solicited in [false, true] {
            let disputed = after(state, OTHER_LINK, answer(is_solicited, false));
            let expected = if state == Reachable { Stale } else { state };
            assert_eq!(disputed, ((expected, Some(LINK)), 0));
        }
    }
}

#[test]
fn requests_change_states_as_in_appendix_c_of_rfc_4861() {
    let mut neighbors = in_state(NeighborState::Incomplete);
    assert_eq!(neighbors.on_request(at(100), HOST, LINK), [(LINK, 7)]);
    assert_eq!(state_of(&neighbors), (NeighborState::Delay, Some(LINK)));
    for state in KNOWN {
        let mut neighbors = in_state(state);
        assert_eq!(neighbors.on_request(at(100), HOST, LINK), []);
        assert_eq!(state_of(&neighbors), (state, Some(LINK)));
        assert_eq!(neighbors.on_request(at(100), HOST, OTHER_LINK), []);
        assert_eq!(
            state_of(&neighbors),
            (NeighborState::Stale, Some(OTHER_LINK))
        );
    }
}

#[test]
fn confirmations_make_known_neighbors_reachable() {
    let mut neighbors = in_state(NeighborState::Incomplete);
    neighbors.on_confirmed(at(100), HOST);
    assert_eq!(state_of(&neighbors), (NeighborState::Incomplete, None));
    for state in KNOWN {
        let mut neighbors = in_state(state);
        neighbors.on_confirmed(at(100), HOST);
        assert_eq!(state_of(&neighbors), (NeighborState::Reachable, Some(LINK)));
        assert_eq!(neighbors.next_timeout(), None);
    }
}

#[test]
fn packets_to_known_neighbors_are_sent_at_once() {
    for state in KNOWN {
        let mut neighbors = in_state(state);
        assert_eq!(neighbors.resolve(at(100), HOST, 1), Resolved::Send(LINK, 1));
        let expected = match state {
            NeighborState::Stale => NeighborState::Delay,
            state => state,
        };
        assert_eq!(state_of(&neighbors), (expected, Some(LINK)));
    }
}

#[test]
fn a_neighbor_that_never_answers_fails_after_three_solicitations() {
    let mut neighbors = Neighbors::new(NeighborSettings::default());
    for packet in 0..3 {
        assert_eq!(neighbors.resolve(at(0), HOST, packet), Resolved::Waits);
    }
    for second in 0..3 {
        assert_eq!(neighbors.next_timeout(), Some(at(second)));
        assert_eq!(neighbors.on_timer(at(second)), solicit(None));
        assert_eq!(neighbors.on_timer(at(second)), None);
    }
    let packets = vec![0, 1, 2];
    let failed = TimerEvent::Failed {
        address: HOST,
        packets,
    };
    assert_eq!(neighbors.on_timer(at(3)), Some(failed));
    assert!(neighbors.is_empty() && neighbors.waiting() == 0 && neighbors.next_timeout().is_none());
    assert_eq!(neighbors.resolve(at(3), HOST, 9), Resolved::Waits);
}

#[test]
fn a_neighbor_that_leaves_is_probed_and_removed() {
    let mut neighbors = in_state(NeighborState::Reachable);
    assert_eq!(neighbors.resolve(at(129), HOST, 0), Resolved::Send(LINK, 0));
    assert_eq!(neighbors.next_timeout(), None);
    assert_eq!(neighbors.resolve(at(130), HOST, 1), Resolved::Send(LINK, 1));
    assert_eq!(neighbors.next_timeout(), Some(at(135)));
    for second in 135..138 {
        assert_eq!(neighbors.on_timer(at(second)), solicit(Some(LINK)));
        assert_eq!(
            neighbors.resolve(at(second), HOST, 2),
            Resolved::Send(LINK, 2)
        );
    }
    let failed = TimerEvent::Failed {
        address: HOST,
        packets: vec![],
    };
    assert_eq!(neighbors.on_timer(at(138)), Some(failed));
    assert!(neighbors.is_empty());
}

#[test]
fn an_answer_in_time_ends_the_probes() {
    let mut neighbors = in_state(NeighborState::Probe);
    assert_eq!(
        neighbors.on_answer(at(101), HOST, LINK, Answer::ARP_REPLY),
        []
    );
    assert_eq!(neighbors.next_timeout(), None);
    assert_eq!(
        neighbors.find(at(130), HOST).unwrap().state,
        NeighborState::Reachable
    );
    assert_eq!(
        neighbors.find(at(131), HOST).unwrap().state,
        NeighborState::Stale
    );
}

#[test]
fn answers_that_no_packet_waits_for_are_ignored() {
    let mut neighbors: Neighbors<u32> = Neighbors::new(NeighborSettings::default());
    assert_eq!(
        neighbors.on_answer(at(0), HOST, LINK, Answer::ARP_REPLY),
        []
    );
    assert_eq!(
        neighbors.on_answer(at(0), HOST, LINK, Answer::ANNOUNCEMENT),
        []
    );
    assert!(neighbors.is_empty());
}

#[test]
fn addresses_that_are_no_host_are_ignored() {
    let mut neighbors = in_state(NeighborState::Incomplete);
    for link in [
        LinkAddress::BROADCAST,
        LinkAddress([0; 6]),
        LinkAddress([1; 6]),
    ] {
        assert_eq!(
            neighbors.on_answer(at(100), HOST, link, Answer::ARP_REPLY),
            []
        );
        assert_eq!(neighbors.on_request(at(100), HOST, link), []);
        assert_eq!(neighbors.on_request(at(100), host(5), link), []);
    }
    for sender in [
        "0.0.0.0",
        "::",
        "ff02::1",
        "224.0.0.1",
        "255.255.255.255",
        "127.0.0.1",
    ] {
        assert_eq!(
            neighbors.on_request(at(100), sender.parse().unwrap(), LINK),
            []
        );
    }
    assert_eq!((neighbors.len(), neighbors.waiting()), (1, 1));
}

#[test]
fn the_oldest_packet_for_a_neighbor_gives_way_to_the_newest() {
    let settings = NeighborSettings {
        waiting_of_one: 2,
        waiting: 3,
        ..NeighborSettings::default()
    };
    let mut neighbors = Neighbors::new(settings);
    let dropped = |packet| Resolved::Dropped(packet, DropReason::NeighborQueueFull);
    assert_eq!(neighbors.resolve(at(0), host(0), 0), Resolved::Waits);
    assert_eq!(neighbors.resolve(at(0), host(0), 1), Resolved::Waits);
    assert_eq!(neighbors.resolve(at(0), host(0), 2), dropped(0));
    assert_eq!(neighbors.resolve(at(0), host(1), 3), Resolved::Waits);
    // No more may wait in all.
    assert_eq!(neighbors.resolve(at(0), host(1), 4), dropped(4));
    assert_eq!(neighbors.resolve(at(0), host(0), 5), dropped(1));
    assert_eq!(
        neighbors.on_answer(at(0), host(0), LINK, Answer::ARP_REPLY),
        [(LINK, 2), (LINK, 5)]
    );
    assert_eq!(neighbors.resolve(at(0), host(1), 6), Resolved::Waits);
    assert_eq!(neighbors.forget(host(1)), [3, 6]);
    assert_eq!((neighbors.len(), neighbors.waiting()), (1, 0));
}

#[test]
fn a_neighbor_is_solicited_even_if_no_packet_can_wait() {
    let settings = NeighborSettings {
        waiting_of_one: 0,
        ..NeighborSettings::default()
    };
    let mut neighbors = Neighbors::new(settings);
    assert_eq!(
        neighbors.resolve(at(0), HOST, 0),
        Resolved::Dropped(0, DropReason::NeighborQueueFull)
    );
    assert_eq!(neighbors.on_timer(at(0)), solicit(None));
    assert_eq!(
        neighbors.on_answer(at(0), HOST, LINK, Answer::ARP_REPLY),
        []
    );
    assert_eq!(neighbors.resolve(at(0), HOST, 1), Resolved::Send(LINK, 1));
}

#[test]
fn resolutions_take_at_most_half_of_the_entries() {
    let settings = NeighborSettings {
        entries: 4,
        ..NeighborSettings::default()
    };
    let mut neighbors = Neighbors::new(settings);
    assert_eq!(neighbors.resolve(at(0), host(0), 0), Resolved::Waits);
    assert_eq!(neighbors.resolve(at(0), host(1), 1), Resolved::Waits);
    assert_eq!(
        neighbors.resolve(at(0), host(2), 2),
        Resolved::Dropped(2, DropReason::NeighborQueueFull)
    );
    // A neighbor that asks first has room.
    assert_eq!(neighbors.on_request(at(0), host(2), LINK), []);
    assert_eq!(
        neighbors.resolve(at(0), host(2), 2),
        Resolved::Send(LINK, 2)
    );
}

#[test]
fn requests_displace_each_other_before_neighbors_in_use() {
    let settings = NeighborSettings {
        entries: 8,
        ..NeighborSettings::default()
    };
    let mut neighbors = Neighbors::new(settings);
    for number in 0..7 {
        assert_eq!(neighbors.on_request(at(0), host(number), LINK), []);
        assert_eq!(
            neighbors.resolve(at(0), host(number), number),
            Resolved::Send(LINK, number)
        );
        neighbors.on_confirmed(at(u64::from(number)), host(number));
    }
    for number in 100..1_000 {
        assert_eq!(neighbors.on_request(at(1_000), host(number), LINK), []);
    }
    assert_eq!(neighbors.len(), 8);
    assert!((0..7).all(|number| neighbors.find(at(1_000), host(number)).is_some()));
    assert!(neighbors.find(at(1_000), host(999)).is_some());
    // A packet to a new neighbor displaces first the one that only asked, then the one used least recently.
    assert_eq!(
        neighbors.resolve(at(1_000), host(3), 0),
        Resolved::Send(LINK, 0)
    );
    assert_eq!(neighbors.resolve(at(1_000), host(50), 0), Resolved::Waits);
    assert!(neighbors.find(at(1_000), host(999)).is_none());
    assert_eq!(neighbors.resolve(at(1_000), host(51), 0), Resolved::Waits);
    assert!(neighbors.find(at(1_000), host(0)).is_none());
    assert!(neighbors.find(at(1_000), host(3)).is_some());
}

#[test]
fn neighbors_in_use_are_not_displaced() {
    let settings = NeighborSettings {
        entries: 1,
        ..NeighborSettings::default()
    };
    let mut neighbors = Neighbors::new(settings);
    assert_eq!(neighbors.resolve(at(0), host(0), 0), Resolved::Waits);
    assert_eq!(neighbors.on_request(at(0), host(1), LINK), []);
    assert_eq!(
        neighbors.on_answer(at(0), host(0), LINK, Answer::ARP_REPLY),
        [(LINK, 0)]
    );
    assert_eq!(neighbors.on_request(at(29), host(1), LINK), []);
    assert_eq!(
        neighbors.resolve(at(29), host(1), 1),
        Resolved::Dropped(1, DropReason::NeighborQueueFull)
    );
    assert!(neighbors.find(at(29), host(0)).is_some());
    assert_eq!(neighbors.resolve(at(30), host(1), 1), Resolved::Waits);
    assert!(neighbors.find(at(30), host(0)).is_none());
}

#[test]
fn both_families_share_the_table() {
    let mut neighbors = Neighbors::new(NeighborSettings::default());
    let v6: IpAddr = "fe80::1".parse().unwrap();
    assert_eq!(neighbors.resolve(at(0), v6, 6), Resolved::Waits);
    assert_eq!(neighbors.resolve(at(0), HOST, 4), Resolved::Waits);
    assert_eq!(
        neighbors.on_answer(at(0), v6, LINK, answer(true, true)),
        [(LINK, 6)]
    );
    let all: Vec<_> = neighbors
        .iter(at(0))
        .map(|neighbor| neighbor.address)
        .collect();
    assert_eq!(all, [HOST, v6]);
}

#[derive(Clone, Debug)]
enum Step {
    Resolve(u32),
    Answer(u32, u8, Answer),
    Request(u32, u8),
    Confirm(u32),
    Forget(u32),
    Wait(u64),
    Timer,
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0..12u32;
    let flags = (any::<bool>(), any::<bool>()).prop_map(|(s, o)| answer(s, o));
    prop_oneof![
        6 => number.clone().prop_map(Step::Resolve),
        3 => (number.clone(), 0..4u8, flags).prop_map(|(n, link, flags)| Step::Answer(n, link, flags)),
        2 => (number.clone(), 0..4u8).prop_map(|(n, link)| Step::Request(n, link)),
        1 => number.clone().prop_map(Step::Confirm),
        1 => number.prop_map(Step::Forget),
        3 => (0..8_000u64).prop_map(Step::Wait),
        4 => Just(Step::Timer),
    ]
}

/// Follows each packet, and the link addresses that each neighbor may have, beside the table.
struct Model {
    neighbors: Neighbors<(u32, u32)>,
    settings: NeighborSettings,
    now: Instant,
    /// The packets that wait for each neighbor.
    waiting: BTreeMap<u32, VecDeque<u32>>,
    /// The link addresses that each neighbor was said to have.
    links: BTreeSet<(u32, LinkAddress)>,
    /// The time of the latest solicitation of each neighbor, and the number of them, while it is Incomplete or Probe.
    solicited: BTreeMap<IpAddr, (Instant, u32)>,
    packets: u32,
}

impl Model {
    fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Resolve(number) => self.resolve(number),
            Step::Answer(number, link, answer) => {
                let link = LinkAddress([2, 0, 0, 0, 0, link]);
                let waited = self.neighbors.find(now, host(number)).is_some();
                self.links.insert((number, link));
                let released = self.neighbors.on_answer(now, host(number), link, answer);
                assert!(waited || released.is_empty());
                self.released(number, link, released);
            }
            Step::Request(number, link) => {
                let link = LinkAddress([2, 0, 0, 0, 0, link]);
                self.links.insert((number, link));
                let released = self.neighbors.on_request(now, host(number), link);
                self.released(number, link, released);
            }
            Step::Confirm(number) => self.neighbors.on_confirmed(now, host(number)),
            Step::Forget(number) => {
                let packets = self.neighbors.forget(host(number));
                self.gone(number, packets);
            }
            Step::Wait(ms) => self.now += Duration::from_millis(ms),
            Step::Timer => self.timers(),
        }
        self.solicited.retain(|&address, _| {
            let neighbor = self.neighbors.find(now, address);
            neighbor.is_some_and(|neighbor| {
                matches!(
                    neighbor.state,
                    NeighborState::Incomplete | NeighborState::Probe
                )
            })
        });
        assert!(self.neighbors.len() <= self.settings.entries);
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        assert_eq!(self.neighbors.waiting(), waiting);
        assert!(waiting <= self.settings.waiting);
    }

    fn resolve(&mut self, number: u32) {
        let packet = self.packets;
        self.packets += 1;
        let waiting = self.waiting.entry(number).or_default();
        match self
            .neighbors
            .resolve(self.now, host(number), (number, packet))
        {
            Resolved::Send(link, sent) => {
                assert_eq!(sent, (number, packet));
                assert!(waiting.is_empty() && self.links.contains(&(number, link)));
            }
            Resolved::Waits => waiting.push_back(packet),
            Resolved::Dropped((of, dropped), reason) => {
                assert_eq!((of, reason), (number, DropReason::NeighborQueueFull));
                if dropped != packet {
                    assert_eq!(waiting.pop_front(), Some(dropped));
                    assert_eq!(waiting.len() + 1, self.settings.waiting_of_one);
                    waiting.push_back(packet);
                }
            }
        }
    }

    fn released(
        &mut self,
        number: u32,
        link: LinkAddress,
        released: Vec<(LinkAddress, (u32, u32))>,
    ) {
        assert!(released.iter().all(|&(to, _)| to == link));
        let is_known = self
            .neighbors
            .find(self.now, host(number))
            .is_some_and(|found| found.link.is_some());
        let packets: Vec<_> = released.into_iter().map(|(_, packet)| packet).collect();
        if is_known {
            self.gone(number, packets);
        } else {
            assert!(packets.is_empty());
        }
    }

    /// All packets that waited for a neighbor were returned, in order.
    fn gone(&mut self, number: u32, packets: Vec<(u32, u32)>) {
        let expected = self.waiting.remove(&number).unwrap_or_default();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|packet| (number, packet))
            .collect();
        assert_eq!(packets, expected);
    }

    fn timers(&mut self) {
        while let Some(event) = self.neighbors.on_timer(self.now) {
            match event {
                TimerEvent::Solicit { address, to } => {
                    let (latest, count) = self.solicited.get(&address).copied().unwrap_or_default();
                    assert!(count == 0 || self.now.since(latest) >= self.settings.retransmit);
                    assert!(count < self.settings.tries);
                    self.solicited.insert(address, (self.now, count + 1));
                    assert_eq!(self.neighbors.find(self.now, address).unwrap().link, to);
                }
                TimerEvent::Failed { address, packets } => {
                    assert_eq!(self.solicited[&address].1, self.settings.tries);
                    assert!(self.neighbors.find(self.now, address).is_none());
                    let number = (0..12).find(|&number| host(number) == address).unwrap();
                    self.gone(number, packets);
                }
            }
        }
        assert!(
            self.neighbors
                .next_timeout()
                .is_none_or(|due| due > self.now)
        );
    }
}

proptest! {
    #[test]
    fn every_packet_is_sent_dropped_or_waits(
        steps in prop::collection::vec(step(), 0..200),
        entries in 1..10usize,
        waiting_of_one in 0..4usize,
        waiting in 0..10usize,
        tries in 1..4u32,
    ) {
        let settings = NeighborSettings { entries, waiting_of_one, waiting, tries, ..NeighborSettings::default() };
        let mut model = Model {
            neighbors: Neighbors::new(settings),
            settings,
            now: at(5),
            waiting: BTreeMap::new(),
            links: BTreeSet::new(),
            solicited: BTreeMap::new(),
            packets: 0,
        };
        for step in steps {
            model.step(step);
        }
        // Without further packets, all resolutions end.
        let mut timeouts = 0;
        while let Some(due) = model.neighbors.next_timeout() {
            model.now = model.now.max(due);
            model.timers();
            timeouts += 1;
            prop_assert!(timeouts <= entries * (tries as usize + 2));
        }
        prop_assert_eq!(model.neighbors.waiting(), 0);
    }

    #[test]
    fn extreme_settings_and_times_do_not_panic(
        steps in prop::collection::vec((step(), any::<u64>()), 0..60),
        entries in prop_oneof![Just(0), Just(usize::MAX)],
        times in prop_oneof![Just(Duration::ZERO), Just(Duration::MAX)],
        tries in 0..3u32,
    ) {
        let (retransmit, reachable, delay) = (times, times, times);
        let settings = NeighborSettings { entries, retransmit, reachable, delay, tries, ..NeighborSettings::default() };
        let mut neighbors = Neighbors::new(settings);
        for (step, ns) in steps {
            let now = Instant::from_ns(ns);
            match step {
                Step::Resolve(number) => drop(neighbors.resolve(now, host(number), number)),
                Step::Answer(number, link, answer) => {
                    drop(neighbors.on_answer(now, host(number), LinkAddress([link; 6]), answer));
                }
                Step::Request(number, link) => {
                    drop(neighbors.on_request(now, host(number), LinkAddress([link; 6])));
                }
                Step::Confirm(number) => neighbors.on_confirmed(now, host(number)),
                Step::Forget(number) => drop(neighbors.forget(host(number))),
                Step::Wait(_) | Step::Timer => while neighbors.on_timer(now).is_some() {},
            }
        }
        while neighbors.on_timer(Instant::FAR_FUTURE).is_some() {}
        prop_assert_eq!(neighbors.waiting(), 0);
    }
}
