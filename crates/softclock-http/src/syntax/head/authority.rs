//! Host and port, in a target or in Host.

use super::class::{self, HOST, LITERAL};
use super::fault::Fault;

/// A parser of `uri-host [ ":" port ]`, byte by byte. It refuses user names, which serve attacks, and percent-encoding,
/// which valid host names do not need.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Authority {
    part: Part,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Part {
    #[default]
    Start,
    Name,
    /// An IPv6 address, after this number of colons.
    Literal(u8),
    AfterLiteral,
    /// After this number of digits.
    Port(u8),
}

impl Authority {
    /// Consumes the bytes at the start of `bytes` that cannot change the state; returns their number.
    pub(super) fn push_run(&mut self, bytes: &[u8]) -> usize {
        let run = match self.part {
            Part::Start | Part::Name => class::run(bytes, HOST),
            Part::Literal(_) | Part::AfterLiteral | Part::Port(_) => 0,
        };
        if run > 0 {
            self.part = Part::Name;
        }
        run
    }

    pub(super) fn push(&mut self, byte: u8, fault: Fault) -> Result<(), Fault> {
        self.part = match (self.part, byte) {
            (Part::Start, b'[') => Part::Literal(0),
            (Part::Start | Part::Name, byte) if class::is(byte, HOST) => Part::Name,
            // An IPv6 address has at least two colons and at most eight.
            (Part::Literal(2..=8), b']') => Part::AfterLiteral,
            (Part::Literal(colons @ ..8), b':') => Part::Literal(colons + 1),
            (Part::Literal(colons), byte) if byte != b':' && class::is(byte, LITERAL) => {
                Part::Literal(colons)
            }
            (Part::Name | Part::AfterLiteral, b':') => Part::Port(0),
            (Part::Port(digits @ 0..5), b'0'..=b'9') => Part::Port(digits + 1),
            _ => return Err(fault),
        };
        Ok(())
    }

    pub(super) const fn is_empty(&self) -> bool {
        matches!(self.part, Part::Start)
    }

    /// Returns whether all of `text` is a valid authority.
    pub(super) fn is_valid(text: &[u8]) -> bool {
        let mut authority = Self::default();
        let mut bytes = text.iter();
        bytes.all(|&byte| authority.push(byte, Fault::Host).is_ok()) && authority.is_complete()
    }

    /// Returns whether the authority may end here.
    pub(super) const fn is_complete(&self) -> bool {
        !matches!(self.part, Part::Start | Part::Literal(_))
    }
}
