//! Field lines: those of a head, and the trailers of a chunked body.

use super::authority::Authority;
use super::class::{self, TOKEN, Word};
use super::fault::Fault;
use super::length::append_digit;
use super::line::Version;

/// The state of scanning field lines, up to the empty line that ends them.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    section: Section,
    part: Part,
    /// The number of lines that may still follow.
    room: usize,
    /// The start of a name that continues in the next slice.
    name: Word<20>,
    value: Value,
    length: Option<u64>,
    chunked: bool,
    host: bool,
    upgrade: bool,
}

/// The section that the lines belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    Head(Version),
    Trailers,
}

/// The length of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Framing {
    Sized(u64),
    Chunked,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    LineStart,
    Name,
    Value,
    /// After the CR of a field line.
    LineEnd,
    /// After the CR of the empty line.
    End,
}

/// The state of the value being scanned.
#[derive(Clone, Copy, Debug)]
enum Value {
    Ignored,
    Length(Number),
    Coding(Trimmed<Word<8>>),
    Host(Trimmed<Authority>),
}

/// A decimal number in a value.
#[derive(Clone, Copy, Default, Debug)]
struct Number {
    value: u64,
    white: White,
}

/// A value that may be surrounded by white space.
#[derive(Clone, Copy, Default, Debug)]
struct Trimmed<T> {
    inner: T,
    white: White,
}

/// The position relative to a value and the white space around it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum White {
    #[default]
    Before,
    Inside,
    After,
}

impl Fields {
    /// Creates the state; call [`restart`](Self::restart) before use.
    pub(crate) fn new() -> Self {
        Self {
            section: Section::Trailers,
            part: Part::LineStart,
            room: 0,
            name: Word::default(),
            value: Value::Ignored,
            length: None,
            chunked: false,
            host: false,
            upgrade: false,
        }
    }

    /// Restarts for a section of at most `max` lines.
    pub(crate) fn restart(&mut self, section: Section, max: usize) {
        self.section = section;
        self.part = Part::LineStart;
        self.room = max;
        self.length = None;
        self.chunked = false;
        self.host = false;
        self.upgrade = false;
    }

    /// Scans field lines; returns the number of bytes that completed the section, or `None` if it continues after
    /// `bytes`.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at += match self.part {
                Part::LineStart => self.start_line(byte)?,
                Part::Name => self.in_name(&bytes[at..])?,
                Part::Value => self.in_value(&bytes[at..])?,
                Part::LineEnd if byte == b'\n' => {
                    self.part = Part::LineStart;
                    1
                }
                Part::End if byte == b'\n' => return Ok(Some(at + 1)),
                Part::LineEnd | Part::End => return Err(Fault::LineEnd),
            };
        }
        Ok(None)
    }

    /// Returns the length of the body when the head is complete.
    pub(super) fn framing(&self) -> Result<Framing, Fault> {
        let Section::Head(version) = self.section else {
            return Ok(Framing::Sized(0));
        };
        // HTTP/1.1 requires Host (RFC 9112, section 3.2).
        if version == Version::Http11 && !self.host {
            return Err(Fault::Host);
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Fault::LengthAndCoding),
            (true, None) => Ok(Framing::Chunked),
            (false, length) => Ok(Framing::Sized(length.unwrap_or(0))),
        }
    }

    /// Returns whether the head may ask for an upgrade: it is HTTP/1.1 and has an Upgrade field.
    pub(super) fn may_upgrade(&self) -> bool {
        self.upgrade && self.section == Section::Head(Version::Http11)
    }

    /// Consumes the first byte of a line, unless it belongs to a name.
    fn start_line(&mut self, byte: u8) -> Result<usize, Fault> {
        self.part = match byte {
            b'\r' => Part::End,
            b'\n' => return Err(Fault::LineEnd),
            b' ' | b'\t' => return Err(Fault::Folding),
            byte if class::is(byte, TOKEN) => {
                self.room = self.room.checked_sub(1).ok_or(Fault::TooManyFields)?;
                self.part = Part::Name;
                return Ok(0);
            }
            _ => return Err(Fault::Name),
        };
        Ok(1)
    }

    fn in_name(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let run = class::run(bytes, TOKEN);
        let name = &bytes[..run];
        match bytes.get(run) {
            None => {
                self.name.push(name);
                Ok(run)
            }
            Some(b':') => {
                // A name within one slice, as nearly all are, is compared without copying it.
                self.value = if self.name.is_empty() {
                    self.expected_value(name)?
                } else {
                    self.name.push(name);
                    let name = self.name;
                    self.name.clear();
                    self.expected_value(name.get().unwrap_or_default())?
                };
                self.part = Part::Value;
                Ok(run + 1)
            }
            Some(_) => Err(Fault::Name),
        }
    }

    /// Returns the scanner of a value by the name of its field, and refuses fields that may not occur here.
    fn expected_value(&mut self, name: &[u8]) -> Result<Value, Fault> {
        // Comparing lengths first rejects most names without reading them.
        let value = match name.len() {
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrade = true;
                return Ok(Value::Ignored);
            }
            4 if name.eq_ignore_ascii_case(b"host") => Value::Host(Trimmed::default()),
            14 if name.eq_ignore_ascii_case(b"content-length") => Value::Length(Number::default()),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                Value::Coding(Trimmed::default())
            }
            _ => return Ok(Value::Ignored),
        };
        // Fields that frame or route a message are not allowed as trailers (RFC 9110, section 6.5.1).
        let Section::Head(version) = self.section else {
            return Err(Fault::Trailer);
        };
        match value {
            Value::Length(_) if self.length.is_some() => Err(Fault::Length),
            Value::Coding(_) if self.chunked || version == Version::Http10 => Err(Fault::Coding),
            Value::Host(_) if self.host => Err(Fault::Host),
            value => Ok(value),
        }
    }

    fn in_value(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let run = class::value_run(bytes);
        self.value.push_all(&bytes[..run])?;
        match bytes.get(run) {
            None => Ok(run),
            Some(b'\r') => {
                self.on_value_end()?;
                self.part = Part::LineEnd;
                Ok(run + 1)
            }
            Some(b'\n') => Err(Fault::LineEnd),
            Some(_) => Err(Fault::Value),
        }
    }

    fn on_value_end(&mut self) -> Result<(), Fault> {
        match self.value {
            Value::Ignored => {}
            Value::Length(number) => self.length = Some(number.finish()?),
            Value::Coding(coding) => {
                is_chunked(&coding.inner)?;
                self.chunked = true;
            }
            // Clients of a target without a host must send an empty Host (RFC 9112, section 3.2).
            Value::Host(host) if host.inner.is_empty() || host.inner.is_complete() => {
                self.host = true;
            }
            Value::Host(_) => return Err(Fault::Host),
        }
        Ok(())
    }
}

