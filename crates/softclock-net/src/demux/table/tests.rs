use super::*;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const ANY_V6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Tcp];

/// One of few addresses, so that steps meet each other.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0..3u8).prop_map(|last| Ipv4Addr::new(10, 0, 0, last).into()),
        (0..3u16).prop_map(|last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last).into()),
        Just(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into()),
    ]
}

fn flow() -> impl Strategy<Value = Flow> {
    let end = || (address(), 0..2u16);
    let flow = (prop::sample::select(&TRANSPORTS[..]), end(), end());
    let flow = flow.prop_map(|(transport, remote, local)| Flow {
        transport,
        remote,
        local,
    });
    flow.prop_filter("both ends have the same version", |flow| {
        flow.remote.0.is_ipv4() == flow.local.0.is_ipv4()
    })
}

/// The transport, address and port that an endpoint is bound to.
type Bound = (Transport, (IpAddr, u16));

#[derive(Clone, Debug)]
enum Step {
    Bind(Bound, u8),
    Unbind(Bound),
    Connect(Flow, u8),
    Disconnect(Flow),
}

fn step() -> impl Strategy<Value = Step> {
    let binding = || {
        let local = (
            prop_oneof![3 => address(), 1 => address().prop_map(any_address)],
            0..2u16,
        );
        (prop::sample::select(&TRANSPORTS[..]), local)
    };
    let value = || 0..4u8;
    prop_oneof![
        (binding(), value()).prop_map(|(binding, value)| Step::Bind(binding, value)),
        binding().prop_map(Step::Unbind),
        (flow(), value()).prop_map(|(flow, value)| Step::Connect(flow, value)),
        (flow(), value()).prop_map(|(flow, value)| Step::Connect(flow, value)),
        flow().prop_map(Step::Disconnect),
    ]
}

/// The table as lists that are searched from beginning to end.
#[derive(Default)]
struct Model {
    connected: Vec<(Flow, u8)>,
    bound: Vec<(Bound, u8)>,
}

impl Model {
    /// Takes the step in both, and compares the results.
    fn step(&mut self, table: &mut Table<u8>, step: Step) {
        match step {
            Step::Bind(to, value) => {
                let is_new = !self.bound.iter().any(|bound| bound.0 == to);
                assert_eq!(table.bind(to.0, to.1, value).is_ok(), is_new);
                if is_new {
                    self.bound.push((to, value));
                }
            }
            Step::Unbind(to) => {
                let place = self.bound.iter().position(|bound| bound.0 == to);
                let expected = place.map(|place| self.bound.remove(place).1);
                assert_eq!(table.unbind(to.0, to.1), expected);
            }
            Step::Connect(flow, value) => {
                let is_new = !self.connected.iter().any(|connected| connected.0 == flow);
                assert_eq!(table.connect(flow, value).is_ok(), is_new);
                if is_new {
                    self.connected.push((flow, value));
                }
            }
            Step::Disconnect(flow) => {
                let place = self
                    .connected
                    .iter()
                    .position(|connected| connected.0 == flow);
                let expected = place.map(|place| self.connected.remove(place).1);
                assert_eq!(table.disconnect(&flow), expected);
            }
        }
    }

    fn find(&self, flow: &Flow) -> Option<u8> {
        let connected = self.connected.iter().find(|connected| connected.0 == *flow);
        let bound = |binding| self.bound.iter().find(|bound| bound.0 == binding);
        let [to_address, to_any] = receivers_of(flow);
        let bound = bound(to_address).or_else(|| bound(to_any));
        connected
            .map(|connected| connected.1)
            .or(bound.map(|bound| bound.1))
    }

    fn find_all_bound(&self, flow: &Flow) -> Vec<u8> {
        let bound = self.bound.iter();
        let receivers = bound.filter(|bound| receivers_of(flow).contains(&bound.0));
        let mut all: Vec<u8> = receivers.map(|bound| bound.1).collect();
        all.sort_unstable();
        all
    }
}

/// The unspecified address of the same version.
const fn any_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => ANY,
        IpAddr::V6(_) => ANY_V6,
    }
}

/// The bindings that receive a packet of a flow.
fn receivers_of(flow: &Flow) -> [Bound; 2] {
    let (address, port) = flow.local;
    [address, any_address(address)].map(|address| (flow.transport, (address, port)))
}

