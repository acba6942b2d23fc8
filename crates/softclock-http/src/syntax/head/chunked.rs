//! Chunked bodies.

use super::Step;
use super::class;
use super::fault::Fault;
use super::fields::Fields;
use super::length::MAX_BODY_BYTES;

/// A chunked body, as far as it was scanned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunked {
    part: Part,
    /// Whether white space may follow on a size.
    padded: bool,
    /// The size of the current chunk, then what is left of it.
    size: u64,
    /// Bytes of extensions and trailers so far: nobody reads them, so there should be few.
    extra: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// So many digits.
    Size(u8),
    /// So many blanks.
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

    /// As old servers write it: with sizes padded to a fixed width.
    pub(crate) fn padded() -> Self {
        Self {
            padded: true,
            ..Self::new()
        }
    }

    /// Whether the next bytes are content.
    pub(crate) fn is_in_data(&self) -> bool {
        self.part == Part::Data
    }

    /// Whether the next bytes are lines behind the last chunk.
    pub(crate) fn is_in_trailers(&self) -> bool {
        self.part == Part::Trailers
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.part == Part::Complete
    }

    /// Takes what belongs together; `bytes` is not empty. `trailers` are ready to be scanned.
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

/// Behind one size: nobody pads to more than the longest.
const MAX_PADDING: u8 = 16;

/// Of extensions and trailers of one body together.
const MAX_EXTRA_BYTES: usize = 8 << 10;
