//! Reassembly of fragmented packets (RFC 791, RFC 815, RFC 8200 section 4.5), in bounded memory.
//!
//! Differs from RFC 791, and agrees with RFC 8200 and RFC 5722 for both versions of IP: fragments that overlap are an
//! attack or an error, and the whole packet is dropped. Exact duplicates are ignored.

mod parts;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use softclock_core::Instant;

use self::parts::{Head, PART_BYTES, Parts};
use super::{Fragment, Output, Packet, header_bytes, v6};
use crate::checksum::Addresses;
use crate::drops::DropReason;
use crate::due::Slack;

/// Collects the fragments of packets until they are whole.
///
/// **Memory is bounded**, in packets and in bytes ([`ReassemblyLimits`]), and a source can hold at most a quarter of
/// both. Where a source needs more, its own oldest packets are given up ([`take_evicted`](Self::take_evicted)); where
/// all memory is in use, the oldest packets of all. So a single source cannot keep others from sending fragments, and a
/// flood from many can only if it replaces all packets in less time than the fragments of one need to arrive.
///
/// **A packet that cannot become whole is refused**, for example since two of its fragments overlap: its memory is
/// freed at once, and its other fragments are refused for the same reason until its time is over.
///
/// A fragment costs O(log n) for n packets, plus the copy of its payload; O(n) if packets have to be given up for it.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::checksum::Addresses;
/// use softclock_net::ip::{self, Output, fragments::Reassembly};
///
/// let output = Output {
///     addresses: Addresses {
///         source: "10.0.0.1".parse().unwrap(),
///         destination: "10.0.0.2".parse().unwrap(),
///     },
///     protocol: 17,
///     hop_limit: 64,
///     traffic_class: 0,
///     identification: 1,
///     may_fragment: true,
/// };
/// let payload = [7; 2000];
/// let mut reassembly = Reassembly::default();
/// let mut whole = None;
/// for bytes in ip::fragments(&output, &payload, 1500) {
///     let fragment = ip::parse(&bytes).unwrap();
///     whole = reassembly.on_fragment(Instant::ORIGIN, &fragment).unwrap();
/// }
/// assert_eq!(whole.unwrap().payload, payload);
/// assert!(reassembly.is_empty());
/// ```
pub struct Reassembly {
    limits: ReassemblyLimits,
    packets: BTreeMap<Key, Incomplete>,
    deadlines: BTreeSet<(Instant, Key)>,
    sources: BTreeMap<IpAddr, Share>,
    /// The memory of all fragments.
    bytes: usize,
    evicted: u64,
}

/// Bounds of a [`Reassembly`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReassemblyLimits {
    /// The incomplete packets, of which a source can have a quarter, but at least one.
    pub packets: usize,
    /// The memory for payload, with 64 bytes for each fragment besides. A source can have a quarter, so a packet of the
    /// greatest length needs 280 KiB here if it comes in fragments of 1280 bytes.
    pub bytes: usize,
    /// The fragments of a packet, at least 1.
    pub fragments_of_packet: usize,
    /// The time after the arrival of a packet's first fragment in which the others must arrive. One value serves both
    /// versions of IP, although RFC 8200 has 60 s: where packets are so late, their senders have given them up.
    pub timeout: Duration,
}

impl Default for ReassemblyLimits {
    /// 64 packets of at most 64 fragments, 1 MiB, 30 s.
    fn default() -> Self {
        Self {
            packets: 64,
            bytes: 1 << 20,
            fragments_of_packet: 64,
            timeout: Duration::from_secs(30),
        }
    }
}

/// A whole packet, joined from its fragments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reassembled {
    /// The sender and the receiver.
    pub addresses: Addresses,
    /// The protocol of the payload: no extension header of IPv6.
    pub protocol: u8,
    /// The hop limit of the first fragment.
    pub hop_limit: u8,
    /// The traffic class of the first fragment, with the mark of congestion if any fragment has it (RFC 3168, 5.3).
    pub traffic_class: u8,
    /// The bytes behind all headers of the network layer.
    pub payload: Vec<u8>,
}

