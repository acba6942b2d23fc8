//! Random input of the kinds that are likely to fail, and every failure with every method.

use std::io;

use http::{Method, StatusCode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::failure::{Failure, Sent};
use super::*;

/// Fields and parts of fields, whose combinations are likely to be lists and contradictions.
const LINES: &[&[u8]] = &[
    b"Host: h",
    b"Accept: */*",
    b"X-A: b",
    b"X-A: c",
    b"Connection: close",
    b"Connection: Close, X-A",
    b"Connection: upgrade",
    b"Connection: Keep-Alive, Upgrade",
    b"Connection: x-a, \x80",
    b"Connection: te, host, via, content-length",
    b"Connection: x-forwarded-for, x-forwarded-proto ;q=1, x-forwarded-host, forwarded",
    b"Connection: ,,  ,cookie\t,\"x\"",
    b"Keep-Alive: timeout=5",
    b"Upgrade: websocket",
    b"Upgrade: h2c",
    b"Upgrade: websocket, H2C;q=0, \xff",
    b"HTTP2-Settings: x",
    b"TE: trailers;q=0.5, gzip",
    b"TE: \x80, trailers",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: Chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Content-Length: 5",
    b"Content-Length: 5, 5",
    b"Content-Length: ",
    b"Content-Length: 9223372036854775808",
    b"Expect: 100-continue",
    b"Cookie: a=1",
    b"Cookie: b=2",
    b"Via: 1.0 a",
    b"Via: ",
    b"X-Forwarded-For: 198.51.100.7",
    b"X-Forwarded-Proto: https",
    b"X-Forwarded-Host: forged",
    b"Forwarded: for=198.51.100.7;proto=https",
    b"Forwarded: host=forged",
    b"Proxy-Authorization: x",
    b"Proxy-Connection: close",
    b"Close: y",
];

/// Parts of upstreams and targets.
const PIECES: &[&str] = &[
    "http://",
    "https://",
    "unix:",
    "unix:/a",
    "h",
    "a.b",
    "127.0.0.1",
    "[::1]",
    "[::1",
    "]",
    ":",
    ":80",
    ":+80",
    ":0",
    ":65536",
    "/",
    "//",
    "/p",
    "/p/",
    "?",
    "?q",
    "#",
    "@",
    "%41",
    "%",
    "*",
    " ",
    "\t",
    "\r",
    "\u{80}",
    "é",
    "..",
    "/../x",
    "\n",
    "\n/",
    "\n/a?b",
    "\n?q",
    "\n#",
    "\n*",
    "\n//h",
    "\nhttp://h",
];

fn message() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        12 => select(LINES).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..20),
    ];
    (0u8..64, vec(line, 0..10)).prop_map(|(flags, lines)| {
        let kind = (flags << 2) | (flags % 3);
        [&[kind][..], &lines.join(&b'\n')].concat()
    })
}

fn upstream() -> impl Strategy<Value = Vec<u8>> {
    vec(select(PIECES), 1..8).prop_map(|pieces| ["\u{3}", &pieces.concat()].concat().into())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn messages(data in message()) {
        check(&data);
    }

    #[test]
    fn upstreams(data in upstream()) {
        check(&data);
    }

    #[test]
    fn arbitrary_bytes(data in vec(any::<u8>(), 0..100)) {
        check(&data);
    }
}

#[test]
fn what_is_tried_again() {
    let own = [
        Failure::Exhausted(io::ErrorKind::OutOfMemory.into()),
        Failure::NoLocalAddress(io::ErrorKind::AddrNotAvailable.into()),
        Failure::ClientBody,
        Failure::ClientLate,
    ];
    let others = [
        Failure::Connect(io::ErrorKind::ConnectionRefused.into()),
        Failure::ConnectLate,
        Failure::Busy,
        Failure::SendLate,
        Failure::FirstByteLate,
        Failure::MoreLate,
        Failure::Closed,
        Failure::Stale,
        Failure::Malformed("x".into()),
    ];
    let methods = "GET HEAD OPTIONS TRACE PUT DELETE POST PATCH CONNECT PROPFIND get";
    let methods = methods.split(' ').map(|name| name.parse().unwrap());
    let methods: Vec<Method> = methods.collect();
    let sent = |bits: u8| Sent {
        any: bits & 1 != 0,
        body: bits & 2 != 0,
        answered: bits & 4 != 0,
    };
    for (method, place) in methods.iter().zip(0..) {
        for sent in (0..8).map(sent) {
            for failure in &own {
                assert!(!failure.may_retry(method, sent), "{failure}");
            }
            for failure in &others {
                // Requests of which nothing was sent; or unanswered ones of the first six methods, which are
                // idempotent. Neither if part of the body is gone.
                let again = !sent.body && !sent.answered && (!sent.any || place < 6);
                let found = failure.may_retry(method, sent);
                assert_eq!(found, again, "{failure} {method} {sent:?}");
            }
        }
    }
    for failure in own.iter().chain(&others) {
        let blames = matches!(
            failure.status(),
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
        );
        let is_stale = matches!(failure, Failure::Stale);
        assert_eq!(
            failure.is_the_upstream_s(),
            blames && !is_stale,
            "{failure}"
        );
        assert!(failure.sentence().ends_with('.'));
    }
}
