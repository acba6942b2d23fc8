//! Options of TCP.

/// An option of TCP, in scripts and in packets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TcpOption {
    /// `eol`: the end of the list.
    EndOfList,
    /// `nop`: padding.
    Nop,
    /// `mss N`: the longest payload that the sender takes (RFC 9293, 3.7.1).
    Mss(u16),
    /// `wscale N`: the shift of the sender's windows (RFC 7323, 2).
    WindowScale(u8),
    /// `sackOK`: the sender understands selective acknowledgments (RFC 2018, 2).
    SackPermitted,
    /// `sack A:B C:D`: the ranges that have arrived (RFC 2018, 3).
    Sack(Vec<(u32, u32)>),
    /// `TS val A ecr B`: the times of the sender (RFC 7323, 3).
    Timestamps {
        /// The clock of the sender.
        value: u32,
        /// The newest value from the other end.
        echo: u32,
    },
    /// Another kind.
    Other {
        /// The kind.
        kind: u8,
        /// The bytes behind kind and length.
        data: Vec<u8>,
    },
}

impl TcpOption {
    /// Whether the option only fills space, so that its place and number are the sender's choice.
    pub fn is_padding(&self) -> bool {
        matches!(self, Self::Nop | Self::EndOfList)
    }

    /// Appends the option's bytes.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let with_length = |out: &mut Vec<u8>, kind: u8, data: &[u8]| {
            // One that is too long for its length is too long for any header.
            out.extend([kind, (data.len() as u8).wrapping_add(2)]);
            out.extend(data);
        };
        match self {
            Self::EndOfList => out.push(0),
            Self::Nop => out.push(1),
            Self::Mss(mss) => with_length(out, 2, &mss.to_be_bytes()),
            Self::WindowScale(shift) => with_length(out, 3, &[*shift]),
            Self::SackPermitted => with_length(out, 4, &[]),
            Self::Sack(ranges) => {
                let data: Vec<u8> = ranges
                    .iter()
                    .flat_map(|(start, end)| [start.to_be_bytes(), end.to_be_bytes()])
                    .flatten()
                    .collect();
                with_length(out, 5, &data);
            }
            Self::Timestamps { value, echo } => {
                let data = [value.to_be_bytes(), echo.to_be_bytes()].concat();
                with_length(out, 8, &data);
            }
            Self::Other { kind, data } => with_length(out, *kind, data),
        }
    }

    /// Reads all options of a header.
    pub(super) fn read_all(mut bytes: &[u8]) -> Result<Vec<Self>, String> {
        let mut options = Vec::new();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                0 => {
                    options.push(Self::EndOfList);
                    bytes = rest;
                }
                1 => {
                    options.push(Self::Nop);
                    bytes = rest;
                }
                _ => {
                    let length = rest.first().map_or(0, |length| usize::from(*length));
                    let data = bytes
                        .get(2..length)
                        .ok_or_else(|| format!("option {kind} has length {length}"))?;
                    options.push(Self::read(kind, data)?);
                    bytes = bytes.get(length..).unwrap_or_default();
                }
            }
        }
        Ok(options)
    }

    fn read(kind: u8, data: &[u8]) -> Result<Self, String> {
        let word = |index: usize| {
            let bytes = data.get(index * 4..index * 4 + 4)?;
            bytes.try_into().ok().map(u32::from_be_bytes)
        };
        let option = match (kind, data) {
            (2, &[high, low]) => Some(Self::Mss(u16::from_be_bytes([high, low]))),
            (3, &[shift]) => Some(Self::WindowScale(shift)),
            (4, &[]) => Some(Self::SackPermitted),
            (5, _) if !data.is_empty() && data.len().is_multiple_of(8) => (0..data.len() / 8)
                .map(|index| Some((word(index * 2)?, word(index * 2 + 1)?)))
                .collect::<Option<_>>()
                .map(Self::Sack),
            (8, _) if data.len() == 8 => word(0)
                .zip(word(1))
                .map(|(value, echo)| Self::Timestamps { value, echo }),
            (2..=5 | 8, _) => None,
            _ => Some(Self::Other {
                kind,
                data: data.to_vec(),
            }),
        };
        option.ok_or_else(|| format!("option {kind} has length {}", data.len() + 2))
    }
}

impl std::fmt::Display for TcpOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::EndOfList => f.write_str("eol"),
            Self::Nop => f.write_str("nop"),
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::WindowScale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => f.write_str("sackOK"),
            Self::Sack(ranges) => {
                f.write_str("sack")?;
                ranges
                    .iter()
                    .try_for_each(|(start, end)| write!(f, " {start}:{end}"))
            }
            Self::Timestamps { value, echo } => write!(f, "TS val {value} ecr {echo}"),
            Self::Other { kind, data } => write!(f, "option {kind} with {} bytes", data.len()),
        }
    }
}