impl Value {
    fn push_all(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        if matches!(self, Self::Ignored) {
            return Ok(());
        }
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = rest;
            self.push(byte)?;
            if let Self::Host(host) = self
                && host.white == White::Inside
            {
                // The rest of the host's name is scanned as a run, not byte by byte.
                bytes = &bytes[host.inner.push_run(bytes)..];
            }
        }
        Ok(())
    }

    fn push(&mut self, byte: u8) -> Result<(), Fault> {
        match self {
            Self::Ignored => Ok(()),
            Self::Length(number) => number.push(byte),
            Self::Coding(coding) => {
                if coding.white.takes(byte) {
                    coding.inner.push(&[byte]);
                } else if coding.white == White::After && !is_white(byte) {
                    // White space within the value is kept as one space, so that the value equals no known word.
                    coding.inner.push(&[b' ', byte]);
                    coding.white = White::Inside;
                }
                Ok(())
            }
            Self::Host(host) => match host.white.takes(byte) {
                true => host.inner.push(byte, Fault::Host),
                false if host.white == White::After && !is_white(byte) => Err(Fault::Host),
                false => Ok(()),
            },
        }
    }
}

impl White {
    /// Advances by `byte`; returns whether it belongs to the value.
    fn takes(&mut self, byte: u8) -> bool {
        *self = match (*self, is_white(byte)) {
            (Self::Before, true) => Self::Before,
            (Self::Before | Self::Inside, false) => Self::Inside,
            _ => Self::After,
        };
        *self == Self::Inside
    }
}

impl Number {
    fn push(&mut self, byte: u8) -> Result<(), Fault> {
        if !self.white.takes(byte) {
            return if is_white(byte) {
                Ok(())
            } else {
                Err(Fault::Length)
            };
        }
        self.value = append_digit(self.value, byte).ok_or(Fault::Length)?;
        Ok(())
    }

    fn finish(self) -> Result<u64, Fault> {
        match self.white {
            White::Before => Err(Fault::Length),
            White::Inside | White::After => Ok(self.value),
        }
    }
}

/// Checks a transfer coding. `chunked` must be the last and occur once (RFC 9112, section 6.1), so a list that starts
/// with it is wrong. Other codings are not supported.
fn is_chunked(coding: &Word<8>) -> Result<(), Fault> {
    match coding {
        coding if coding.is(b"chunked") => Ok(()),
        coding if coding.is_empty() || coding.starts_with(b"chunked") => Err(Fault::Coding),
        _ => Err(Fault::UnknownCoding),
    }
}

const fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
