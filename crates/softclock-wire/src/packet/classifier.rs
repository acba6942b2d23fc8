//! Finds the first of many filters that a packet matches.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::Headers;
use super::filter::{Filter, Ports, Prefix};

/// An ordered list of filters, compiled so that the first one that a packet matches is found without trying each of
/// them.
///
/// This is the bit-vector scheme of Lakshman and Stiliadis (SIGCOMM 1998). For each type of condition, the ends of the
/// filters' ranges divide the values into intervals, and each interval has the set of the filters that accept it. The
/// filters that a packet matches are the intersection of the sets of its headers' values.
///
/// # Cost
/// For n filters, a look-up takes a binary search for each type of condition that occurs, and intersects at most n / 64
/// words. Each type of condition that occurs takes up to n * n / 4 bytes: 256 KiB for 1000 filters with different
/// ports.
///
/// # Example
/// ```
/// use softclock_wire::packet::{Classifier, Filter, Headers};
///
/// let filters = ["dport 443", "port 1-1023", ""].map(|text| text.parse::<Filter>().unwrap());
/// let classifier = Classifier::new(&filters);
/// let first_match = |ports| {
///     let headers = Headers { ports: Some(ports), ..Headers::default() };
///     classifier.first_match(&headers)
/// };
/// assert_eq!(first_match((50_000, 443)), Some(0));
/// assert_eq!(first_match((80, 50_000)), Some(1));
/// assert_eq!(first_match((50_000, 50_001)), Some(2));
/// ```
#[derive(Clone, Debug)]
pub struct Classifier {
    /// The number of 64-bit words of a set of filters.
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
    /// Compiles these filters. They are numbered from 0 in their order.
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

    /// Returns the number of the first filter that [matches](Filter::matches) a packet with these headers.
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

/// The sets of the filters that accept a packet's values. There are two for each type of condition, and a filter must
/// be in one of them: conditions such as `port` accept either of two values.
#[derive(Default)]
struct Sets<'a> {
    pairs: [(&'a [u64], &'a [u64]); KINDS],
    count: usize,
}

impl<'a> Sets<'a> {
    /// Keeps only the filters that accept one of two values. `kind` is the condition's dimension.
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

    /// Returns one word of the intersection of all sets.
    fn intersection(&self, word: usize) -> u64 {
        let pairs = self.pairs[..self.count].iter();
        pairs.fold(u64::MAX, |met, (one, other)| {
            met & (one[word] | other[word])
        })
    }
}

/// The intervals of the values of one type of condition, each with the set of filters that accept it.
#[derive(Clone, Debug)]
struct Dimension<T> {
    words: usize,
    /// The first values of the intervals, ascending. Values below the first are in no filter's range.
    starts: Vec<T>,
    /// The sets of filters, one after the other: first the filters without a condition of this type, then for each
    /// interval those that accept it.
    sets: Vec<u64>,
}

impl<T: Copy + Ord + Successor> Dimension<T> {
    /// Compiles one type of condition. `range` returns the values that a filter accepts, or `None` for any.
    fn of(filters: &[&Filter], range: impl Fn(&Filter) -> Option<(T, T)>) -> Self {
        let words = words(filters.len());
        let ranges = || filters.iter().map(|filter| range(filter));
        // An interval begins at the first value of each range and after the last one.
        let ends = ranges().flatten();
        let mut starts: Vec<T> = ends
            .flat_map(|(first, last)| [Some(first), last.successor()])
            .flatten()
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let mut sets = vec![0; (starts.len() + 1) * words];
        for (number, range) in ranges().enumerate() {
            // The filter is in all sets from that of its first value to that of its last; set 0 is before the
            // intervals.
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
    /// Returns whether no filter has a condition of this type.
    const fn is_free(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns the set of the filters that accept this value, or a packet without a value.
    fn set_of(&self, value: Option<T>) -> &[u64] {
        let place = value.map_or(0, |value| {
            self.starts.partition_point(|start| *start <= value)
        });
        &self.sets[place * self.words..][..self.words]
    }
}

/// Values with a successor in their order; the largest has none.
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

/// In the order of [`IpAddr`], IPv6 addresses follow IPv4 addresses.
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

/// The number of 64-bit words of a set of this many filters.
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

/// The number of types of conditions.
const KINDS: usize = 9;

#[cfg(test)]
mod tests;
