//! Properties that hold for any upstream, any target and any fields. The property tests and the fuzzer (`fuzz/`) call
//! [`check`].

#[cfg(test)]
mod tests;

use http::Version;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, GetAll, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::uri::PathAndQuery;

use super::headers::{Host, Received, length_of, prepare_response, wanted_upgrade, write_request};
use super::url::UpstreamUrl;
use super::via::Via;

/// Checks the properties on `data`. The first byte selects the meaning of the others (an upstream and a target, the
/// fields of a request, or the fields of a response), the version of HTTP, and flags.
///
/// # Panics
/// If a property does not hold.
pub(crate) fn check(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else {
        return;
    };
    let version = match kind >> 2 & 3 {
        0 => Version::HTTP_10,
        1 => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    let flags = [16, 32, 64, 128].map(|bit| kind & bit != 0);
    match kind & 3 {
        0 | 1 => check_request(fields(data), version, flags),
        2 => check_response(fields(data), version, flags[0]),
        _ => {
            let text = String::from_utf8_lossy(data);
            let (upstream, asked) = text.split_once('\n').unwrap_or((&text, "/"));
            check_upstream(upstream, asked);
        }
    }
}

/// Parses the fields of a head, which must end at the end of `lines`.
fn read(lines: &[u8]) -> HeaderMap {
    let mut parsed = [httparse::EMPTY_HEADER; 100];
    let result = httparse::parse_headers(lines, &mut parsed).expect("fields");
    let (length, fields) = result.unwrap();
    assert_eq!(length, lines.len(), "nothing of it ends the head");
    let field = |field: &httparse::Header<'_>| {
        let name: HeaderName = field.name.parse().expect("a name");
        (name, HeaderValue::from_bytes(field.value).expect("a value"))
    };
    fields.iter().map(field).collect()
}

/// Parses lines of a name, a colon and a value. Skips lines that are not valid fields.
fn fields(lines: &[u8]) -> HeaderMap {
    let field = |line: &[u8]| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        Some((name, value))
    };
    lines
        .split(|&byte| byte == b'\n')
        .filter_map(field)
        .collect()
}

