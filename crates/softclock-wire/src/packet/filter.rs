//! Filters on the headers of packets, and their notation.

use core::fmt;
use core::net::IpAddr;
use core::ops::RangeInclusive;
use core::str::FromStr;

use alloc::string::{String, ToString};

use super::{Headers, ICMP, ICMPV6, SCTP, TCP, UDP};

/// A set of conditions, all of which the headers of a packet must meet.
///
/// It is written as pairs of a name and a value, separated by white space. An empty filter matches every packet.
///
/// | name | value | matches |
/// |---|---|---|
/// | `src`, `dst`, `host` | `10.0.0.0/8`, `2001:db8::/32`, an address | the source address, the destination's, either |
/// | `sport`, `dport`, `port` | `80`, `8000-8080` | the source port, the destination's, either |
/// | `proto` | `tcp`, `udp`, `icmp`, `icmpv6`, `sctp`, a number | the protocol that IP carries |
/// | `dscp` | `ef`, `cs0` to `cs7`, `af11` to `af43`, 0 to 63 | the class of service of IP |
/// | `vlan` | 0 to 4095 | the outermost VLAN |
///
/// Fragments other than the first have no ports, so conditions on ports do not match them.
///
/// # Example
/// ```
/// use softclock_wire::packet::{Filter, Headers, TCP};
///
/// let web: Filter = "proto tcp port 80-443".parse()?;
/// let mut headers = Headers { protocol: Some(TCP), ports: Some((50_000, 443)), ..Headers::default() };
/// assert!(web.matches(&headers));
/// headers.ports = Some((50_000, 8080));
/// assert!(!web.matches(&headers));
/// # Ok::<(), softclock_wire::packet::FilterError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    pub(super) source: Option<Prefix>,
    pub(super) destination: Option<Prefix>,
    pub(super) either: Option<Prefix>,
    pub(super) source_port: Option<Ports>,
    pub(super) destination_port: Option<Ports>,
    pub(super) either_port: Option<Ports>,
    pub(super) protocol: Option<u8>,
    pub(super) dscp: Option<u8>,
    pub(super) vlan: Option<u16>,
}

pub(super) type Ports = RangeInclusive<u16>;

/// An address prefix, such as 10.0.0.0/8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    address: IpAddr,
    bits: u32,
}

/// The error of parsing a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FilterError {
    /// No condition has this name.
    UnknownName(String),
    /// The last name has no value.
    NoValue(String),
    /// The name is given twice.
    Repeated(String),
    /// The value is not valid for this condition.
    BadValue {
        /// The name of the condition.
        name: String,
        /// The invalid value.
        value: String,
        /// A description of valid values.
        expected: &'static str,
    },
}

impl Filter {
    /// Returns whether a packet with these headers meets all conditions.
    pub fn matches(&self, headers: &Headers) -> bool {
        let source = headers.addresses.map(|(source, _)| source);
        let destination = headers.addresses.map(|(_, destination)| destination);
        let from = headers.ports.map(|(from, _)| from);
        let to = headers.ports.map(|(_, to)| to);
        let ip = headers.addresses.is_some();
        meets(&self.source, |prefix| prefix.holds(source))
            && meets(&self.destination, |prefix| prefix.holds(destination))
            && meets(&self.either, |prefix| {
                prefix.holds(source) || prefix.holds(destination)
            })
            && meets(&self.source_port, |ports| within(ports, from))
            && meets(&self.destination_port, |ports| within(ports, to))
            && meets(&self.either_port, |ports| {
                within(ports, from) || within(ports, to)
            })
            && meets(&self.protocol, |&protocol| {
                headers.protocol == Some(protocol)
            })
            && meets(&self.dscp, |&dscp| ip && headers.dscp == dscp)
            && meets(&self.vlan, |&vlan| headers.vlan == Some(vlan))
    }

