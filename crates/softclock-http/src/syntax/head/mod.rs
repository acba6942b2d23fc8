//! A strict scanner of HTTP/1 requests as bytes, for use in front of a parser.
//!
//! Request smuggling works because two parsers read the same bytes as different requests. So before a parser gets a
//! request, this scanner refuses everything that parsers are known to disagree about: lengths, line ends, white space,
//! names. It is a state machine over slices of any size, without allocation, I/O or a clock, and does a bounded amount
//! of work for each byte. It follows the framing of messages and so finds the next head by itself.
//!
//! | part | file |
//! |---|---|
//! | framing: heads, bodies, bytes that may be passed on | this one |
//! | request line (RFC 9112, section 3) | `line.rs` |
//! | field lines (section 5), lengths and codings (section 6) | `fields.rs` |
//! | lengths of bodies, for responses too | `length.rs` |
//! | host and port (section 3.2) | `authority.rs` |
//! | chunked bodies (section 7.1) | `chunked.rs` |
//! | classes of bytes | `class.rs` |
//! | reasons to refuse | `fault.rs` |
//! | requests of HTTP/2, by the same rules | `parsed.rs` |
//!
//! After a request for an upgrade the scanner stops ([`Position::Upgrade`]) until [`Scanner::resume`] is called, as the
//! bytes that follow are HTTP only if the upgrade is refused. It stops after each HTTP/1.1 head that has an Upgrade
//! field and no body, regardless of its other fields. A needless stop is cheap: it delays the scan of a pipelined
//! request until the response before it.
//!
//! It is stricter than RFC 9112 in these points: a line ends with CR LF, never with LF alone; no field is folded;
//! Content-Length occurs once, as even equal repetitions are refused; the only coding is `chunked`, and not together
//! with a length; no white space follows a chunk's size. One empty line before a request line is accepted, as section
//! 2.2 recommends.
//!
//! ```
//! use softclock_http::head::{Fault, HeadLimits, Scanner};
//!
//! let mut scanner = Scanner::new(HeadLimits::default());
//! let good = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
//! assert_eq!(scanner.scan(good).passed, good.len());
//!
//! let bad = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
//! assert_eq!(scanner.scan(bad).fault, Some(Fault::Length));
//! ```

mod authority;
mod chunked;
mod class;
mod fault;
mod fields;
mod length;
mod line;
mod parsed;

pub(crate) use chunked::Chunked;
pub use fault::Fault;
pub(crate) use fields::{Fields, Section};
pub(crate) use length::parse_length;
pub(crate) use parsed::{check_parsed, field_count, is_token};

use fields::Framing;
use line::RequestLine;

/// Limits of request heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadLimits {
    /// The most bytes of a request line, without its line end; a longer one gets 414.
    pub line_bytes: usize,
    /// The most bytes of a head, from its first byte to the end of its empty line; a longer one gets 431.
    pub head_bytes: usize,
    /// The most field lines of a head; more get 431.
    pub fields: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            line_bytes: 16 << 10,
            head_bytes: 64 << 10,
            fields: 100,
        }
    }
}

/// The result of a call of [`Scanner::scan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scanned {
    /// The number of bytes of the slice that may be passed on, after all bytes that were withheld from earlier slices.
    /// If it is zero, those stay withheld.
    pub passed: usize,
    /// The error for which no later bytes may be passed on.
    pub fault: Option<Fault>,
}

/// The position of a scanner in the stream of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// Before the first byte of a request.
    Between,
    /// Inside a head, no byte of which may be passed on yet.
    Head,
    /// Inside a body.
    Body,
    /// After a head that asks for an upgrade. Nothing is scanned until [`Scanner::resume`].
    Upgrade,
    /// After an error.
    Refused,
}

/// Scans the requests of one connection.
#[derive(Clone, Debug)]
pub struct Scanner {
    limits: HeadLimits,
    stage: Stage,
    /// The number of bytes of the current head so far.
    head_bytes: usize,
    line: RequestLine,
    /// The fields of the head, then the trailers.
    fields: Fields,
    /// Whether any request has had a body.
    had_body: bool,
    /// The number of complete heads, which wraps around.
    heads: u32,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Line,
    Fields,
    /// In a body, with this number of bytes left.
    Sized(u64),
    Chunked(Chunked),
    Upgrade,
    Refused {
        fault: Fault,
        in_body: bool,
    },
}

/// A run of bytes that were scanned together.
pub(crate) struct Step {
    pub(crate) consumed: usize,
    /// Whether they, and the bytes withheld before them, may be passed on.
    pass: bool,
}

