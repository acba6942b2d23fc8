//! Field lines: those of a head, and the trailers of a chunked body.

use super::authority::Authority;
use super::class::{self, TOKEN, Word};
use super::fault::Fault;
use super::length::append_digit;
use super::line::Version;

/// Field lines, as far as they were scanned, to the empty line that ends them.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    section: Section,
    part: Part,
    /// Lines that may still come.
    room: usize,
    /// The start of a name whose rest is in another slice.
    name: Word<20>,
    value: Value,
    length: Option<u64>,
    chunked: bool,
    host: bool,
    upgrade: bool,
}

/// Where the lines are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    Head(Version),
    Trailers,
}

/// How long the body is.
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
    /// The CR of a field line was seen.
    LineEnd,
    /// The CR of the empty line was seen.
    End,
}

/// What is kept of the value being scanned.
#[derive(Clone, Copy, Debug)]
enum Value {
    Ignored,
    Length(Number),
    Coding(Trimmed<Word<8>>),
    Host(Trimmed<Authority>),
}

/// Digits.
#[derive(Clone, Copy, Default, Debug)]
struct Number {
    value: u64,
    white: White,
}

/// A value that white space may surround.
#[derive(Clone, Copy, Default, Debug)]
struct Trimmed<T> {
    inner: T,
    white: White,
}

/// Where white space is in relation to a value.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum White {
    #[default]
    Before,
    Inside,
    After,
}

impl Fields {
    /// To be [restarted](Self::restart) before use.
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

    /// Before a section of at most `max` lines.
    pub(crate) fn restart(&mut self, section: Section, max: usize) {
        self.section = section;
        self.part = Part::LineStart;
        self.room = max;
        self.length = None;
        self.chunked = false;
        self.host = false;
        self.upgrade = false;
    }

    /// How many bytes completed the section; `None` if it goes on behind them.
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

    /// How long the body is, once the head is complete.
    pub(super) fn framing(&self) -> Result<Framing, Fault> {
        let Section::Head(version) = self.section else {
            return Ok(Framing::Sized(0));
        };
        if version == Version::Http11 && !self.host {
            return Err(Fault::Host);
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Fault::LengthAndCoding),
            (true, None) => Ok(Framing::Chunked),
            (false, length) => Ok(Framing::Sized(length.unwrap_or(0))),
        }
    }

    /// Returns whether the head may ask for an upgrade: it is HTTP/1.1, and has an Upgrade field.
    pub(super) fn may_upgrade(&self) -> bool {
        self.upgrade && self.section == Section::Head(Version::Http11)
    }

    /// Takes the first byte of a line, unless it is that of a name.
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

    /// Decides by the name what its value must be.
    fn expected_value(&mut self, name: &[u8]) -> Result<Value, Fault> {
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
            // An empty Host is what a client without a host must send.
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
                    // Kept as one space, with which it is no word that is known.
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
    /// Whether this byte belongs to the value; moves on.
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

/// RFC 9112, section 6.1: `chunked` comes last and once, so a list that starts with it is wrong. Others are codings
/// that we lack.
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