    /// Adds the condition `name value`. Returns false if no condition has this name.
    ///
    /// # Errors
    /// Returns [`FilterError::BadValue`] if the value is not valid for the condition, and [`FilterError::Repeated`] if
    /// the filter has the condition already.
    pub fn add(&mut self, name: &str, value: &str) -> Result<bool, FilterError> {
        match name {
            "src" => set(&mut self.source, name, value, PREFIX, Prefix::parse)?,
            "dst" => set(&mut self.destination, name, value, PREFIX, Prefix::parse)?,
            "host" => set(&mut self.either, name, value, PREFIX, Prefix::parse)?,
            "sport" => set(&mut self.source_port, name, value, PORTS, parse_ports)?,
            "dport" => set(&mut self.destination_port, name, value, PORTS, parse_ports)?,
            "port" => set(&mut self.either_port, name, value, PORTS, parse_ports)?,
            "proto" => set(&mut self.protocol, name, value, PROTOCOL, parse_protocol)?,
            "dscp" => set(&mut self.dscp, name, value, DSCP, parse_dscp)?,
            "vlan" => set(&mut self.vlan, name, value, VLAN, |text| {
                text.parse().ok().filter(|&vlan| vlan < 4096)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        let mut words = text.split_whitespace();
        while let Some(name) = words.next() {
            let Some(value) = words.next() else {
                return Err(match Self::default().add(name, "") {
                    Ok(false) => FilterError::UnknownName(name.to_string()),
                    _ => FilterError::NoValue(name.to_string()),
                });
            };
            if !filter.add(name, value)? {
                return Err(FilterError::UnknownName(name.to_string()));
            }
        }
        Ok(filter)
    }
}

fn meets<T>(condition: &Option<T>, met: impl FnOnce(&T) -> bool) -> bool {
    condition.as_ref().is_none_or(met)
}

fn within(ports: &Ports, port: Option<u16>) -> bool {
    port.is_some_and(|port| ports.contains(&port))
}

/// Parses the value of a condition and stores it in `place`.
fn set<T>(
    place: &mut Option<T>,
    name: &str,
    value: &str,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<(), FilterError> {
    if place.is_some() {
        return Err(FilterError::Repeated(name.to_string()));
    }
    *place = parse(value);
    if place.is_none() {
        return Err(FilterError::BadValue {
            name: name.to_string(),
            value: value.to_string(),
            expected,
        });
    }
    Ok(())
}

impl Prefix {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|&bits| bits <= most)?,
            None => most,
        };
        Some(Self { address, bits })
    }

    /// The first and the last address of the prefix.
    pub(super) fn range(self) -> (IpAddr, IpAddr) {
        match self.address {
            IpAddr::V4(address) => {
                let others = u32::MAX.checked_shr(self.bits).unwrap_or(0);
                let first = address.to_bits() & !others;
                (
                    IpAddr::V4(first.into()),
                    IpAddr::V4((first | others).into()),
                )
            }
            IpAddr::V6(address) => {
                let others = u128::MAX.checked_shr(self.bits).unwrap_or(0);
                let first = address.to_bits() & !others;
                (
                    IpAddr::V6(first.into()),
                    IpAddr::V6((first | others).into()),
                )
            }
        }
    }

    fn holds(&self, address: Option<IpAddr>) -> bool {
        match (self.address, address) {
            (IpAddr::V4(prefix), Some(IpAddr::V4(address))) => {
                let different = prefix.to_bits() ^ address.to_bits();
                different.checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(prefix), Some(IpAddr::V6(address))) => {
                let different = prefix.to_bits() ^ address.to_bits();
                different.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

fn parse_ports(text: &str) -> Option<Ports> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let ports = first.parse().ok()?..=last.parse().ok()?;
    (!ports.is_empty()).then_some(ports)
}

fn parse_protocol(text: &str) -> Option<u8> {
    match text {
        "tcp" => Some(TCP),
        "udp" => Some(UDP),
        "icmp" => Some(ICMP),
        "icmpv6" | "icmp6" => Some(ICMPV6),
        "sctp" => Some(SCTP),
        number => number.parse().ok(),
    }
}

/// Parses a class of service: the names of RFC 2474, 2597 and 3246, or a number.
fn parse_dscp(text: &str) -> Option<u8> {
    let digit = |at: usize| {
        let digit = text.as_bytes().get(at)?;
        digit.is_ascii_digit().then(|| digit - b'0')
    };
    let value = match text {
        "ef" => 46,
        _ if text.starts_with("cs") && text.len() == 3 => digit(2).filter(|&class| class < 8)? * 8,
        _ if text.starts_with("af") && text.len() == 4 => {
            let class = digit(2).filter(|class| (1..=4).contains(class))?;
            class * 8 + digit(3).filter(|drop| (1..=3).contains(drop))? * 2
        }
        number => number.parse().ok()?,
    };
    (value < 64).then_some(value)
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(name) => write!(
                f,
                "'{name}' is not a condition; use src, dst, host, sport, dport, port, proto, dscp or vlan"
            ),
            Self::NoValue(name) => write!(f, "'{name}' stands without a value"),
            Self::Repeated(name) => write!(f, "'{name}' is given twice"),
            Self::BadValue {
                name,
                value,
                expected,
            } => write!(f, "{name} '{value}': {expected}"),
        }
    }
}

impl core::error::Error for FilterError {}

const PREFIX: &str = "an address or a prefix, such as 10.0.0.0/8 or 2001:db8::/32, is expected";
const PORTS: &str = "a port or a range, such as 80 or 8000-8080, is expected";
const PROTOCOL: &str = "tcp, udp, icmp, icmpv6, sctp or a number up to 255 is expected";
const DSCP: &str = "ef, cs0 to cs7, af11 to af43 or a number up to 63 is expected";
const VLAN: &str = "a number from 0 to 4095 is expected";
