//! The request line, and the empty line that may precede it.

use super::authority::Authority;
use super::class::{self, PATH, QUERY, TOKEN, Word};
use super::fault::Fault;

/// The state of scanning a request line.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestLine {
    part: Part,
    method: Word<8>,
    /// The number of bytes of the line itself.
    bytes: usize,
    version: Version,
}

/// The supported versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Version {
    Http10,
    #[default]
    Http11,
}

#[derive(Clone, Copy, Debug, Default)]
enum Part {
    #[default]
    Start,
    /// After the CR of an empty line.
    Empty,
    /// After an empty line; a second one is refused.
    AfterEmpty,
    Method,
    Target(Target),
    /// After this number of valid bytes of the version.
    Version(usize),
    End,
}

/// The position within a target of any form.
#[derive(Clone, Copy, Debug)]
enum Target {
    Start,
    Asterisk,
    Path,
    Query,
    /// After this number of letters of `https`.
    Scheme(u8),
    /// After this number of slashes behind the scheme.
    Slashes(u8),
    /// In the authority of a CONNECT, or of a target with a scheme.
    Authority(Authority, Form),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Absolute,
    Connect,
}

impl RequestLine {
    /// Returns to the start, without clearing parts that are overwritten anyway.
    pub(super) fn restart(&mut self) {
        self.part = Part::Start;
        self.method.clear();
        self.bytes = 0;
        self.version = Version::Http11;
    }

