//! Messages of netlink (Documentation/userspace-api/netlink/intro.rst).

use std::io;

use rustix::io::Errno;

/// An attribute of a request.
#[derive(Debug)]
pub(super) struct Attribute {
    name: u16,
    value: Vec<u8>,
}

/// The attributes of one reply.
#[derive(Debug)]
pub(super) struct Reply(Vec<Attribute>);

impl Attribute {
    /// An attribute of any bytes.
    pub(super) fn bytes(name: u16, value: &[u8]) -> Self {
        let value = value.to_vec();
        Self { name, value }
    }

    /// An attribute of 32 bits.
    pub(super) fn u32(name: u16, value: u32) -> Self {
        let value = value.to_ne_bytes().to_vec();
        Self { name, value }
    }

    /// An integer of the shorter of two lengths that holds it, as the specification's type `uint`.
    pub(super) fn uint(name: u16, value: u64) -> Self {
        match u32::try_from(value) {
            Ok(short) => Self::u32(name, short),
            Err(_) => Self {
                name,
                value: value.to_ne_bytes().to_vec(),
            },
        }
    }
}

impl Reply {
    /// Reads the attributes behind the header of the family, of this length. Those that are cut off are left out.
    pub(super) fn parse(body: &[u8], header_bytes: usize) -> Self {
        let mut rest = body.get(aligned(header_bytes)..).unwrap_or_default();
        let mut attributes = Vec::new();
        while let Some((length, name)) = head(rest)
            && let Some(value) = rest.get(4..length)
        {
            attributes.push(Attribute {
                name: name & NAME_MASK,
                value: value.to_vec(),
            });
            rest = rest.get(aligned(length)..).unwrap_or_default();
        }
        Self(attributes)
    }

    /// The value of an attribute.
    pub(super) fn value(&self, name: u16) -> Option<&[u8]> {
        let found = self.0.iter().find(|attribute| attribute.name == name)?;
        Some(&found.value)
    }

    /// The value of an attribute that is an integer.
    pub(super) fn number(&self, name: u16) -> Option<u64> {
        match *self.value(name)? {
            [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
            [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
            [a, b, c, d, e, f, g, h] => Some(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
            _ => None,
        }
    }
}

/// Writes a message: `struct nlmsghdr`, the header of the family, attributes.
pub(super) fn message(kind: u16, flags: u16, header: &[u8], attributes: &[Attribute]) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message.extend(header);
    message.resize(aligned(message.len()), 0);
    for Attribute { name, value } in attributes {
        message.extend((4 + value.len() as u16).to_ne_bytes());
        message.extend(name.to_ne_bytes());
        message.extend(value);
        message.resize(aligned(message.len()), 0);
    }
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message
}

/// Takes the next message from what was received: its type, and the bytes behind the header.
pub(super) fn next_message<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let length = rest.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))? as usize;
    let kind = rest.get(4..6)?.try_into().map(u16::from_ne_bytes).ok()?;
    let body = rest.get(HEADER..length)?;
    *rest = rest.get(aligned(length)..).unwrap_or_default();
    Some((kind, body))
}

/// The result by the acknowledgement.
pub(super) fn finish<R>(body: &[u8], replies: R) -> io::Result<R> {
    let code = body
        .first_chunk()
        .map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    match code.checked_neg() {
        Some(0) => Ok(replies),
        Some(libc::EOPNOTSUPP | libc::EINVAL) => Err(io::ErrorKind::Unsupported.into()),
        Some(error) => Err(Errno::from_raw_os_error(error).into()),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The length and the name of an attribute, `struct nlattr`.
fn head(rest: &[u8]) -> Option<(usize, u16)> {
    let [a, b, c, d] = *rest.first_chunk()?;
    let length = usize::from(u16::from_ne_bytes([a, b]));
    (length >= 4).then_some((length, u16::from_ne_bytes([c, d])))
}

const fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// include/uapi/linux/netlink.h.
const HEADER: usize = 16;
pub(super) const REQUEST: u16 = 1;
pub(super) const ACKNOWLEDGE: u16 = 4;
pub(super) const DUMP: u16 = 0x300;
pub(super) const ERROR: u16 = 2;
pub(super) const DONE: u16 = 3;
const NAME_MASK: u16 = 0x3fff;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let attributes = [Attribute::u32(7, 70_000), Attribute::uint(9, 1 << 40)];
        let written = message(21, REQUEST, &[5, 1, 0, 0], &attributes);
        let mut rest = &written[..];
        let (kind, body) = next_message(&mut rest).unwrap();
        assert_eq!((kind, rest.len()), (21, 0));
        let reply = Reply::parse(body, 4);
        let numbers = [7, 9, 11].map(|name| reply.number(name));
        assert_eq!(numbers, [Some(70_000), Some(1 << 40), None]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = &bytes[..];
            while let Some((_, body)) = next_message(&mut rest) {
                let reply = Reply::parse(body, 4);
                let _ = (reply.number(1), finish(body, ()));
            }
        }
    }
}
