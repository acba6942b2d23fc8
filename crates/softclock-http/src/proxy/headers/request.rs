//! Writes the header fields of requests for an upstream.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, TE,
    UPGRADE, VIA,
};
use http::{Method, Version};

use super::{Named, has_token, is_hop_by_hop, may_be_trailer, passed};
use crate::syntax::head::{is_token, parse_length};

/// The properties of a received request apart from its fields.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Received<'a> {
    pub(in crate::proxy) version: Version,
    /// The element to append to Via.
    pub(in crate::proxy) via: &'a [u8],
    /// The client's address; `None` for a client on a Unix socket.
    pub(in crate::proxy) peer: Option<&'a HeaderValue>,
    /// Whether the request came over TLS.
    pub(in crate::proxy) secure: bool,
    /// The host in the target, which takes precedence over the Host field.
    pub(in crate::proxy) authority: Option<&'a str>,
    pub(in crate::proxy) length: Length,
    /// The protocol to which the client [wants](wanted_upgrade) to upgrade.
    pub(in crate::proxy) upgrade: Option<&'a HeaderValue>,
    /// The value that replaces that of [Max-Forwards](max_forwards).
    pub(in crate::proxy) max_forwards: Option<u64>,
}

/// The length of a request's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::proxy) enum Length {
    /// The request has no body.
    None,
    /// The body has this many bytes.
    Sized(u64),
    /// The length is unknown before the end of the body.
    Chunked,
}

/// The host that an upstream receives in the Host field.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Host<'a> {
    /// The host in the upstream's URL.
    pub(in crate::proxy) upstream: &'a HeaderValue,
    /// Whether to send that in place of the host that the client requested.
    pub(in crate::proxy) is_rewritten: bool,
}

/// The error of a Content-Length that has several interpretations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct Ambiguous;

/// Returns the length of the body of a request, if it `has_body`.
///
/// # Errors
/// [`Ambiguous`] for several lengths, an invalid one, or one that contradicts `has_body`.
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

/// Returns the protocol to which the client wants to upgrade, if the upgrade can be forwarded. An upgrade to HTTP/2 is
/// not: the requests in its tunnel would bypass this proxy's checks.
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

/// Returns how many more times the request may be forwarded, if the field Max-Forwards limits its method. A value that
/// is no number, or an extremely large one, limits nothing and is forwarded unchanged (RFC 9110, section 7.6.2).
pub(in crate::proxy) fn max_forwards(method: &Method, headers: &HeaderMap) -> Option<u64> {
    if !matches!(*method, Method::OPTIONS | Method::TRACE) {
        return None;
    }
    let mut values = headers.get_all(MAX_FORWARDS).iter();
    match (values.next(), values.next()) {
        (Some(one), None) => parse_length(one.as_bytes()),
        _ => None,
    }
}

/// Appends the fields of a request for an upstream to `head`, and the empty line that ends them.
pub(in crate::proxy) fn write_request(
    head: &mut Vec<u8>,
    headers: &HeaderMap,
    received: &Received<'_>,
    host: Host<'_>,
) {
    // Most requests contain only Host and fields that are copied. One pass over the names finds that out; the lookups
    // that other requests need would cost more than the whole function.
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
    // Host comes first, as RFC 9110, section 7.2 recommends.
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
    // Lists of forwarders: the client's elements, then this hop.
    write_forwarded(head, others, received, asked, &named);
    let peer = received.peer.map(HeaderValue::as_bytes);
    let senders = passed(others, &X_FORWARDED_FOR, &named).chain(peer);
    write_list(head, "x-forwarded-for", b", ", senders);
    let via = passed(others, &VIA, &named).chain([received.via]);
    write_list(head, "via", b", ", via);
    if let Some(most) = received.max_forwards {
        write_field(head, "max-forwards", most.to_string().as_bytes());
    }
    // Connection describes this proxy's own connection to the upstream, not the client's.
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
/// proxy itself sends 100 Continue when it reads the body. Forwarded is dropped unless the client is local
/// ([`write_forwarded`]): this proxy adds no element of its own, so all of it could be forged.
fn is_written_apart(name: &str, received: &Received<'_>) -> bool {
    match name {
        "expect" | "via" | "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" => true,
        "cookie" => received.version == Version::HTTP_2,
        "forwarded" => received.peer.is_some(),
        "max-forwards" => received.max_forwards.is_some(),
        _ => false,
    }
}

/// Writes X-Forwarded-Proto and X-Forwarded-Host: the scheme and the host of the client's request. Copies the client's
/// own fields of these names only if it is local, as it may be another proxy on this machine.
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

/// Appends the trailers of a chunked body to `lines`, except fields that may not be trailers, and the empty line that
/// ends them.
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

/// Appends one field that joins all values, if there are any.
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