    /// Returns the number of bytes of the line so far.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether nothing or only the empty line, or a part of it, was scanned.
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self.part, Part::Start | Part::Empty | Part::AfterEmpty)
    }

    /// Returns the version when the line is complete.
    pub(super) const fn version(&self) -> Version {
        self.version
    }

    /// Scans the line; returns the number of bytes that completed it, or `None` if it continues after `bytes`.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            // Nearly all requests end with this, so it is compared at once.
            if matches!(self.part, Part::Version(0)) && bytes[at..].starts_with(COMMON_END) {
                self.bytes += COMMON_END.len();
                return Ok(Some(at + COMMON_END.len()));
            }
            // Within these parts most bytes change nothing, so they are scanned as runs.
            let run = match self.part {
                Part::Method => class::run(&bytes[at..], TOKEN),
                Part::Target(Target::Path) => class::run(&bytes[at..], PATH),
                Part::Target(Target::Query) => class::run(&bytes[at..], QUERY),
                _ => 0,
            };
            if run > 0 {
                if matches!(self.part, Part::Method) {
                    self.method.push(&bytes[at..at + run]);
                }
                self.bytes += run;
                at += run;
                continue;
            }
            at += 1;
            if self.step(byte)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Checks a target by itself, for HTTP/2, whose requests have no request line.
    pub(super) fn check_target(method: &[u8], target: &[u8]) -> Result<(), Fault> {
        let mut line = Self {
            part: Part::Target(Target::Start),
            ..Self::default()
        };
        line.method.push(method);
        line.scan(target)?;
        match line.part {
            Part::Target(target) if line.ends_here(&target) => Ok(()),
            _ => Err(Fault::Target),
        }
    }

    /// Consumes one byte; returns true if it completed the line.
    fn step(&mut self, byte: u8) -> Result<bool, Fault> {
        self.bytes += 1;
        self.part = match (self.part, byte) {
            (Part::Start, b'\r') => Part::Empty,
            (Part::Empty, b'\n') => {
                // The empty line does not count towards the limit.
                self.bytes = 0;
                Part::AfterEmpty
            }
            (Part::Start | Part::Empty | Part::AfterEmpty, b'\r' | b'\n') => {
                return Err(Fault::LineEnd);
            }
            (Part::Empty, _) => return Err(Fault::LineEnd),
            (Part::Start | Part::AfterEmpty, byte) if class::is(byte, TOKEN) => {
                self.method.push(&[byte]);
                Part::Method
            }
            (Part::Method, b' ') => Part::Target(Target::Start),
            (Part::Start | Part::AfterEmpty | Part::Method, _) => return Err(Fault::Method),
            (Part::Target(target), b' ') if self.ends_here(&target) => Part::Version(0),
            (Part::Target(target), byte) => Part::Target(self.in_target(target, byte)?),
            (Part::Version(place), byte) => self.in_version(place, byte)?,
            (Part::End, b'\n') => return Ok(true),
            (Part::End, _) => return Err(Fault::LineEnd),
        };
        Ok(false)
    }

    fn in_target(&self, target: Target, byte: u8) -> Result<Target, Fault> {
        let connect = self.method.is(b"CONNECT");
        Ok(match (target, byte) {
            // A request without a version is HTTP/0.9.
            (_, b'\r' | b'\n') => return Err(Fault::Version),
            // The target of CONNECT has a form of its own, so its method decides before the first byte.
            (Target::Start, byte) if connect => {
                Target::Authority(Authority::default(), Form::Connect).in_authority(byte)?
            }
            (Target::Start, b'/') => Target::Path,
            (Target::Start, b'*') if self.method.is(b"OPTIONS") => Target::Asterisk,
            (Target::Path, b'?') => Target::Query,
            (Target::Start, byte) => Target::Scheme(0).in_scheme(byte)?,
            (Target::Scheme(_), byte) => target.in_scheme(byte)?,
            (Target::Slashes(0), b'/') => Target::Slashes(1),
            (Target::Slashes(1), b'/') => Target::Authority(Authority::default(), Form::Absolute),
            (Target::Authority(..), byte) => target.in_authority(byte)?,
            _ => return Err(Fault::Target),
        })
    }

    fn ends_here(&self, target: &Target) -> bool {
        match target {
            Target::Asterisk | Target::Path | Target::Query => true,
            Target::Authority(authority, _) => authority.is_complete(),
            Target::Start | Target::Scheme(_) | Target::Slashes(_) => false,
        }
    }

    fn in_version(&mut self, place: usize, byte: u8) -> Result<Part, Fault> {
        const NAME: &[u8] = b"HTTP/";
        match (place, byte) {
            (0..5, byte) if byte == NAME[place] => {}
            (5, b'1') | (6, b'.') | (7, b'1') => {}
            (7, b'0') => self.version = Version::Http10,
            // Another version is well-formed, so the response is 505, not 400.
            (5 | 7, b'0'..=b'9') => return Err(Fault::UnsupportedVersion),
            (8, b'\r') => return Ok(Part::End),
            (8, b'\n') => return Err(Fault::LineEnd),
            _ => return Err(Fault::Version),
        }
        Ok(Part::Version(place + 1))
    }
}

impl Target {
    fn in_scheme(self, byte: u8) -> Result<Self, Fault> {
        const SCHEME: &[u8] = b"https";
        let Self::Scheme(letters) = self else {
            return Err(Fault::Target);
        };
        match byte {
            b':' if letters >= 4 => Ok(Self::Slashes(0)),
            byte if SCHEME.get(usize::from(letters)) == Some(&byte.to_ascii_lowercase()) => {
                Ok(Self::Scheme(letters + 1))
            }
            _ => Err(Fault::Target),
        }
    }

    fn in_authority(self, byte: u8) -> Result<Self, Fault> {
        let Self::Authority(mut authority, form) = self else {
            return Err(Fault::Target);
        };
        match byte {
            b'/' if form == Form::Absolute && authority.is_complete() => Ok(Self::Path),
            b'?' if form == Form::Absolute && authority.is_complete() => Ok(Self::Query),
            byte => {
                authority.push(byte, Fault::Target)?;
                Ok(Self::Authority(authority, form))
            }
        }
    }
}

const COMMON_END: &[u8] = b"HTTP/1.1\r\n";