impl Scanner {
    /// Creates a scanner at the start of a connection.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            stage: Stage::Line,
            head_bytes: 0,
            line: RequestLine::default(),
            fields: Fields::new(),
            had_body: false,
            heads: 0,
        }
    }

    /// Replaces the limits, between two requests.
    pub(crate) fn set_limits(&mut self, limits: HeadLimits) {
        self.limits = limits;
    }

    /// Returns whether any request so far had a body.
    pub(crate) const fn had_body(&self) -> bool {
        self.had_body
    }

    /// Returns the number of complete heads so far, which wraps around.
    pub(crate) const fn heads(&self) -> u32 {
        self.heads
    }

    /// Scans the bytes that follow those scanned before.
    ///
    /// A head is withheld until it is complete and valid, so that a parser gets only whole heads; so are the lines
    /// between the chunks of a body. Bytes after a request for an upgrade are not scanned; pass them again after
    /// [`resume`](Self::resume).
    pub fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut at = 0;
        let mut passed = 0;
        while at < bytes.len() && !matches!(self.stage, Stage::Upgrade) {
            match self.step(&bytes[at..]) {
                Ok(step) => {
                    at += step.consumed;
                    if step.pass {
                        passed = at;
                    }
                }
                Err(fault) => {
                    // In a body, the head was passed on before, so a response may have begun.
                    let in_body = matches!(self.stage, Stage::Chunked(_));
                    self.refuse(fault, in_body);
                    return Scanned {
                        passed,
                        fault: Some(fault),
                    };
                }
            }
        }
        Scanned {
            passed,
            fault: None,
        }
    }

    /// Continues after a request for an upgrade that was refused. Has no effect at other positions.
    pub fn resume(&mut self) {
        if matches!(self.stage, Stage::Upgrade) {
            self.start_head();
        }
    }

    /// Returns the current position.
    pub const fn position(&self) -> Position {
        match self.stage {
            Stage::Line if self.head_bytes == 0 => Position::Between,
            Stage::Line | Stage::Fields => Position::Head,
            Stage::Sized(_) | Stage::Chunked(_) => Position::Body,
            Stage::Upgrade => Position::Upgrade,
            Stage::Refused { .. } => Position::Refused,
        }
    }

    /// Returns whether no byte of a request line has arrived since the last request; an empty line may have.
    pub(crate) const fn awaits_request(&self) -> bool {
        matches!(self.stage, Stage::Line) && self.line.is_empty()
    }

    /// Returns whether the error is in the framing of a body, whose head was passed on already.
    pub const fn broke_in_body(&self) -> bool {
        matches!(self.stage, Stage::Refused { in_body: true, .. })
    }

    fn refuse(&mut self, fault: Fault, in_body: bool) {
        // The first fault stays: later slices report it again, with the same position.
        if !matches!(self.stage, Stage::Refused { .. }) {
            self.stage = Stage::Refused { fault, in_body };
        }
    }

    fn step(&mut self, bytes: &[u8]) -> Result<Step, Fault> {
        match &mut self.stage {
            Stage::Line => self.step_line(bytes),
            Stage::Fields => self.step_fields(bytes),
            Stage::Sized(left) => {
                let consumed = usize::try_from(*left).map_or(bytes.len(), |n| n.min(bytes.len()));
                *left -= consumed as u64;
                if *left == 0 {
                    self.start_head();
                }
                Ok(Step {
                    consumed,
                    pass: true,
                })
            }
            Stage::Chunked(chunked) => {
                let step = chunked.step(bytes, &mut self.fields)?;
                if chunked.is_complete() {
                    self.start_head();
                }
                Ok(step)
            }
            Stage::Upgrade => Ok(Step {
                consumed: 0,
                pass: false,
            }),
            Stage::Refused { fault, .. } => Err(*fault),
        }
    }

    fn step_line(&mut self, bytes: &[u8]) -> Result<Step, Fault> {
        let max = self.limits.line_bytes + LINE_END;
        let room = max - self.line.bytes();
        // No more than the limit is scanned, which bounds the work for an overlong line.
        let offered = &bytes[..bytes.len().min(room)];
        match self.line.scan(offered)? {
            Some(consumed) => {
                let section = Section::Head(self.line.version());
                self.fields.restart(section, self.limits.fields);
                self.stage = Stage::Fields;
                self.in_head(consumed)
            }
            // The count excludes an empty line before the request line.
            None if self.line.bytes() == max => Err(Fault::LineTooLong),
            None => self.in_head(offered.len()),
        }
    }

    fn step_fields(&mut self, bytes: &[u8]) -> Result<Step, Fault> {
        let room = self.limits.head_bytes.saturating_sub(self.head_bytes);
        let offered = &bytes[..bytes.len().min(room)];
        match self.fields.scan(offered)? {
            Some(consumed) => {
                let framing = self.fields.framing()?;
                self.heads = self.heads.wrapping_add(1);
                self.had_body |= framing != Framing::Sized(0);
                match framing {
                    // The bytes after this head may belong to another protocol.
                    Framing::Sized(0) if self.fields.may_upgrade() => self.stage = Stage::Upgrade,
                    Framing::Sized(0) => self.start_head(),
                    Framing::Sized(length) => self.stage = Stage::Sized(length),
                    Framing::Chunked => {
                        self.fields.restart(Section::Trailers, self.limits.fields);
                        self.stage = Stage::Chunked(Chunked::new());
                    }
                }
                Ok(Step {
                    consumed,
                    pass: true,
                })
            }
            // The head has reached the limit and is still incomplete.
            None if offered.len() == room => Err(Fault::HeadTooLong),
            None => self.in_head(offered.len()),
        }
    }

    fn in_head(&mut self, consumed: usize) -> Result<Step, Fault> {
        self.head_bytes += consumed;
        Ok(Step {
            consumed,
            pass: false,
        })
    }

    fn start_head(&mut self) {
        self.stage = Stage::Line;
        self.line.restart();
        self.head_bytes = 0;
    }
}

const LINE_END: usize = b"\r\n".len();