/// Checks that the text form of an upstream parses to the same upstream, and that all its requests are below its
/// prefix.
fn check_upstream(text: &str, asked: &str) {
    let upstream: UpstreamUrl = match text.parse() {
        Ok(upstream) => upstream,
        Err(error) => {
            let advice = error.to_string();
            assert!(!advice.is_empty() && !advice.contains(char::is_control));
            return;
        }
    };
    let shown = upstream.to_string();
    assert!(!shown.contains(char::is_control));
    let again: UpstreamUrl = shown.parse().expect("it is shown as it may be written");
    assert_eq!(again.address, upstream.address);
    assert_eq!(again.to_string(), shown);
    let host = upstream.host().to_str().expect("text");
    assert!(!host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']));
    if let Some((_, port)) = host.rsplit_once(':').filter(|_| !host.ends_with(']')) {
        assert!(port.bytes().all(|byte| byte.is_ascii_digit()));
    }
    let Ok(asked) = asked.parse::<PathAndQuery>() else {
        return;
    };
    let target = |upstream: &UpstreamUrl, asked: &PathAndQuery| {
        let mut target = Vec::new();
        upstream.write_target(&mut target, asked);
        assert!(target.iter().all(|&byte| byte > b' '), "it ends nothing");
        target
    };
    let below = target(&upstream, &asked);
    assert_eq!(below, target(&again, &asked));
    // The target is the prefix followed by the requested target.
    let bare = asked.to_string().into_bytes();
    if bare == b"*" {
        assert_eq!(below, bare);
    } else {
        let prefix = target(&upstream, &PathAndQuery::from_static("/"));
        let prefix = prefix.strip_suffix(b"/").expect("what is asked for");
        assert_eq!(below.strip_prefix(prefix), Some(&bare[..]));
    }
}

/// Checks the fields of a request for an upstream. `flags`: the client has an address, TLS, the request has a body, the
/// target names a host.
fn check_request(before: HeaderMap, version: Version, flags: [bool; 4]) {
    let [has_peer, secure, has_body, has_authority] = flags;
    let peer = HeaderValue::from_static("192.0.2.1");
    let Ok(length) = length_of(&before, has_body) else {
        let lengths = values(before.get_all(CONTENT_LENGTH));
        let is_length = |value: &[u8]| {
            let text = str::from_utf8(value).unwrap_or_default();
            !text.starts_with(['+', '-']) && text.parse::<i64>().is_ok()
        };
        assert!(!has_body || lengths.len() > 1 || !lengths.iter().all(|value| is_length(value)));
        return;
    };
    let upgrade = wanted_upgrade(&before, version, length);
    let via = via();
    let received = Received {
        version,
        via: via.in_request(version),
        peer: has_peer.then_some(&peer),
        secure,
        authority: has_authority.then_some("h:1"),
        length,
        upgrade,
        max_forwards: None,
    };
    let host = Host {
        upstream: &HeaderValue::from_static("own"),
        is_rewritten: false,
    };
    let mut head = Vec::new();
    write_request(&mut head, &before, &received, host);
    let after = read(&head);
    // Fields with a check of their own, below.
    let own = [
        EXPECT,
        HOST,
        COOKIE,
        VIA,
        FOR,
        PROTO,
        FORWARDED_HOST,
        FORWARDED,
    ];
    check_others(&before, &after, &own);
    check_only(&after, &EXPECT, None);
    check_cookies(&before, &after, version);
    check_via(&before, &after, version);
    check_forwarded(&before, &after, &received);
    // A body has one length or one coding; without a body there is neither.
    let chunked = has_body && !after.contains_key(CONTENT_LENGTH);
    assert!(count(&after, &CONTENT_LENGTH) <= 1);
    check_only(
        &after,
        &TRANSFER_ENCODING,
        chunked.then_some(&b"chunked"[..]),
    );
    // The fields that describe the connection between the proxy and the upstream.
    let may_upgrade = version == Version::HTTP_11
        && !has_body
        && words(&before, &CONNECTION).any(|word| word == b"upgrade")
        && words(&before, &UPGRADE).all(|word| word != b"h2c");
    let expected = before.get(UPGRADE).filter(|_| may_upgrade);
    assert_eq!(upgrade, expected);
    check_only(&after, &UPGRADE, expected.map(HeaderValue::as_bytes));
    let trailers = upgrade.is_none() && words(&before, &TE).any(|word| word == b"trailers");
    check_only(&after, &TE, trailers.then_some(&b"trailers"[..]));
    let about = upgrade.map(|_| &b"upgrade"[..]);
    check_only(&after, &CONNECTION, about.or(trailers.then_some(b"te")));
}

/// Checks the fields of a response for the client.
fn check_response(before: HeaderMap, version: Version, upgraded: bool) {
    let mut after = before.clone();
    prepare_response(&mut after, via().in_response(version), upgraded);
    check_others(&before, &after, &[VIA]);
    check_via(&before, &after, version);
    assert!(!after.contains_key(TRANSFER_ENCODING));
    let protocol = before.get(UPGRADE).filter(|_| upgraded);
    check_only(&after, &UPGRADE, protocol.map(HeaderValue::as_bytes));
    check_only(&after, &CONNECTION, protocol.map(|_| &b"upgrade"[..]));
    check_only(&after, &TE, None);
}

/// Checks that fields are forwarded unchanged, and that those of one connection are removed. Skips the fields in `own`
/// and those of the proxy's own connection, which have other checks.
fn check_others(before: &HeaderMap, after: &HeaderMap, own: &[HeaderName]) {
    let ours = [CONNECTION, UPGRADE, TE, TRANSFER_ENCODING];
    let others = before.keys().chain(after.keys());
    for name in others.filter(|name| !own.contains(name) && !ours.contains(name)) {
        let now = values(after.get_all(name));
        let expected = match is_of_one_connection(before, name) {
            true => Vec::new(),
            false => values(before.get_all(name)),
        };
        assert_eq!(now, expected, "{name}");
    }
    for value in after.values() {
        let breaks = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
        assert!(!value.as_bytes().iter().any(breaks), "{value:?}");
    }
}

/// Returns whether a field concerns one connection only, by its definition or because Connection names it.
fn is_of_one_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    let by_nature = [
        "connection",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    by_nature.contains(&name.as_str()) || is_named(headers, name)
}

/// Returns whether Connection names the field. `close` is an option and not the name of a field; fields that determine
/// the end or the target of a message are forwarded even if named.
fn is_named(headers: &HeaderMap, name: &HeaderName) -> bool {
    let is_for_all = ["close", "content-length", "host"].contains(&name.as_str());
    !is_for_all && words(headers, &CONNECTION).any(|word| word == name.as_str().as_bytes())
}

/// Checks that cookies are forwarded, in HTTP/1 joined into one field.
fn check_cookies(before: &HeaderMap, after: &HeaderMap, version: Version) {
    let (before, now) = match is_named(before, &COOKIE) {
        true => (Vec::new(), values(after.get_all(COOKIE))),
        false => (
            values(before.get_all(COOKIE)),
            values(after.get_all(COOKIE)),
        ),
    };
    match version == Version::HTTP_2 && before.len() > 1 {
        true => assert_eq!(now, [before.join(&b"; "[..])]),
        false => assert_eq!(now, before),
    }
}

fn via() -> Via {
    Via::new(Some(&"softclock".parse().expect("a token")))
}

fn check_via(before: &HeaderMap, after: &HeaderMap, version: Version) {
    let version = match version {
        Version::HTTP_10 => "1.0 softclock",
        Version::HTTP_2 => "2.0 softclock",
        _ => "1.1 softclock",
    };
    check_continued(before, after, &VIA, version.as_bytes());
}

fn check_forwarded(before: &HeaderMap, after: &HeaderMap, received: &Received<'_>) {
    let asked = match received.authority {
        Some(authority) => Some(authority.as_bytes()),
        None => before.get(HOST).map(HeaderValue::as_bytes),
    };
    check_only(after, &HOST, asked.or(Some(b"own")));
    let scheme: &[u8] = if received.secure { b"https" } else { b"http" };
    let own = [(PROTO, Some(scheme)), (FORWARDED_HOST, asked)];
    for (name, value) in own {
        let is_told = before.contains_key(&name) && !is_named(before, &name);
        if received.peer.is_none() && is_told {
            assert_eq!(values(after.get_all(&name)), values(before.get_all(&name)));
        } else {
            check_only(after, &name, value);
        }
    }
    let may_pass = received.peer.is_none() && !is_named(before, &FORWARDED);
    let said = before.get_all(FORWARDED);
    let passed = if may_pass { values(said) } else { Vec::new() };
    assert_eq!(values(after.get_all(FORWARDED)), passed);
    match received.peer {
        Some(peer) => check_continued(before, after, &FOR, peer.as_bytes()),
        None => {
            let said = match is_named(before, &FOR) {
                true => Vec::new(),
                false => values(before.get_all(FOR)),
            };
            let joined = said.join(&b", "[..]);
            check_only(after, &FOR, (!said.is_empty()).then_some(&joined));
        }
    }
}

/// Checks that one field joins all values of the received field, and `last`.
fn check_continued(before: &HeaderMap, after: &HeaderMap, name: &HeaderName, last: &[u8]) {
    let mut all = values(before.get_all(name));
    if is_named(before, name) {
        all.clear();
    }
    all.push(last);
    check_only(after, name, Some(&all.join(&b", "[..])));
}

/// Checks that there is one field of this name, with this value, or no field if `value` is `None`.
fn check_only(headers: &HeaderMap, name: &HeaderName, value: Option<&[u8]>) {
    let found = values(headers.get_all(name));
    assert_eq!(found, value.into_iter().collect::<Vec<_>>(), "{name}");
}

fn count(headers: &HeaderMap, name: &HeaderName) -> usize {
    headers.get_all(name).iter().count()
}

fn values(all: GetAll<'_, HeaderValue>) -> Vec<&[u8]> {
    all.into_iter().map(HeaderValue::as_bytes).collect()
}

/// Returns the elements of the list in a field, in lower case and without parameters.
fn words(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = Vec<u8>> {
    raw_words(headers, name).map(<[u8]>::to_ascii_lowercase)
}

fn raw_words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).into_iter();
    let words = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    words.map(|word| {
        word.split(|&byte| byte == b';')
            .next()
            .unwrap_or(word)
            .trim_ascii()
    })
}

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