proptest! {
    #[test]
    fn a_table_finds_as_a_list_does(
        key in any::<[u64; 2]>(),
        steps in prop::collection::vec(step(), 0..120),
        asked in prop::collection::vec(flow(), 1..80),
    ) {
        let mut table = Table::new(HashKey(key));
        let mut model = Model::default();
        for step in steps {
            model.step(&mut table, step);
            prop_assert_eq!(table.len(), model.connected.len() + model.bound.len());
        }
        let mut found = vec![Some(99); asked.len()];
        table.find_batch(&asked, &mut found);
        for (flow, found) in asked.iter().zip(found) {
            prop_assert_eq!(table.find(flow), model.find(flow));
            prop_assert_eq!(found, model.find(flow));
            let mut all = Vec::new();
            table.find_all_bound(flow, |value| all.push(value));
            all.sort_unstable();
            prop_assert_eq!(all, model.find_all_bound(flow));
        }
    }
}

/// The flow number `number` from hosts that count addresses and ports upwards.
fn numbered(number: u32) -> Flow {
    let is_v6 = number.is_multiple_of(3);
    let remote = Ipv4Addr::from_bits(0x0a00_0000 + number / 7);
    let local = Ipv4Addr::new(192, 0, 2, 1);
    let of = |address: Ipv4Addr| match is_v6 {
        true => address.to_ipv6_mapped().into(),
        false => address.into(),
    };
    Flow {
        transport: TRANSPORTS[number as usize % 2],
        remote: (of(remote), 1000 + (number % 7) as u16),
        local: (of(local), 80),
    }
}

#[test]
fn thousands_of_flows_are_found_singly_and_in_batches_while_they_come_and_go() {
    const FLOWS: u32 = 4 * MOST_IN_CACHE as u32;
    let mut table = Table::new(HashKey([3, 4]));
    for any in [ANY, ANY_V6] {
        table.bind(Transport::Udp, (any, 80), u32::MAX).unwrap();
    }
    let flows: Vec<Flow> = (0..FLOWS).map(numbered).collect();
    for (number, flow) in flows.iter().enumerate() {
        table.connect(*flow, number as u32).unwrap();
    }
    assert_eq!(table.len(), flows.len() + 2);
    for (number, flow) in flows.iter().enumerate().step_by(2) {
        assert_eq!(table.disconnect(flow), Some(number as u32));
    }
    let mut found = vec![None; flows.len()];
    table.find_batch(&flows, &mut found);
    for (number, (flow, found)) in flows.iter().zip(found).enumerate() {
        let expected = match number % 2 {
            // The protocol of even flows is UDP, to which an endpoint is bound.
            0 => Some(u32::MAX),
            _ => Some(number as u32),
        };
        assert_eq!((table.find(flow), found), (expected, expected));
    }
}

#[test]
fn slices_of_different_lengths_are_filled_as_far_as_both_go() {
    let mut table = Table::new(HashKey([3, 4]));
    for any in [ANY, ANY_V6] {
        table.bind(Transport::Tcp, (any, 80), ()).unwrap();
        table.bind(Transport::Udp, (any, 80), ()).unwrap();
    }
    let flows: Vec<Flow> = (0..70).map(numbered).collect();
    for (asked, room) in [(70, 33), (33, 70), (64, 70), (0, 5), (5, 0)] {
        let mut found = vec![None; room];
        table.find_batch(&flows[..asked], &mut found);
        let filled = found.iter().filter(|found| found.is_some()).count();
        assert_eq!(filled, asked.min(room));
    }
}

#[test]
fn flows_of_both_versions_with_mapped_addresses_are_distinct() {
    let mut table = Table::new(HashKey([3, 4]));
    let v4 = numbered(1);
    let map = |(address, port)| match address {
        IpAddr::V4(address) => (address.to_ipv6_mapped().into(), port),
        IpAddr::V6(_) => (address, port),
    };
    let v6 = Flow {
        remote: map(v4.remote),
        local: map(v4.local),
        ..v4
    };
    table.connect(v4, 4).unwrap();
    assert_eq!(table.find(&v6), None);
    table.connect(v6, 6).unwrap();
    assert_eq!((table.find(&v4), table.find(&v6)), (Some(4), Some(6)));
}
