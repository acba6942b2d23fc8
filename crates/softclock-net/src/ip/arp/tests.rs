use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

#[path = "target.rs"]
mod target;

fn host() -> impl Strategy<Value = (LinkAddress, Ipv4Addr)> {
    let pair = (any::<[u8; 6]>(), any::<u32>());
    pair.prop_map(|(link, address)| (LinkAddress(link), Ipv4Addr::from(address)))
        .prop_filter("a single host", |&(link, address)| {
            link.is_host() && can_be_host(address)
        })
}

const LINK: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 1]);
const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

proptest! {
    #[test]
    fn a_message_is_read_as_it_was_written(
        sender in host(),
        target in host(),
        is_reply in any::<bool>(),
        padding in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let request = Message::request(sender, target.1);
        let message = if is_reply { request.reply(target.0) } else { request };
        let mut bytes = Vec::from(message.to_bytes());
        bytes.extend(padding);
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        for length in 0..Message::BYTES {
            prop_assert_eq!(Message::parse(&bytes[..length]), Err(DropReason::Arp));
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read_as_they_are(
        mut bytes in prop::collection::vec(any::<u8>(), 0..40),
        is_arp in any::<bool>(),
    ) {
        if is_arp && bytes.len() >= 8 {
            bytes[..6].copy_from_slice(&IPV4_OVER_ETHERNET);
            bytes[6] = 0;
            bytes[7] %= 4;
        }
        target::check(&bytes);
    }
}

#[test]
fn probes_and_their_replies_are_read() {
    let probe = Message::probe(LINK, US);
    assert_eq!(Message::parse(&probe.to_bytes()), Ok(probe));
    assert!(probe.is_probe() && !probe.is_announcement());
    let reply = probe.reply(LINK);
    assert_eq!(Message::parse(&reply.to_bytes()), Ok(reply));
    assert!(!reply.is_probe());
    let announcement = Message::announcement((LINK, US));
    assert_eq!(Message::parse(&announcement.to_bytes()), Ok(announcement));
    assert!(announcement.is_announcement() && !announcement.is_probe());
}

#[test]
fn impossible_senders_and_targets_are_refused() {
    let refused = |message: Message| {
        assert_eq!(
            Message::parse(&message.to_bytes()),
            Err(DropReason::Arp),
            "{message:?}"
        );
    };
    let valid = Message::request((LINK, THEM), US);
    for link in [LinkAddress::BROADCAST, UNKNOWN, LinkAddress([1; 6])] {
        refused(Message {
            sender: (link, THEM),
            ..valid
        });
    }
    for address in [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::new(224, 0, 0, 1),
    ] {
        refused(Message {
            sender: (LINK, address),
            ..valid
        });
        refused(Message {
            target: (LINK, address),
            ..valid
        });
    }
    refused(Message::request((LINK, THEM), Ipv4Addr::UNSPECIFIED));
    refused(Message {
        sender: (LINK, Ipv4Addr::UNSPECIFIED),
        ..valid.reply(LINK)
    });
}

#[test]
fn other_types_lengths_and_operations_are_refused() {
    let valid = Message::request((LINK, THEM), US).to_bytes();
    for (place, value) in [(0, 1), (1, 6), (2, 0x86), (4, 8), (5, 16), (6, 1), (7, 3)] {
        let mut bytes = valid;
        bytes[place] = value;
        assert_eq!(Message::parse(&bytes), Err(DropReason::Arp), "byte {place}");
    }
}
