//! Responses with their verdicts.

use http::header::CONTENT_LENGTH;
use softclock_http::response::{Fault, HEAD_BYTES};

use crate::target::{check, read};

fn refused(cases: &[(&[u8], Fault)]) {
    for &(stream, fault) in cases {
        let text = String::from_utf8_lossy(stream);
        assert_eq!(read(false, [stream]).1, Some(fault), "{text:?}");
        check(&[b"\x01", stream].concat());
    }
}

#[test]
fn heads_in_doubt() {
    refused(&[
        (b"", Fault::Truncated),
        (b"HTTP/1.1 200 OK\r\nX", Fault::Truncated),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", Fault::StatusLine),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Fault::StatusLine),
        (b"HTTP/2.0 200 OK\r\n\r\n", Fault::StatusLine),
        (b"HTTP/1.1 99 OK\r\n\r\n", Fault::StatusLine),
        (b"HTTP/1.1 099 OK\r\n\r\n", Fault::StatusLine),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", Fault::Field),
        (b"HTTP/1.1 200 OK\r\n A: b\r\n\r\n", Fault::Field),
        (b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", Fault::Field),
        (b"HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n", Fault::Field),
        (b"HTTP/1.1 200 OK\r\nA\r\n\r\n", Fault::Field),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            Fault::Length,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
            Fault::Length,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            Fault::Length,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
            Fault::Length,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", Fault::Length),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
            Fault::Length,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            Fault::Length,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            Fault::Coding,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            Fault::Coding,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            Fault::Coding,
        ),
        (
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Fault::Coding,
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            Fault::Length,
        ),
    ]);
}

#[test]
fn bodies_in_doubt() {
    refused(&[
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            Fault::Truncated,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            Fault::Truncated,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
            Fault::Chunk,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
            Fault::Chunk,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
            Fault::Chunk,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 5\r\nhello\r\n",
            Fault::Chunk,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5                 \r\nhello\r\n",
            Fault::Chunk,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
            Fault::Chunk,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
            Fault::Chunk,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n",
            Fault::Chunk,
        ),
    ]);
}

/// Expected content, and whether the connection may be used again.
#[test]
fn where_responses_end() {
    for (is_head, stream, content, is_reusable) in [
        (false, &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..], "ok", true),
        (false, b"HTTP/1.1 200\nContent-Length: 2\n\nok", "ok", true),
        (false, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "ok", true),
        (false, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n", "ok", false),
        (false, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, Close\r\n\r\nok", "ok", false),
        (false, b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", false),
        (false, b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok", "ok", true),
        (false, b"HTTP/1.1 200 OK\r\n\r\nto the end", "to the end", false),
        (false, b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "", true),
        (false, b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "", false),
        (false, b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", "", false),
        (false, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "", true),
        (false, b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", "", true),
        (true, b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", "", true),
        (true, b"HTTP/1.1 200 OK\r\n\r\n", "", true),
        (false, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 P\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", true),
        (false, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1 \t;x\r\nk\r\n0\r\n\r\n", "ok", true),
        (false, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", false),
    ] {
        let (outcome, fault) = read(is_head, [stream]);
        let text = String::from_utf8_lossy(stream);
        assert_eq!(fault, None, "{text:?}");
        assert_eq!(outcome.content, content.as_bytes(), "{text:?}");
        assert_eq!(outcome.is_reusable, is_reusable, "{text:?}");
        let seed = if is_head { 0 } else { 1 };
        check(&[&[seed], stream].concat());
    }
}

/// As in RFC 9110, section 8.6.
#[test]
fn lengths_of_responses_without_content() {
    for (is_head, status, length) in [
        (false, "204 No Content", None),
        (true, "204 No Content", None),
        (false, "101 Switching Protocols", None),
        (false, "304 Not Modified", Some("5")),
        (true, "200 OK", Some("5")),
    ] {
        let stream = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\n");
        let (outcome, fault) = read(is_head, [stream.as_bytes()]);
        let told = outcome.fields.get(CONTENT_LENGTH);
        let told = told.map(|value| value.to_str().unwrap());
        assert_eq!((told, fault), (length, None), "{status}");
        let seed = if is_head { 0 } else { 1 };
        check(&[&[seed], stream.as_bytes()].concat());
    }
}

#[test]
fn what_a_status_is_called() {
    for (line, reason) in [
        ("200 OK", None),
        ("404 Not Found", None),
        ("404 not found", Some("not found")),
        ("201 Made", Some("Made")),
        ("200 ", Some("")),
        ("200", Some("")),
        ("520", Some("")),
        ("520 Odd  one ", Some("Odd  one ")),
    ] {
        let stream = format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n");
        let (outcome, fault) = read(false, [stream.as_bytes()]);
        assert_eq!(
            (outcome.reason.as_deref(), fault),
            (reason.map(str::as_bytes), None)
        );
        check(&[b"\x01", stream.as_bytes()].concat());
    }
}

/// The number of chunks is not limited, even if each size is padded, as old servers send them.
#[test]
fn long_bodies_of_padded_chunks() {
    let mut stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..10_000 {
        stream.extend_from_slice(b"2    \r\nok\r\n");
    }
    stream.extend_from_slice(b"0    \r\n\r\n");
    let (outcome, fault) = read(false, [&stream[..]]);
    assert_eq!((outcome.content.len(), fault), (20_000, None));
    assert!(outcome.is_reusable);
}

#[test]
fn heads_are_bounded() {
    let status = "HTTP/1.1 200 OK\r\n";
    let head = |fill: usize| {
        let value = "x".repeat(fill - status.len() - "A: \r\n\r\n".len());
        format!("{status}A: {value}\r\n\r\n").into_bytes()
    };
    assert_eq!(read(true, [&head(HEAD_BYTES)[..]]).1, None);
    check(&[b"\0", &head(HEAD_BYTES)[..]].concat());
    let long = head(HEAD_BYTES + 1);
    assert_eq!(read(true, [&long[..]]).1, Some(Fault::TooLong));
    assert_eq!(read(true, long.chunks(1000)).1, Some(Fault::TooLong));
    // Interim heads count towards the limit, so that their number is bounded.
    let interim = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(HEAD_BYTES / 20);
    assert_eq!(read(false, interim.chunks(777)).1, Some(Fault::TooLong));
    let fields = |count: usize| {
        let lines: String = (0..count).map(|n| format!("x-{n}: y\r\n")).collect();
        format!("{status}{lines}\r\n").into_bytes()
    };
    assert_eq!(read(true, [&fields(100)[..]]).1, None);
    assert_eq!(read(true, [&fields(101)[..]]).1, Some(Fault::TooLong));
}
