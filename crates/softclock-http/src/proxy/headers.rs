//! What becomes of header fields on their way through (RFC 9110, section 7.6).

use http::Version;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, Entry, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};

/// What is known of a request beside its fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    pub(super) version: Version,
    /// From which address; nothing of a process of this machine.
    pub(super) peer: Option<&'a HeaderValue>,
    /// Whether it came through TLS.
    pub(super) secure: bool,
    /// The host in the target, which counts more than the field.
    pub(super) authority: Option<&'a str>,
    /// Whether there is a body.
    pub(super) has_body: bool,
}

/// Prepares the fields of a request for an upstream. Gives the protocol that the client wants to change to, if any.
///
/// # Errors
/// [`Ambiguous`].
pub(super) fn prepare_request(
    headers: &mut HeaderMap,
    received: &Received<'_>,
) -> Result<Option<HeaderValue>, Ambiguous> {
    if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(Ambiguous);
    }
    let upgrade = wanted_upgrade(headers, received);
    let wants_trailers = has_token(headers, &TE, "trailers");
    remove_hop_by_hop(headers);
    // The body is asked for when an upstream takes it, and asking is what sends 100 Continue.
    headers.remove(EXPECT);
    if let Some(authority) = received.authority
        && let Ok(host) = HeaderValue::from_str(authority)
    {
        headers.insert(HOST, host);
    }
    if received.version == Version::HTTP_2 {
        join_cookies(headers);
    }
    forwarded(headers, received);
    append_via(headers, received.version);
    if let Some(protocol) = &upgrade {
        headers.insert(UPGRADE, protocol.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if received.has_body && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    Ok(upgrade)
}

/// Prepares the fields of a response for the client. `upgraded` is what the connection changes to.
///
/// # Errors
/// [`Ambiguous`].
pub(super) fn prepare_response(
    headers: &mut HeaderMap,
    version: Version,
    upgraded: bool,
) -> Result<(), Ambiguous> {
    let protocol = headers.get(UPGRADE).filter(|_| upgraded).cloned();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        // hyper has removed the coding `chunked`, which decides where it ends; it knows no other.
        if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(Ambiguous);
        }
        headers.remove(CONTENT_LENGTH);
    }
    // Several that are equal count as one (RFC 9112, section 6.3); hyper has compared them.
    if let Entry::Occupied(mut length) = headers.entry(CONTENT_LENGTH)
        && length.iter().nth(1).is_some()
    {
        let one = length.get().clone();
        length.insert(one);
    }
    remove_hop_by_hop(headers);
    append_via(headers, version);
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    Ok(())
}

/// Fields about lengths that can be read in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ambiguous;

/// An upgrade to HTTP/2 would be one past us: what comes behind it would not be looked at.
fn wanted_upgrade(headers: &HeaderMap, received: &Received<'_>) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    let possible = received.version == Version::HTTP_11 && !received.has_body;
    let refused = has_token(headers, &UPGRADE, "h2c");
    (possible && !refused && has_token(headers, &CONNECTION, "upgrade")).then(|| protocol.clone())
}

/// Removes what concerns one connection only, and what Connection names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // Most messages have one such field or none, and a look is cheaper than a removal.
    let mut present: Vec<HeaderName> = Vec::new();
    present.extend(
        headers
            .keys()
            .filter(|name| HOP_BY_HOP.contains(name))
            .cloned(),
    );
    if present.contains(&CONNECTION) {
        let named = tokens(headers, &CONNECTION).filter(|word| !ABOUT_IT.contains(word));
        present.extend(named.filter_map(|name| HeaderName::from_bytes(name).ok()));
    }
    for name in present {
        headers.remove(name);
    }
}

/// HTTP/2 may send cookies in several fields, HTTP/1.1 may not (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if let Entry::Occupied(mut cookies) = headers.entry(COOKIE)
        && cookies.iter().nth(1).is_some()
    {
        let joined = join(cookies.iter(), b"; ");
        cookies.insert(joined);
    }
}

