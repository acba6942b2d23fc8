//! The header fields of forwarded messages (RFC 9110, section 7.6).

mod request;
mod response;
#[cfg(test)]
mod tests;

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};

pub(super) use request::{
    Host, Length, Received, length_of, max_forwards, wanted_upgrade, write_request, write_trailers,
};
pub(super) use response::{prepare_response, prepare_trailers};

/// Returns the values of a field unless Connection names it; none without `headers`.
fn passed<'a>(
    headers: Option<&'a HeaderMap>,
    name: &HeaderName,
    named: &Named<'_>,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let headers = headers.filter(|_| !named.has(name.as_str()));
    let all = headers.map(|headers| headers.get_all(name));
    all.into_iter().flatten().map(HeaderValue::as_bytes)
}

/// The fields that Connection names, and that are therefore not forwarded. Content-Length and Host are forwarded even
/// if named: recipients need them to find the end and the target of a message.
#[derive(Default)]
struct Named<'a>(Vec<&'a [u8]>);

impl<'a> Named<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let known = ["close", "keep-alive", "content-length", "host", ""];
        let is = |word: &[u8], known: &str| word.eq_ignore_ascii_case(known.as_bytes());
        let is_known = |word: &&[u8]| known.iter().any(|known| is(word, known));
        let mut named = Vec::new();
        named.extend(tokens(headers, &CONNECTION).filter(|word| !is_known(word)));
        Self(named)
    }

    fn has(&self, name: &str) -> bool {
        let name = name.as_bytes();
        self.0.iter().any(|named| named.eq_ignore_ascii_case(name))
    }
}

/// Returns whether the list in a field contains `token`, in any case of letters.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|own| own.eq_ignore_ascii_case(token.as_bytes()))
}

/// Returns the elements of the list in a field, without parameters. They are bytes, as a value may contain bytes that
/// are not text.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).into_iter();
    let words = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    words.map(|word| {
        let end = word.iter().position(|&byte| byte == b';');
        word[..end.unwrap_or(word.len())].trim_ascii()
    })
}

/// Returns whether a field concerns one connection only, and is not forwarded (RFC 9110, section 7.6.1).
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "http2-settings"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Returns whether a field may be in trailers. Fields that determine framing, routing or authentication may not (RFC
/// 9110, section 6.5.1).
fn may_be_trailer(name: &str) -> bool {
    let is_refused = matches!(
        name,
        "authorization"
            | "cache-control"
            | "content-encoding"
            | "content-length"
            | "content-range"
            | "content-type"
            | "cookie"
            | "expect"
            | "forwarded"
            | "host"
            | "max-forwards"
            | "set-cookie"
            | "trailer"
            | "via"
    );
    !is_refused && !is_hop_by_hop(name) && !name.starts_with("x-forwarded-")
}
