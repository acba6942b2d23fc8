//! Requests that two parsers could read in two ways: refused, or passed on in a form with one reading.

use crate::server::Server;
use crate::upstream::{Upstream, proxy};

/// The bytes that the upstream must not parse as a request.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";

/// Sent behind each request on the same connection.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

fn upstream() -> Upstream {
    Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

/// The statuses that a client gets for `request` and [`NEXT`].
fn statuses(proxy: &Server, request: &str) -> Vec<String> {
    let mut client = proxy.connect();
    client.try_send(format!("{request}{NEXT}").as_bytes());
    let answers = String::from_utf8_lossy(&client.rest()).into_owned();
    // An answer's text may name the version, too.
    let statuses = answers.split("HTTP/1.1 ").filter_map(|line| line.get(..3));
    let is_status = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    statuses.filter(is_status).map(str::to_owned).collect()
}

/// Header fields beside Host, and a body, of requests that are to be refused.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "CL.TE",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "TE.CL",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "5c\r\n",
    ),
    (
        "CL of 0 and TE",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "",
    ),
    ("two lengths", "Content-Length: 0\r\nContent-Length: 33", ""),
    (
        "two equal lengths",
        "Content-Length: 0\r\nContent-Length: 0",
        "",
    ),
    ("a list of lengths", "Content-Length: 0, 33", ""),
    ("a signed length", "Content-Length: +0", ""),
    ("a negative length", "Content-Length: -1", ""),
    ("a hexadecimal length", "Content-Length: 0x0", ""),
    ("a length with a space within", "Content-Length: 0 33", ""),
    (
        "a length beyond 64 bits",
        "Content-Length: 18446744073709551616",
        "",
    ),
    ("an empty length", "Content-Length: ", ""),
    (
        "a space before the colon of a length",
        "Content-Length : 33",
        "",
    ),
    (
        "a space before the colon of a coding",
        "Transfer-Encoding : chunked",
        "0\r\n\r\n",
    ),
    (
        "a tab before the colon of a coding",
        "Transfer-Encoding\t: chunked",
        "0\r\n\r\n",
    ),
    (
        "a folded coding",
        "Transfer-Encoding:\r\n chunked",
        "0\r\n\r\n",
    ),
    (
        "a folded field that hides a coding",
        "X: y\r\n Transfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "a coding behind a bare LF",
        "X: y\nTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "a coding behind a bare CR",
        "X: y\rTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "a coding with a vertical tab",
        "Transfer-Encoding: \x0bchunked",
        "0\r\n\r\n",
    ),
    (
        "a coding with a NUL",
        "Transfer-Encoding: chunked\0",
        "0\r\n\r\n",
    ),
    (
        "a coding with another",
        "Transfer-Encoding: chunked, identity",
        "0\r\n\r\n",
    ),
    (
        "another coding first",
        "Transfer-Encoding: identity, chunked",
        "0\r\n\r\n",
    ),
    (
        "a coding twice",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "a coding and none",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "0\r\n\r\n",
    ),
    (
        "a coding in quotes",
        "Transfer-Encoding: \"chunked\"",
        "0\r\n\r\n",
    ),
    (
        "a coding with a parameter",
        "Transfer-Encoding: chunked;x=y",
        "0\r\n\r\n",
    ),
    ("no such coding", "Transfer-Encoding: xchunked", "0\r\n\r\n"),
    ("an empty coding", "Transfer-Encoding:", "0\r\n\r\n"),
    (
        "a name that begins with a space",
        " Transfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "a name with a vertical tab",
        "\x0bTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    ("another Host", "Host: other", ""),
];

#[test]
fn ambiguous_heads_are_refused() {
    let upstream = upstream();
    let proxy = proxy(&[&upstream.url()], &[]);
    for (name, fields, body) in REFUSED {
        let request = format!("POST /first HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}{HIDDEN}");
        let statuses = statuses(&proxy, &request);
        assert!(
            matches!(&statuses[..], [one] if ["400", "501"].contains(&one.as_str())),
            "{name}: {statuses:?}"
        );
        assert!(upstream.seen().is_empty(), "{name}: {:?}", upstream.seen());
    }
}