/// Tells from whom, how and for which host the request came. Only of a process of this machine, which may be a proxy
/// before us, is believed what it says itself.
fn forwarded(headers: &mut HeaderMap, received: &Received<'_>) {
    if let Some(peer) = received.peer {
        append(headers, X_FORWARDED_FOR, b", ", peer.clone());
    }
    let host = headers.get(HOST).cloned();
    let scheme = if received.secure { "https" } else { "http" };
    let own = [
        (X_FORWARDED_PROTO, Some(HeaderValue::from_static(scheme))),
        (X_FORWARDED_HOST, host),
    ];
    for (name, value) in own {
        if received.peer.is_none() && headers.contains_key(&name) {
            continue;
        }
        match value {
            Some(value) => drop(headers.insert(name, value)),
            None => drop(headers.remove(name)),
        }
    }
}

fn append_via(headers: &mut HeaderMap, version: Version) {
    let via = HeaderValue::from_static(match version {
        Version::HTTP_10 => "1.0 softclock",
        Version::HTTP_2 => "2.0 softclock",
        _ => "1.1 softclock",
    });
    append(headers, VIA, b", ", via);
}

/// Adds `last` to the list that all fields of this name make up.
fn append(headers: &mut HeaderMap, name: HeaderName, separator: &[u8], last: HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(entry) => drop(entry.insert(last)),
        Entry::Occupied(mut entry) => {
            let all = join(entry.iter().chain([&last]), separator);
            entry.insert(all);
        }
    }
}

fn join<'a>(values: impl Iterator<Item = &'a HeaderValue>, separator: &[u8]) -> HeaderValue {
    let values: Vec<_> = values.map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&values.join(separator)).expect("values and a separator are a value")
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|own| own.eq_ignore_ascii_case(token.as_bytes()))
}

