//! Which of many filters a packet meets first.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::Headers;
use super::filter::{Filter, Ports, Prefix};

/// Filters in order, compiled so that the first one that a packet meets is found without trying them in turn.
///
/// This is the bit-vector scheme of Lakshman and Stiliadis (SIGCOMM 1998). Each kind of condition divides its values into
/// the intervals between the ends of the filters' ranges; each interval knows the set of filters that are content with it;
/// and the filters that a packet meets are the intersection of the sets that its headers' values lead to.
///
/// # Cost
/// A binary search for each kind of condition that occurs, and n / 64 words to intersect at most, for n filters. Each kind
/// that occurs takes up to n * n / 4 bytes: 256 KiB for 1000 filters with ports of their own.
#[derive(Clone, Debug)]
pub struct Classifier {
    /// Words of a set of filters.
    words: usize,
    source: Dimension<IpAddr>,
    destination: Dimension<IpAddr>,
    either: Dimension<IpAddr>,
    source_port: Dimension<u16>,
    destination_port: Dimension<u16>,
    either_port: Dimension<u16>,
    protocol: Dimension<u8>,
    dscp: Dimension<u8>,
    vlan: Dimension<u16>,
}

impl Classifier {
    /// Compiles these filters, which are numbered from 0.
    pub fn new<'a>(filters: impl IntoIterator<Item = &'a Filter>) -> Self {
        let filters: Vec<&Filter> = filters.into_iter().collect();
        Self {
            words: words(filters.len()),
            source: Dimension::of(&filters, |filter| filter.source.map(Prefix::range)),
            destination: Dimension::of(&filters, |filter| filter.destination.map(Prefix::range)),
            either: Dimension::of(&filters, |filter| filter.either.map(Prefix::range)),
            source_port: Dimension::of(&filters, |filter| ends(&filter.source_port)),
            destination_port: Dimension::of(&filters, |filter| ends(&filter.destination_port)),
            either_port: Dimension::of(&filters, |filter| ends(&filter.either_port)),
            protocol: Dimension::of(&filters, |filter| filter.protocol.map(alone)),
            dscp: Dimension::of(&filters, |filter| filter.dscp.map(alone)),
            vlan: Dimension::of(&filters, |filter| filter.vlan.map(alone)),
        }
    }

    /// The number of the first filter that [matches](Filter::matches).
    pub fn first_match(&self, headers: &Headers) -> Option<usize> {
        let (source, destination) = headers.addresses.unzip();
        let (from, to) = headers.ports.unzip();
        let dscp = headers.addresses.map(|_| headers.dscp);
        let mut sets = Sets::default();
        sets.restrict(&self.source, source, source);
        sets.restrict(&self.destination, destination, destination);
        sets.restrict(&self.either, source, destination);
        sets.restrict(&self.source_port, from, from);
        sets.restrict(&self.destination_port, to, to);
        sets.restrict(&self.either_port, from, to);
        sets.restrict(&self.protocol, headers.protocol, headers.protocol);
        sets.restrict(&self.dscp, dscp, dscp);
        sets.restrict(&self.vlan, headers.vlan, headers.vlan);
        (0..self.words).find_map(|word| match sets.intersection(word) {
            0 => None,
            met => Some(word * 64 + met.trailing_zeros() as usize),
        })
    }
}

/// The sets that a packet's values lead to: of each kind of condition two, one of which has to hold a filter.
#[derive(Default)]
struct Sets<'a> {
    pairs: [(&'a [u64], &'a [u64]); KINDS],
    count: usize,
}

impl<'a> Sets<'a> {
    /// Leaves the filters that are content with one of two values.
    fn restrict<T: Copy + Ord>(
        &mut self,
        kind: &'a Dimension<T>,
        one: Option<T>,
        other: Option<T>,
    ) {
        if kind.is_free() {
            return;
        }
        let first = kind.set_of(one);
        let second = if one == other {
            first
        } else {
            kind.set_of(other)
        };
        self.pairs[self.count] = (first, second);
        self.count += 1;
    }

    fn intersection(&self, word: usize) -> u64 {
        let pairs = self.pairs[..self.count].iter();
        pairs.fold(u64::MAX, |met, (one, other)| {
            met & (one[word] | other[word])
        })
    }
}

/// One kind of condition: ranges of values, by filter.
#[derive(Clone, Debug)]
struct Dimension<T> {
    words: usize,
    /// Where intervals begin, ascending. What is below the first, is in no range.
    starts: Vec<T>,
    /// The sets of filters: of those without a condition, then for each interval of those content with it.
    sets: Vec<u64>,
}

impl<T: Copy + Ord + Successor> Dimension<T> {
    fn of(filters: &[&Filter], range: impl Fn(&Filter) -> Option<(T, T)>) -> Self {
        let words = words(filters.len());
        let ranges = || filters.iter().map(|filter| range(filter));
        let ends = ranges().flatten();
        let mut starts: Vec<T> = ends
            .flat_map(|(first, last)| [Some(first), last.successor()])
            .flatten()
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let mut sets = vec![0; (starts.len() + 1) * words];
        for (number, range) in ranges().enumerate() {
            let places = match range {
                None => 0..starts.len() + 1,
                Some((first, last)) => {
                    let begin = starts.partition_point(|start| *start < first);
                    let end = starts.partition_point(|start| *start <= last);
                    begin + 1..end + 1
                }
            };
            for place in places {
                sets[place * words + number / 64] |= 1 << (number % 64);
            }
        }
        Self {
            words,
            starts,
            sets,
        }
    }
}

impl<T: Copy + Ord> Dimension<T> {
    /// No filter has a condition of this kind.
    const fn is_free(&self) -> bool {
        self.starts.is_empty()
    }

    /// The filters that are content with this value, or with none.
    fn set_of(&self, value: Option<T>) -> &[u64] {
        let place = value.map_or(0, |value| {
            self.starts.partition_point(|start| *start <= value)
        });
        &self.sets[place * self.words..][..self.words]
    }
}

/// The next value in order.
trait Successor: Sized {
    fn successor(self) -> Option<Self>;
}

impl Successor for u8 {
    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Successor for u16 {
    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// In the order of [`IpAddr`], those of IPv6 follow those of IPv4.
impl Successor for IpAddr {
    fn successor(self) -> Option<Self> {
        match self {
            Self::V4(address) => Some(match address.to_bits().checked_add(1) {
                Some(next) => Self::V4(next.into()),
                None => Self::V6(0.into()),
            }),
            Self::V6(address) => {
                let next = address.to_bits().checked_add(1)?;
                Some(Self::V6(next.into()))
            }
        }
    }
}

const fn words(filters: usize) -> usize {
    filters.div_ceil(64)
}

fn ends(ports: &Option<Ports>) -> Option<(u16, u16)> {
    let ports = ports.as_ref()?;
    Some((*ports.start(), *ports.end()))
}

const fn alone<T: Copy>(value: T) -> (T, T) {
    (value, value)
}

/// Kinds of conditions.
const KINDS: usize = 9;

#[cfg(test)]
mod tests;