/// Bodies with malformed chunks: the upstream may see the request's start, and nothing behind it.
const BROKEN_CHUNKS: &[(&str, &str)] = &[
    ("a size that ends with LF", "2\nab\r\n0\r\n\r\n"),
    ("a chunk that ends with LF", "2\r\nab\n0\r\n\r\n"),
    ("a chunk longer than its size", "2\r\nabc\r\n0\r\n\r\n"),
    ("a size with a sign", "+2\r\nab\r\n0\r\n\r\n"),
    ("a size with 0x", "0x2\r\nab\r\n0\r\n\r\n"),
    ("a size with a space before it", " 2\r\nab\r\n0\r\n\r\n"),
    (
        "a size beyond 64 bits",
        "10000000000000002\r\nab\r\n0\r\n\r\n",
    ),
    ("no size", "\r\nab\r\n0\r\n\r\n"),
    ("an extension with LF", "2;x\ny\r\nab\r\n0\r\n\r\n"),
    ("an extension with CR", "2;x\ry\r\nab\r\n0\r\n\r\n"),
    ("a last chunk that ends with LF", "0\n\n"),
    ("a length as a trailer", "0\r\nContent-Length: 33\r\n\r\n"),
    (
        "a coding as a trailer",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    ("a folded trailer", "0\r\nX: y\r\n z\r\n\r\n"),
];

#[test]
fn broken_chunks_hide_no_request() {
    let upstream = upstream();
    let proxy = proxy(&[&upstream.url()], &[]);
    for (name, body) in BROKEN_CHUNKS {
        let head = "POST /first HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let statuses = statuses(&proxy, &format!("{head}{body}{HIDDEN}"));
        assert!(statuses.len() <= 1, "{name}: {statuses:?}");
        assert!(
            !statuses.contains(&"200".to_owned()),
            "{name}: {statuses:?}"
        );
        assert!(upstream.seen().is_empty(), "{name}: {:?}", upstream.seen());
    }
}

#[test]
fn what_is_unusual_but_clear_is_passed_on_as_one_request() {
    for (name, fields, body, content) in [
        (
            "a length with spaces around it",
            "Content-Length: \t 33  ".to_owned(),
            HIDDEN.to_owned(),
            HIDDEN,
        ),
        (
            "a length with zeros before it",
            "Content-Length: 0033".into(),
            HIDDEN.into(),
            HIDDEN,
        ),
        (
            "another case",
            "tRaNsFeR-eNcOdInG: ChUnKeD".into(),
            format!("21\r\n{HIDDEN}\r\n0\r\n\r\n"),
            HIDDEN,
        ),
        (
            "extensions",
            "Transfer-Encoding: chunked".into(),
            format!("21;a;b=\"c;d\"\r\n{HIDDEN}\r\n0;x\r\n\r\n"),
            HIDDEN,
        ),
        (
            "zeros before sizes",
            "Transfer-Encoding: chunked".into(),
            format!("0021\r\n{HIDDEN}\r\n000\r\n\r\n"),
            HIDDEN,
        ),
        (
            "trailers",
            "Transfer-Encoding: chunked".into(),
            format!("21\r\n{HIDDEN}\r\n0\r\nX: y\r\n\r\n"),
            HIDDEN,
        ),
        (
            "an empty body",
            "Content-Length: 0".into(),
            String::new(),
            "",
        ),
    ] {
        assert_eq!(HIDDEN.len(), 33);
        let upstream = upstream();
        let proxy = proxy(&[&upstream.url()], &[]);
        let request = format!("POST /first HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}");
        assert_eq!(statuses(&proxy, &request), ["200", "200"], "{name}");
        let seen = upstream.seen();
        let lines: Vec<_> = seen.iter().map(|request| request.line.as_str()).collect();
        assert_eq!(
            lines,
            ["POST /first HTTP/1.1", "GET /next HTTP/1.1"],
            "{name}"
        );
        assert_eq!(String::from_utf8_lossy(&seen[0].body), content, "{name}");
    }
}

#[test]
fn request_lines_that_hide_another_are_refused() {
    let upstream = upstream();
    let proxy = proxy(&[&upstream.url()], &[]);
    for line in [
        "GET /first HTTP/1.1\nX: y",
        "GET /first\rGET /hidden HTTP/1.1",
        "GET /first HTTP/1.1 HTTP/1.1",
        "GET /first\tHTTP/1.1",
        "GET /first\x0bHTTP/1.1",
        "GET /first%\x00 HTTP/1.1",
        "GET http://h@other/first HTTP/1.1",
        "GET /first HTTP/1.1 ",
        "GET /first HTTP/01.1",
        "GET /first http/1.1",
        "GET /first HTTP/3.0",
        "\0GET /first HTTP/1.1",
    ] {
        let statuses = statuses(&proxy, &format!("{line}\r\nHost: h\r\n\r\n"));
        assert!(
            matches!(&statuses[..], [one] if ["400", "505"].contains(&one.as_str())),
            "{line:?}: {statuses:?}"
        );
        assert!(
            upstream.seen().is_empty(),
            "{line:?}: {:?}",
            upstream.seen()
        );
    }
}
