use super::request::Ambiguous;
use super::*;
use http::Version;
use http::header::{COOKIE, HOST, TE, TRANSFER_ENCODING, UPGRADE, VIA};
use proptest::prelude::*;

static PEER: HeaderValue = HeaderValue::from_static("192.0.2.1");

static VIA_OWN: HeaderValue = HeaderValue::from_static("1.1 softclock");

const RECEIVED: Received<'_> = Received {
    version: Version::HTTP_11,
    via: b"1.1 softclock",
    peer: Some(&PEER),
    secure: false,
    authority: None,
    length: Length::None,
    upgrade: None,
    max_forwards: None,
};

fn map(fields: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    };
    fields.iter().map(field).collect()
}

/// Returns the fields that an upstream named `own` receives.
fn request(fields: &[(&str, &str)], received: Received<'_>) -> HeaderMap {
    let host = Host {
        upstream: &HeaderValue::from_static("own"),
        is_rewritten: false,
    };
    let mut head = Vec::new();
    write_request(&mut head, &map(fields), &received, host);
    read(&head)
}

fn read(lines: &[u8]) -> HeaderMap {
    let mut parsed = [httparse::EMPTY_HEADER; 50];
    let result = httparse::parse_headers(lines, &mut parsed).unwrap();
    let (length, fields) = result.unwrap();
    assert_eq!(length, lines.len());
    let field = |field: &httparse::Header<'_>| {
        let name: HeaderName = field.name.parse().unwrap();
        (name, HeaderValue::from_bytes(field.value).unwrap())
    };
    fields.iter().map(field).collect()
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
    assert_eq!(headers[HOST], "own", "a request needs one");
    // Whose elements say the same, and would outrank these fields.
    let headers = request(&[("forwarded", "for=b;proto=https;host=forged")], RECEIVED);
    assert!(!headers.contains_key("forwarded"));
}

#[test]
fn a_proxy_on_this_machine_is_believed() {
    let local = Received {
        peer: None,
        ..RECEIVED
    };
    let told = [
        ("host", "a"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=b"),
        ("forwarded", "for=c"),
    ];
    let headers = request(&told, local);
    let forwarded: Vec<_> = headers.get_all("forwarded").iter().collect();
    assert_eq!(forwarded, ["for=b", "for=c"]);
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
        length: Length::Chunked,
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
    let asked = |fields: &[(&str, &str)], received: Received<'_>| {
        let headers = map(fields);
        let upgrade = wanted_upgrade(&headers, received.version, received.length);
        let written = request(
            fields,
            Received {
                upgrade,
                ..received
            },
        );
        assert_eq!(upgrade, written.get(UPGRADE));
        assert_eq!(upgrade.is_some(), written.contains_key(CONNECTION));
        upgrade.cloned()
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
fn lengths_are_clear_or_refused() {
    let length = |fields: &[(&str, &str)], has_body| length_of(&map(fields), has_body);
    let one = [("content-length", "5")];
    assert_eq!(length(&one, true), Ok(Length::Sized(5)));
    assert_eq!(length(&one, false), Err(Ambiguous));
    assert_eq!(length(&[one[0], one[0]], true), Err(Ambiguous));
    for wrong in ["x", "+5", "", "9223372036854775808"] {
        assert_eq!(length(&[("content-length", wrong)], true), Err(Ambiguous));
    }
    assert_eq!(length(&[("content-length", "0")], false), Ok(Length::None));
    assert_eq!(length(&[], true), Ok(Length::Chunked));
    let named = [one[0], ("connection", "Content-Length, Host")];
    assert_eq!(request(&named, RECEIVED)["content-length"], "5");
}

#[test]
fn trailers_frame_and_route_nothing() {
    let trailers = map(&[
        ("x-sum", "1"),
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
        ("host", "x"),
        ("x-forwarded-for", "x"),
    ]);
    let mut lines = Vec::new();
    write_trailers(&mut lines, Some(&trailers));
    assert_eq!(lines, b"x-sum: 1\r\n\r\n");
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
            prepare_response(&mut headers, &VIA_OWN, false);
            headers
        }, false)] {
            for name in &names {
                let hop = is_hop_by_hop(name) || (is_request && name == "expect");
                let expected = !named.contains(&name.as_str()) && !hop;
                if !own.contains(&name.as_str()) {
                    prop_assert_eq!(headers.contains_key(name.as_str()), expected, "{}", name);
                }
            }
            prop_assert!(!headers.contains_key(CONNECTION));
        }
    }
}

#[test]
fn bytes_that_are_no_text_hide_nothing() {
    let mut headers = map(&[("x-private", "1")]);
    let list = HeaderValue::from_bytes(b"upgrade, x-private, \x80").unwrap();
    headers.insert(CONNECTION, list);
    let protocols = HeaderValue::from_bytes(b"websocket, h2c, \x80").unwrap();
    headers.insert(UPGRADE, protocols);
    assert_eq!(
        wanted_upgrade(&headers, Version::HTTP_11, Length::None),
        None
    );
    prepare_response(&mut headers, &VIA_OWN, false);
    assert!(!headers.contains_key("x-private") && !headers.contains_key(UPGRADE));
}

#[test]
fn responses_have_trailers_that_may_be() {
    let trailers = map(&[("x-sum", "7"), ("keep-alive", "5"), ("x-sum", "8")]);
    let left = prepare_trailers(trailers).unwrap();
    assert_eq!(left, map(&[("x-sum", "7"), ("x-sum", "8")]));
    let none = [("connection", "x-sum"), ("content-length", "3")];
    assert_eq!(prepare_trailers(map(&none)), None);
}
