//! Chunked bodies.

use super::Step;
use super::class;
use super::fault::Fault;
use super::fields::Fields;
use super::length::MAX_BODY_BYTES;

/// The state of scanning a chunked body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunked {
    part: Part,
    /// Whether white space may follow a size.
    padded: bool,
    /// The size of the current chunk; within the chunk, the bytes left of it.
    size: u64,
    /// Bytes of extensions and trailers so far. Servers ignore most of them, so they are limited.
    extra: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// After this number of digits.
    Size(u8),
    /// After this number of blanks.
    Padding(u8),
    Extension,
    SizeEnd,
    Data,
    DataEnd,
    DataEndLine,
    Trailers,
    Complete,
}

impl Chunked {
    pub(crate) fn new() -> Self {
        Self {
            part: Part::Size(0),
            padded: false,
            size: 0,
            extra: 0,
        }
    }

    /// Creates a scanner that also accepts sizes padded with blanks to a fixed width, as old servers send them.
    pub(crate) fn padded() -> Self {
        Self {
            padded: true,
            ..Self::new()
        }
    }

    /// Returns whether the next bytes are content.
    pub(crate) fn is_in_data(&self) -> bool {
        self.part == Part::Data
    }

    /// Returns whether the next bytes are trailers, after the last chunk.
    pub(crate) fn is_in_trailers(&self) -> bool {
        self.part == Part::Trailers
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.part == Part::Complete
    }

    /// Consumes a run of bytes in the same state. `bytes` must not be empty, and `trailers` must be ready to be
    /// scanned.
    pub(crate) fn step(&mut self, bytes: &[u8], trailers: &mut Fields) -> Result<Step, Fault> {
        let consumed = match self.part {
            Part::Data => {
                let n = usize::try_from(self.size).map_or(bytes.len(), |n| n.min(bytes.len()));
                self.size -= n as u64;
                if self.size == 0 {
                    self.part = Part::DataEnd;
                }
                return Ok(Step {
                    consumed: n,
                    pass: true,
                });
            }
            // Only content, and the end of the body, may be passed on by itself: framing is withheld until its line is
            // complete.
            Part::Extension => self.in_extension(bytes)?,
            Part::Trailers => self.in_trailers(bytes, trailers)?,
            _ => {
                self.part = self.next(bytes[0])?;
                1
            }
        };
        Ok(Step {
            consumed,
            pass: matches!(self.part, Part::Data | Part::Complete),
        })
    }

    fn next(&mut self, byte: u8) -> Result<Part, Fault> {
        Ok(match (self.part, byte) {
            (Part::Size(digits), byte) if byte.is_ascii_hexdigit() => {
                self.push_digit(byte)?;
                Part::Size(
                    digits
                        .checked_add(1)
                        .filter(|&n| n <= 16)
                        .ok_or(Fault::Chunk)?,
                )
            }
            (Part::Size(1..) | Part::Padding(_), b'\r') => Part::SizeEnd,
            (Part::Size(1..) | Part::Padding(_), b';') => Part::Extension,
            (Part::Size(1..), b' ' | b'\t') if self.padded => Part::Padding(1),
            (Part::Padding(blanks @ ..MAX_PADDING), b' ' | b'\t') => Part::Padding(blanks + 1),
            // The last chunk has size 0 and no data.
            (Part::SizeEnd, b'\n') if self.size == 0 => Part::Trailers,
            (Part::SizeEnd, b'\n') => Part::Data,
            (Part::DataEnd, b'\r') => Part::DataEndLine,
            (Part::DataEndLine, b'\n') => Part::Size(0),
            _ => return Err(Fault::Chunk),
        })
    }

    fn push_digit(&mut self, byte: u8) -> Result<(), Fault> {
        let digit = (byte as char).to_digit(16).ok_or(Fault::Chunk)?;
        let size = self.size.checked_mul(16).ok_or(Fault::Chunk)? + u64::from(digit);
        self.size = Some(size)
            .filter(|&size| size <= MAX_BODY_BYTES)
            .ok_or(Fault::Chunk)?;
        Ok(())
    }

    fn in_extension(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let run = class::value_run(bytes);
        self.spend(run)?;
        match bytes.get(run) {
            None => Ok(run),
            Some(b'\r') => {
                self.part = Part::SizeEnd;
                Ok(run + 1)
            }
            Some(_) => Err(Fault::Chunk),
        }
    }

    fn in_trailers(&mut self, bytes: &[u8], trailers: &mut Fields) -> Result<usize, Fault> {
        let offered = &bytes[..bytes.len().min(MAX_EXTRA_BYTES - self.extra)];
        match trailers.scan(offered)? {
            Some(consumed) => {
                self.part = Part::Complete;
                Ok(consumed)
            }
            None => {
                self.spend(offered.len())?;
                Ok(offered.len())
            }
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Fault> {
        self.extra += bytes;
        if self.extra >= MAX_EXTRA_BYTES {
            return Err(Fault::Trailer);
        }
        Ok(())
    }
}

/// The most blanks after one size: sizes have at most 16 digits, so none is padded by more.
const MAX_PADDING: u8 = 16;

/// The most bytes of extensions and trailers of a body together.
const MAX_EXTRA_BYTES: usize = 8 << 10;
