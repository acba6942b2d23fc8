//! Heads of responses, and the framing of their bodies.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use http::{StatusCode, Version};
use httparse::{Error, Header, ParserConfig, Status};

use super::Fault;
use crate::syntax::head::parse_length;

/// The head of a response, without its fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    /// The reason phrase, if it is not the usual one of the status.
    pub reason: Option<Bytes>,
    /// HTTP/1.1 or HTTP/1.0.
    pub version: Version,
    /// The framing of the body.
    pub framing: Framing,
    /// Whether the connection persists after the response.
    pub(super) persists: bool,
}

/// The framing of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// This number of bytes; 0 if there is no body.
    Sized(u64),
    /// Chunked transfer coding.
    Chunked,
    /// The body ends with the connection.
    Close,
}

impl Head {
    /// Returns whether this is an interim response, which another response follows.
    pub(super) fn is_interim(&self) -> bool {
        self.status.is_informational() && self.status != StatusCode::SWITCHING_PROTOCOLS
    }
}

/// Parses the head at the start of `bytes`; returns it with its length, or `None` if it is incomplete. Replaces
/// `fields` by the fields of the head, without Transfer-Encoding and without lengths that do not apply; fields of
/// interim heads are ignored.
pub(super) fn parse(
    bytes: &[u8],
    is_head: bool,
    known: &mut Known,
    fields: &mut HeaderMap,
) -> Result<Option<(Head, usize)>, Fault> {
    // httparse would skip empty lines.
    if bytes.first().is_some_and(|&byte| byte != b'H') {
        return Err(Fault::StatusLine);
    }
    let mut headers = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let result = ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        bytes,
        &mut headers,
    );
    let length = match result.map_err(fault_of)? {
        Status::Complete(length) => length,
        Status::Partial => return Ok(None),
    };
    let status =
        StatusCode::from_u16(parsed.code.unwrap_or_default()).map_err(|_| Fault::StatusLine)?;
    let mut head = Head {
        status,
        reason: own_reason(status, parsed.reason),
        version: match parsed.version {
            Some(1) => Version::HTTP_11,
            _ => Version::HTTP_10,
        },
        framing: Framing::Sized(0),
        persists: false,
    };
    // Interim responses are not passed on, so their fields are not read.
    if !head.is_interim() {
        (head.framing, head.persists) = read_fields(
            &bytes[..length],
            parsed.headers,
            &head,
            is_head,
            known,
            fields,
        )?;
    }
    Ok(Some((head, length)))
}

fn read_fields(
    bytes: &[u8],
    headers: &[Header<'_>],
    head: &Head,
    is_head: bool,
    known: &mut Known,
    fields: &mut HeaderMap,
) -> Result<(Framing, bool), Fault> {
    fields.clear();
    fields.reserve(headers.len());
    let mut copy = LazyCopy::of(bytes);
    let mut length = None;
    let mut chunked = false;
    let mut connection = Connection::default();
    for (place, header) in headers.iter().enumerate() {
        let (name, value) = known.read(place, header, &mut copy)?;
        match name {
            TRANSFER_ENCODING => {
                if chunked || !header.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Fault::Coding);
                }
                chunked = true;
                continue;
            }
            CONTENT_LENGTH => match (length, parse_length(header.value)) {
                (None, Some(one)) => length = Some(one),
                // Repeated equal lengths count as one.
                (Some(first), Some(other)) if first == other => continue,
                _ => return Err(Fault::Length),
            },
            CONNECTION => connection.read(header.value),
            _ => {}
        }
        fields.append(name, value);
    }
    if copy.was_made() {
        known.on_copied(bytes.len());
    }
    if chunked && head.version == Version::HTTP_10 {
        return Err(Fault::Coding);
    }
    // A message with both may be an attempt at smuggling (RFC 9112, section 6.3).
    let has_both = chunked && fields.remove(CONTENT_LENGTH).is_some();
    // An upstream that announces content for this status may send it, perhaps after the head, so the connection is not
    // reused.
    let mut brings_content = false;
    if has_no_length(head.status) {
        fields.remove(CONTENT_LENGTH);
        brings_content = chunked || length.is_some_and(|bytes| bytes > 0);
    }
    let framing = match (chunked, length) {
        // Responses without a body, regardless of their fields.
        _ if is_head || has_no_body(head.status) => Framing::Sized(0),
        (true, _) => Framing::Chunked,
        (false, Some(length)) => Framing::Sized(length),
        (false, None) => Framing::Close,
    };
    // After 101 the connection carries another protocol.
    let goes_on = head.status != StatusCode::SWITCHING_PROTOCOLS && framing != Framing::Close;
    let persists = goes_on && !has_both && !brings_content && connection.persists(head.version);
    Ok((framing, persists))
}

/// The fields of the previous head. The heads of one upstream have much in common, and a field that is the same in the
/// same place is not validated again.
#[derive(Debug, Default)]
pub(super) struct Known {
    fields: Vec<KnownField>,
    /// The bytes of heads that the fields may keep in memory.
    pinned: usize,
}

#[derive(Debug)]
struct KnownField {
    /// The name as it was sent.
    spelling: Bytes,
    name: HeaderName,
    value: HeaderValue,
}