/// The words of a list, without parameters. Bytes, since a value may hold some that are no text.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).into_iter();
    let words = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    words.map(|word| {
        let end = word.iter().position(|&byte| byte == b';');
        word[..end.unwrap_or(word.len())].trim_ascii()
    })
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What Connection says of the connection itself, mostly.
const ABOUT_IT: [&[u8]; 3] = [b"close", b"keep-alive", b"Keep-Alive"];

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    static PEER: HeaderValue = HeaderValue::from_static("192.0.2.1");

    const RECEIVED: Received<'_> = Received {
        version: Version::HTTP_11,
        peer: Some(&PEER),
        secure: false,
        authority: None,
        has_body: false,
    };

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        };
        fields.iter().map(field).collect()
    }

    fn request(fields: &[(&str, &str)], received: Received<'_>) -> HeaderMap {
        let mut headers = map(fields);
        prepare_request(&mut headers, &received).unwrap();
        headers
    }

    #[test]
    fn one_connection_s_fields_stay_on_it() {
        let headers = request(
            &[
                ("host", "a"),
                ("connection", "keep-alive, X-Private"),
                ("connection", "close"),
                ("x-private", "1"),
                ("keep-alive", "5"),
                ("te", "gzip"),
                ("upgrade", "websocket"),
                ("proxy-authorization", "x"),
                ("expect", "100-continue"),
                ("accept", "*/*"),
            ],
            RECEIVED,
        );
        let expected = map(&[
            ("host", "a"),
            ("accept", "*/*"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "a"),
            ("via", "1.1 softclock"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn lists_are_continued() {
        let headers = request(
            &[
                ("via", "1.0 a"),
                ("via", "1.1 b"),
                ("x-forwarded-for", "198.51.100.7"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "forged"),
            ],
            RECEIVED,
        );
        assert_eq!(headers[VIA], "1.0 a, 1.1 b, 1.1 softclock");
        assert_eq!(headers["x-forwarded-for"], "198.51.100.7, 192.0.2.1");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert!(!headers.contains_key("x-forwarded-host"));
    }

    #[test]
    fn a_proxy_on_this_machine_is_believed() {
        let local = Received {
            peer: None,
            ..RECEIVED
        };
        let told = [("host", "a"), ("x-forwarded-proto", "https")];
        let headers = request(&told, local);
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "a");
        assert!(!headers.contains_key("x-forwarded-for"));
    }

    #[test]
    fn http_2_becomes_http_1() {
        let received = Received {
            version: Version::HTTP_2,
            authority: Some("b:1"),
            secure: true,
            has_body: true,
            ..RECEIVED
        };
        let headers = request(
            &[("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers")],
            received,
        );
        assert_eq!(headers[COOKIE], "a=1; b=2");
        assert_eq!(headers[HOST], "b:1");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(
            (&headers[TE], &headers[CONNECTION]),
            (&"trailers".parse().unwrap(), &"te".parse().unwrap())
        );
        assert_eq!(headers[TRANSFER_ENCODING], "chunked");
    }

    #[test]
    fn upgrades_are_asked_for_properly() {
        let asked = |fields: &[(&str, &str)], received| {
            let mut headers = map(fields);
            let upgrade = prepare_request(&mut headers, &received).unwrap();
            assert_eq!(upgrade.as_ref(), headers.get(UPGRADE));
            assert_eq!(upgrade.is_some(), headers.contains_key(CONNECTION));
            upgrade
        };
        let good = [
            ("connection", "Keep-Alive, Upgrade"),
            ("upgrade", "websocket"),
        ];
        assert_eq!(asked(&good, RECEIVED).unwrap(), "websocket");
        assert_eq!(asked(&good[1..], RECEIVED), None);
        let old = Received {
            version: Version::HTTP_10,
            ..RECEIVED
        };
        assert_eq!(asked(&good, old), None);
        assert_eq!(
            asked(&[("connection", "upgrade"), ("upgrade", "h2c")], RECEIVED),
            None
        );
    }

    #[test]
    fn bytes_that_are_no_text_hide_nothing() {
        let mut headers = map(&[("x-private", "1")]);
        let list = HeaderValue::from_bytes(b"upgrade, x-private, \x80").unwrap();
        headers.insert(CONNECTION, list);
        let protocols = HeaderValue::from_bytes(b"websocket, h2c, \x80").unwrap();
        headers.insert(UPGRADE, protocols);
        assert_eq!(prepare_request(&mut headers, &RECEIVED), Ok(None));
        assert!(!headers.contains_key("x-private") && !headers.contains_key(UPGRADE));
    }

    #[test]
    fn lengths_are_clear_or_refused() {
        let two = [("content-length", "5"), ("content-length", "5")];
        assert_eq!(prepare_request(&mut map(&two), &RECEIVED), Err(Ambiguous));
        let mut headers = map(&two);
        prepare_response(&mut headers, Version::HTTP_11, false).unwrap();
        assert_eq!(headers.get_all(CONTENT_LENGTH).iter().count(), 1);
        let mut both = map(&[("content-length", "5"), ("transfer-encoding", "Chunked")]);
        prepare_response(&mut both, Version::HTTP_11, false).unwrap();
        assert_eq!(both, map(&[("via", "1.1 softclock")]));
        let mut other = map(&[("transfer-encoding", "gzip, chunked")]);
        assert_eq!(
            prepare_response(&mut other, Version::HTTP_11, false),
            Err(Ambiguous)
        );
    }

    proptest! {
        #[test]
        fn nothing_named_in_connection_gets_through(
            names in proptest::collection::vec("[a-z]{1,8}", 0..6),
            listed in proptest::collection::vec(any::<bool>(), 6),
        ) {
            let named: Vec<_> = names.iter().zip(&listed).filter(|(_, on)| **on).map(|(name, _)| name.as_str()).collect();
            let mut fields: Vec<_> = names.iter().map(|name| (name.as_str(), "v")).collect();
            let list = named.join(" , ");
            fields.push(("connection", &list));
            let own = ["via", "host", "close"];
            for (headers, is_request) in [(request(&fields, RECEIVED), true), ({
                let mut headers = map(&fields);
                let _ = prepare_response(&mut headers, Version::HTTP_11, false);
                headers
            }, false)] {
                for name in &names {
                    let hop = HOP_BY_HOP.iter().any(|hop| hop == name.as_str()) || (is_request && name == "expect");
                    let expected = !named.contains(&name.as_str()) && !hop;
                    if !own.contains(&name.as_str()) {
                        prop_assert_eq!(headers.contains_key(name.as_str()), expected, "{}", name);
                    }
                }
                prop_assert!(!headers.contains_key(CONNECTION));
            }
        }
    }
}
