//! Properties of messages of ARP that hold for any input. Called by the property tests and by the fuzzer (`fuzz/`).

use super::{DropReason, LinkAddress, Message, Operation};

/// Takes `bytes` as the payload of a frame, as it is and as one about IPv4 over Ethernet. Checks that a message is
/// written as it was read, that no other host can be taken for a group, and that the reply to it is a message, too.
pub(crate) fn check(bytes: &[u8]) {
    check_message(bytes);
    if let Some((head, rest)) = bytes.split_first_chunk::<8>() {
        // The operation of the input: neither, a request, or a reply.
        let head = [0, 1, 8, 0, 6, 4, 0, head[7] % 4];
        let mut repaired = head.to_vec();
        repaired.extend_from_slice(rest);
        check_message(&repaired);
    }
}

fn check_message(bytes: &[u8]) {
    let message = match Message::parse(bytes) {
        Ok(message) => message,
        Err(reason) => {
            assert_eq!(reason, DropReason::Arp);
            return;
        }
    };
    assert_eq!(message.to_bytes()[..], bytes[..Message::BYTES]);
    let (link, sender) = message.sender;
    assert!(link.is_host());
    assert!(!sender.is_multicast() && !sender.is_broadcast() && !sender.is_loopback());
    assert!(!sender.is_unspecified() || message.is_probe());
    if message.operation == Operation::Request {
        let reply = message.reply(OWN);
        assert_eq!(Message::parse(&reply.to_bytes()), Ok(reply));
        assert_eq!(reply.target, message.sender);
    }
}

const OWN: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 1]);