impl Reassembled {
    /// The packet as if it had arrived whole, with an IP header without options or extension headers.
    pub fn as_packet(&self) -> Packet<'_> {
        Packet {
            addresses: self.addresses,
            protocol: self.protocol,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            fragment: None,
            has_fragment_header: false,
            payload: &self.payload,
            header_bytes: header_bytes(&self.addresses.source),
        }
    }
}

impl Default for Reassembly {
    fn default() -> Self {
        Self::new(ReassemblyLimits::default())
    }
}

impl Reassembly {
    /// Creates a reassembly without packets. Allocates nothing until the first fragment.
    pub const fn new(limits: ReassemblyLimits) -> Self {
        Self {
            limits,
            packets: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            sources: BTreeMap::new(),
            bytes: 0,
            evicted: 0,
        }
    }

    /// Takes a fragment, and returns the whole packet if this was the one that was missing. A packet that is no
    /// fragment is returned as it is.
    ///
    /// Call [`expire`](Self::expire) before, with the same time: an overdue packet takes fragments until then.
    ///
    /// # Errors
    /// - [`DropReason::FragmentInvalid`]: a fragment without payload, or in the middle with a length that is not a
    ///   multiple of 8, or too far behind; payload behind the end; a mark of congestion although another fragment says
    ///   that the sender does not use ECN.
    /// - [`DropReason::FragmentOverlap`]: it overlaps another fragment of the packet.
    /// - [`DropReason::FragmentMemory`]: the limits allow no more.
    /// - The reasons of [`parse`](super::parse), for the extension headers that were in fragments.
    pub fn on_fragment(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<Option<Reassembled>, DropReason> {
        let Some(fragment) = packet.fragment else {
            let payload = packet.payload.to_vec();
            return Ok(Some(whole(packet.addresses, Head::of(packet), payload)));
        };
        packet.end_of_fragment(fragment)?;
        let key = Key::of(packet, fragment);
        let taken = self.take(now, key, fragment, packet);
        if let Err(reason) = taken {
            self.refuse(key, reason);
        }
        let result = taken.and_then(|()| self.join(key, packet.addresses));
        if cfg!(debug_assertions) {
            self.check();
        }
        result
    }

    /// The time of the next call of [`expire`](Self::expire) that will give up a packet.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// How late [`expire`](Self::expire) may be.
    pub fn slack(&self) -> Duration {
        Slack::LONG.of_time(self.limits.timeout)
    }

    /// Gives up the packets whose time is over. Returns how many of them were incomplete, each of which is a
    /// [`DropReason::FragmentTimeout`]; not among them are packets that were refused before.
    ///
    /// Passes to `on_first` the first fragment of each incomplete packet of which it has arrived, as an IP packet
    /// without options: a host reports these to their senders (RFC 1122, 3.3.2; RFC 8200, 4.5).
    pub fn expire(&mut self, now: Instant, mut on_first: impl FnMut(Vec<u8>)) -> u64 {
        let mut incomplete = 0;
        while let Some(&(deadline, key)) = self.deadlines.first()
            && deadline <= now
        {
            let Some(Incomplete {
                parts: Ok(parts), ..
            }) = self.remove(key)
            else {
                continue;
            };
            incomplete += 1;
            if let Some((head, payload)) = parts.first() {
                on_first(key.first_fragment(head, payload));
            }
        }
        incomplete
    }

    /// Returns how many incomplete packets were given up in favor of newer ones from the same source since the last
    /// call. Each of them is a [`DropReason::FragmentMemory`] that [`on_fragment`](Self::on_fragment) did not return.
    pub const fn take_evicted(&mut self) -> u64 {
        core::mem::replace(&mut self.evicted, 0)
    }

    /// The packets that are incomplete, or refused until their time is over.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The memory in use, counted as in [`ReassemblyLimits::bytes`].
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a fragment to its packet, which it may be the first of. An error means that the packet cannot become whole.
    fn take(
        &mut self,
        now: Instant,
        key: Key,
        fragment: Fragment,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        let mut place = 0;
        let mut held = 0;
        if let Some(known) = self.packets.get(&key) {
            let parts = known.parts.as_ref().map_err(|&reason| reason)?;
            match parts.place(fragment, packet.payload)? {
                None => return Ok(()),
                Some(free) => place = free,
            }
            if parts.len() >= self.limits.fragments_of_packet {
                return Err(DropReason::FragmentMemory);
            }
            held = parts.bytes();
        }
        let bytes = packet.payload.len() + PART_BYTES;
        self.make_room(key, held, bytes)?;

        let deadline = now + self.limits.timeout;
        let share = self.sources.entry(key.source).or_default();
        let known = self.packets.entry(key).or_insert_with(|| {
            self.deadlines.insert((deadline, key));
            share.packets += 1;
            let parts = Ok(Parts::default());
            Incomplete { deadline, parts }
        });
        if let Ok(parts) = &mut known.parts {
            parts.insert(place, fragment, packet);
            share.bytes += bytes;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Makes room for `bytes` more of a packet that holds `held` bytes: gives up the oldest packets of its source until
    /// the source stays within its share, then the oldest of all until the limits hold.
    fn make_room(&mut self, key: Key, held: usize, bytes: usize) -> Result<(), DropReason> {
        let most_bytes = self.limits.bytes / SHARES;
        let most_packets = (self.limits.packets / SHARES).max(1);
        let is_new = !self.packets.contains_key(&key);
        // Other packets are given up only if that helps.
        if held + bytes > most_bytes || self.limits.packets == 0 {
            return Err(DropReason::FragmentMemory);
        }
        loop {
            let share = self.sources.get(&key.source).copied().unwrap_or_default();
            let has_packet = !is_new || share.packets < most_packets;
            if has_packet && share.bytes + bytes <= most_bytes {
                break;
            }
            self.give_up_oldest(|other| other.source == key.source && *other != key)?;
        }
        // A flood from forged sources would otherwise keep all others from sending fragments until its packets time
        // out. Packets of honest hosts are whole long before they are the oldest.
        while (is_new && self.packets.len() >= self.limits.packets)
            || self.bytes + bytes > self.limits.bytes
        {
            self.give_up_oldest(|other| *other != key)?;
        }
        Ok(())
    }

    /// Gives up the oldest of these packets; an error if there is none.
    fn give_up_oldest(&mut self, is_candidate: impl Fn(&Key) -> bool) -> Result<(), DropReason> {
        let mut by_age = self.deadlines.iter().map(|&(_, key)| key);
        let oldest = by_age.find(is_candidate);
        let removed = self.remove(oldest.ok_or(DropReason::FragmentMemory)?);
        self.evicted += u64::from(removed.is_some_and(|removed| removed.parts.is_ok()));
        Ok(())
    }

    /// Frees the memory of a packet, and remembers to refuse its other fragments.
    fn refuse(&mut self, key: Key, reason: DropReason) {
        let Some(known) = self.packets.get_mut(&key) else {
            return;
        };
        if let Ok(parts) = core::mem::replace(&mut known.parts, Err(reason)) {
            self.release(key.source, parts.bytes(), 0);
        }
    }

    /// Removes and returns a packet that is whole.
    fn join(&mut self, key: Key, addresses: Addresses) -> Result<Option<Reassembled>, DropReason> {
        let is_whole = |known: &Incomplete| known.parts.as_ref().is_ok_and(Parts::is_whole);
        if !self.packets.get(&key).is_some_and(is_whole) {
            return Ok(None);
        }
        let Some(Incomplete { parts, .. }) = self.remove(key) else {
            return Ok(None);
        };
        let (mut head, mut payload) = parts?.join()?;
        if addresses.source.is_ipv6() {
            let extension_bytes;
            (head.protocol, extension_bytes) = v6::skip_extensions(head.protocol, &payload)?;
            payload.drain(..extension_bytes.min(payload.len()));
        }
        Ok(Some(whole(addresses, head, payload)))
    }

    fn remove(&mut self, key: Key) -> Option<Incomplete> {
        let removed = self.packets.remove(&key)?;
        self.deadlines.remove(&(removed.deadline, key));
        let bytes = removed.parts.as_ref().map_or(0, Parts::bytes);
        self.release(key.source, bytes, 1);
        Some(removed)
    }

    fn release(&mut self, source: IpAddr, bytes: usize, packets: usize) {
        self.bytes -= bytes;
        if let Some(share) = self.sources.get_mut(&source) {
            share.bytes -= bytes;
            share.packets -= packets;
            if share.packets == 0 {
                self.sources.remove(&source);
            }
        }
    }

    /// Checks that all sums agree with the packets, and that the limits hold.
    fn check(&self) {
        let mut sources = BTreeMap::<IpAddr, Share>::new();
        for (key, known) in &self.packets {
            assert!(self.deadlines.contains(&(known.deadline, *key)));
            let share = sources.entry(key.source).or_default();
            share.packets += 1;
            if let Ok(parts) = &known.parts {
                parts.check();
                assert!(!parts.is_whole() && parts.len() > 0);
                share.bytes += parts.bytes();
            }
        }
        assert_eq!(self.deadlines.len(), self.packets.len());
        assert_eq!(sources, self.sources);
        let bytes = sources.values().map(|share| share.bytes).sum::<usize>();
        assert_eq!(bytes, self.bytes);
        assert!(self.bytes <= self.limits.bytes && self.packets.len() <= self.limits.packets);
    }
}

/// The fields that all fragments of a packet share, and no other packet at the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    /// Zero for IPv6: the fragments of a packet may differ in it (RFC 8200, 4.5).
    protocol: u8,
}

impl Key {
    fn of(packet: &Packet<'_>, fragment: Fragment) -> Self {
        Self {
            source: packet.addresses.source,
            destination: packet.addresses.destination,
            identification: fragment.identification,
            protocol: match packet.addresses.source {
                IpAddr::V4(_) => packet.protocol,
                IpAddr::V6(_) => 0,
            },
        }
    }
}

impl Key {
    /// The first fragment of the packet.
    fn first_fragment(&self, head: Head, payload: &[u8]) -> Vec<u8> {
        let output = Output {
            addresses: Addresses {
                source: self.source,
                destination: self.destination,
            },
            protocol: head.protocol,
            hop_limit: head.hop_limit,
            traffic_class: head.traffic_class,
            identification: self.identification,
            may_fragment: true,
        };
        let fragment = Fragment {
            identification: self.identification,
            offset: 0,
            has_more: true,
        };
        let mut packet = Vec::new();
        output.write(Some(fragment), payload.len(), &mut packet);
        packet.extend_from_slice(payload);
        packet
    }
}

/// A packet of which fragments are missing.
struct Incomplete {
    deadline: Instant,
    /// The fragments, or the reason for which all further fragments are refused.
    parts: Result<Parts, DropReason>,
}

/// The use of memory by a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Share {
    packets: usize,
    bytes: usize,
}

fn whole(addresses: Addresses, head: Head, payload: Vec<u8>) -> Reassembled {
    Reassembled {
        addresses,
        protocol: head.protocol,
        hop_limit: head.hop_limit,
        traffic_class: head.traffic_class,
        payload,
    }
}

/// A source can use one of this many parts of the memory.
const SHARES: usize = 4;

#[cfg(test)]
mod tests;