impl Known {
    fn read(
        &mut self,
        place: usize,
        header: &Header<'_>,
        copy: &mut LazyCopy<'_>,
    ) -> Result<(HeaderName, HeaderValue), Fault> {
        let spelling = header.name.as_bytes();
        let value_of = |copy: &mut LazyCopy<'_>| {
            let value = HeaderValue::from_maybe_shared(copy.slice(header.value));
            value.map_err(|_| Fault::Field)
        };
        match self.fields.get_mut(place) {
            // The name was validated when it was stored.
            Some(known) if known.spelling == spelling => {
                // Equal values share the stored one, without a copy.
                if known.value.as_bytes() != header.value {
                    known.value = value_of(copy)?;
                }
                Ok((known.name.clone(), known.value.clone()))
            }
            other => {
                let name = HeaderName::from_bytes(spelling).map_err(|_| Fault::Field)?;
                let value = value_of(copy)?;
                let field = KnownField {
                    spelling: copy.slice(spelling),
                    name: name.clone(),
                    value: value.clone(),
                };
                match other {
                    Some(other) => *other = field,
                    None => self.fields.push(field),
                }
                Ok((name, value))
            }
        }
    }

    /// Records that fields of a head of this length were stored. As it is not tracked which head each field belongs to,
    /// all fields are dropped when the heads since then may use too much memory.
    fn on_copied(&mut self, head_bytes: usize) {
        self.pinned += head_bytes;
        if self.pinned > KNOWN_BYTES {
            self.fields.clear();
            self.pinned = 0;
        }
    }
}

/// A copy of a head that its fields share, made when the first field needs it.
struct LazyCopy<'a> {
    bytes: &'a [u8],
    copy: Option<Bytes>,
}

impl<'a> LazyCopy<'a> {
    const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, copy: None }
    }

    const fn was_made(&self) -> bool {
        self.copy.is_some()
    }

    /// Returns a part of the head.
    fn slice(&mut self, part: &[u8]) -> Bytes {
        if part.is_empty() {
            return Bytes::new();
        }
        let bytes = self.bytes;
        let copy = self
            .copy
            .get_or_insert_with(|| Bytes::copy_from_slice(bytes));
        let start = part.as_ptr().addr() - bytes.as_ptr().addr();
        copy.slice(start..start + part.len())
    }
}

/// Returns the phrase if it is not the usual one of the status; an empty phrase counts as a different one.
fn own_reason(status: StatusCode, said: Option<&str>) -> Option<Bytes> {
    let said = said.unwrap_or_default();
    let is_own = status.canonical_reason() != Some(said);
    is_own.then(|| Bytes::copy_from_slice(said.as_bytes()))
}

/// Returns whether responses with this status have no body (RFC 9112, section 6.3).
fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status.as_u16(), 204 | 304)
}

/// Returns whether heads with this status have neither Content-Length nor Transfer-Encoding (RFC 9110, section 8.6; RFC
/// 9112, section 6.1). Responses to HEAD and with 304 may have a length: that of the body that is not sent.
fn has_no_length(status: StatusCode) -> bool {
    status.is_informational() || status == StatusCode::NO_CONTENT
}

/// The options in a head's Connection fields.
#[derive(Clone, Copy, Default)]
struct Connection {
    close: bool,
    keep_alive: bool,
}

impl Connection {
    fn read(&mut self, value: &[u8]) {
        for word in value.split(|&byte| byte == b',') {
            let word = word.trim_ascii();
            self.close |= word.eq_ignore_ascii_case(b"close");
            self.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn persists(self, version: Version) -> bool {
        !self.close && (self.keep_alive || version == Version::HTTP_11)
    }
}

fn fault_of(error: Error) -> Fault {
    match error {
        Error::Version | Error::Status => Fault::StatusLine,
        Error::TooManyHeaders => Fault::TooLong,
        _ => Fault::Field,
    }
}

/// The most field lines of a head.
const MAX_FIELDS: usize = 100;

/// A stored field keeps the whole head that it came with in memory, so fields of longer heads are not stored.
const KNOWN_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const FIELDS: usize = 90;
    const LINE: &str = "HTTP/1.1 200 OK\r\n";
    const NAME: &str = "x-00: ";
    const FIELD_BYTES: usize = NAME.len() + 30 + 2;

    /// Each head changes another field, so that each head is kept in memory by one field.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut known = Known::default();
        let mut fields = HeaderMap::new();
        let (mut most_heads, mut most_fields) = (0, 0);
        for turn in 0..1_000 {
            let value = |place| if place == turn % FIELDS { turn } else { place };
            let field = |place| format!("x-{place:02}: {:030}\r\n", value(place));
            let lines: String = (0..FIELDS).map(field).collect();
            let head = format!("{LINE}{lines}\r\n");
            let parsed = parse(head.as_bytes(), false, &mut known, &mut fields).unwrap();
            assert_eq!((fields.len(), parsed.unwrap().1), (FIELDS, head.len()));
            let start = |place, field: &KnownField| {
                let value = LINE.len() + place * FIELD_BYTES + NAME.len();
                field.value.as_bytes().as_ptr().addr() - value
            };
            let places = known.fields.iter().enumerate();
            let heads: HashSet<_> = places.map(|(place, field)| start(place, field)).collect();
            assert!(heads.len() * head.len() <= KNOWN_BYTES, "{}", heads.len());
            most_heads = most_heads.max(heads.len());
            most_fields = most_fields.max(known.fields.len());
        }
        assert_eq!((most_heads, most_fields), (4, FIELDS));
    }
}
