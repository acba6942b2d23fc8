//! Requests, as they are written for an upstream.

use http::Version;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE, UPGRADE, VIA,
};

use super::{Named, has_token, is_hop_by_hop, may_be_trailer, passed};
use crate::syntax::head::{is_token, parse_length};

/// What is known of a request beside its fields.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Received<'a> {
    pub(in crate::proxy) version: Version,
    /// What is appended to Via.
    pub(in crate::proxy) via: &'a [u8],
    /// From which address; nothing of a process of this machine.
    pub(in crate::proxy) peer: Option<&'a HeaderValue>,
    /// Whether it came through TLS.
    pub(in crate::proxy) secure: bool,
    /// The host in the target, which counts more than the field.
    pub(in crate::proxy) authority: Option<&'a str>,
    pub(in crate::proxy) length: Length,
    /// What the client [wants](wanted_upgrade) to change to.
    pub(in crate::proxy) upgrade: Option<&'a HeaderValue>,
}

/// How long a request's body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::proxy) enum Length {
    /// There is none.
    None,
    Sized(u64),
    /// It is not known before.
    Chunked,
}

/// What an upstream is called itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Host<'a> {
    pub(in crate::proxy) upstream: &'a HeaderValue,
    /// Whether it is told that in place of what the client asked for.
    pub(in crate::proxy) is_rewritten: bool,
}

/// Content-Length can be read in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct Ambiguous;

/// How long the body of a request is, if it `has_body`.
///
/// # Errors
/// [`Ambiguous`].
pub(in crate::proxy) fn length_of(
    headers: &HeaderMap,
    has_body: bool,
) -> Result<Length, Ambiguous> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => None,
        (Some(one), None) => Some(parse_length(one.as_bytes()).ok_or(Ambiguous)?),
        _ => return Err(Ambiguous),
    };
    match (has_body, length) {
        (true, Some(bytes)) => Ok(Length::Sized(bytes)),
        (true, None) => Ok(Length::Chunked),
        (false, None | Some(0)) => Ok(Length::None),
        (false, Some(_)) => Err(Ambiguous),
    }
}

/// What the client of a request wants to change to, if that can be passed on. An upgrade to HTTP/2 would be one past
/// us: what comes behind it would not be looked at.
pub(in crate::proxy) fn wanted_upgrade(
    headers: &HeaderMap,
    version: Version,
    length: Length,
) -> Option<&HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    let possible = version == Version::HTTP_11 && length == Length::None;
    let refused = has_token(headers, &UPGRADE, "h2c");
    (possible && !refused && has_token(headers, &CONNECTION, "upgrade")).then_some(protocol)
}

/// Writes the fields of a request for an upstream, and the line that ends them.
pub(in crate::proxy) fn write_request(
    head: &mut Vec<u8>,
    headers: &HeaderMap,
    received: &Received<'_>,
    host: Host<'_>,
) {
    // Most requests have nothing that needs a look, and lookups cost more than all the rest.
    let needs_look = |name: &str| is_hop_by_hop(name) || is_written_apart(name, received);
    let (mut own_host, mut is_plain) = (None, true);
    for (name, value) in headers {
        match *name {
            HOST => own_host = own_host.or(Some(value.as_bytes())),
            _ => is_plain &= !needs_look(name.as_str()),
        }
    }
    let others = (!is_plain).then_some(headers);
    let named = others.map(Named::of).unwrap_or_default();
    let asked = received.authority.map(str::as_bytes).or(own_host);
    let upstream = host.upstream.as_bytes();
    let told = asked.filter(|_| !host.is_rewritten).unwrap_or(upstream);
    write_field(head, "host", told);
    for (name, value) in headers.iter().filter(|(name, _)| **name != HOST) {
        let name = name.as_str();
        if is_plain || !needs_look(name) && !named.has(name) {
            write_field(head, name, value.as_bytes());
        }
    }
    if received.version == Version::HTTP_2 {
        // HTTP/2 may send cookies in several fields, HTTP/1.1 may not (RFC 9113, section 8.2.3).
        write_list(head, "cookie", b"; ", passed(others, &COOKIE, &named));
    }
    write_forwarded(head, others, received, asked, &named);
    let peer = received.peer.map(HeaderValue::as_bytes);
    let senders = passed(others, &X_FORWARDED_FOR, &named).chain(peer);
    write_list(head, "x-forwarded-for", b", ", senders);
    let via = passed(others, &VIA, &named).chain([received.via]);
    write_list(head, "via", b", ", via);
    if let Some(protocol) = received.upgrade {
        write_field(head, "upgrade", protocol.as_bytes());
        write_field(head, "connection", b"upgrade");
    } else if others.is_some_and(|headers| has_token(headers, &TE, "trailers")) {
        write_field(head, "te", b"trailers");
        write_field(head, "connection", b"te");
    }
    if received.length == Length::Chunked {
        write_field(head, "transfer-encoding", b"chunked");
    }
    head.extend_from_slice(b"\r\n");
}

/// Returns whether a field other than Host is not copied but left to [`write_request`]. Expect is dropped, as this
/// proxy itself sends 100 Continue when it reads the body.
fn is_written_apart(name: &str, received: &Received<'_>) -> bool {
    match name {
        "expect" | "via" | "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" => true,
        "cookie" => received.version == Version::HTTP_2,
        _ => false,
    }
}

/// Tells how and for which host the request came. Only of a process of this machine, which may be a proxy before us, is
/// believed what it says itself.
fn write_forwarded(
    head: &mut Vec<u8>,
    headers: Option<&HeaderMap>,
    received: &Received<'_>,
    host: Option<&[u8]>,
    named: &Named<'_>,
) {
    let scheme: &[u8] = if received.secure { b"https" } else { b"http" };
    for (name, own) in [(X_FORWARDED_PROTO, Some(scheme)), (X_FORWARDED_HOST, host)] {
        let told = passed(headers, &name, named);
        let mut said = told.take_while(|_| received.peer.is_none()).peekable();
        if said.peek().is_some() {
            said.for_each(|value| write_field(head, name.as_str(), value));
        } else if let Some(own) = own {
            write_field(head, name.as_str(), own);
        }
    }
}

/// Writes the fields behind a chunked body, those that may be there, and the line that ends them.
pub(in crate::proxy) fn write_trailers(lines: &mut Vec<u8>, trailers: Option<&HeaderMap>) {
    for (name, value) in trailers.into_iter().flatten() {
        if may_be_trailer(name.as_str()) && is_token(name.as_str()) {
            write_field(lines, name.as_str(), value.as_bytes());
        }
    }
    lines.extend_from_slice(b"\r\n");
}

fn write_field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// One field with all the values, if there are any.
fn write_list<'a>(
    head: &mut Vec<u8>,
    name: &str,
    separator: &[u8],
    values: impl Iterator<Item = &'a [u8]>,
) {
    let start = head.len();
    for value in values {
        match head.len() == start {
            true => {
                head.extend_from_slice(name.as_bytes());
                head.extend_from_slice(b": ");
            }
            false => head.extend_from_slice(separator),
        }
        head.extend_from_slice(value);
    }
    if head.len() > start {
        head.extend_from_slice(b"\r\n");
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
