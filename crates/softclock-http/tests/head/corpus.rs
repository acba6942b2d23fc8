//! Requests with the expected results, including known smuggling attacks.

use softclock_http::head::{Fault, HeadLimits, Position, Scanner};

use crate::target::{LIMITS, check, messages, scan};

/// The stream, the number of requests before the fault, and the fault if there is one.
type Case = (&'static [u8], usize, Option<Fault>);

fn judge(cases: &[Case]) {
    for &(stream, requests, fault) in cases {
        let outcome = scan([stream]);
        let text = String::from_utf8_lossy(stream);
        assert_eq!(outcome.fault, fault, "{text:?}");
        let passed = messages(&outcome.passed).len();
        assert_eq!(passed, requests, "{text:?}");
        check(&[b"\0", stream].concat());
    }
}

#[test]
fn requests_that_pass() {
    judge(&[
        (b"", 0, None),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1, None),
        (b"GET / HTTP/1.0\r\n\r\n", 1, None),
        (b"GET / HTTP/1.1\r\nHost: \t h:80 \t \r\n\r\n", 1, None),
        (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 1, None),
        (b"GET / HTTP/1.1\r\nhOST:h\r\nX:\r\nY: \r\n\r\n", 1, None),
        (b"GET /|^{}[]\\~'(!$&*+,;=:@%zz HTTP/1.1\r\nHost: h\r\n\r\n", 1, None),
        (b"GET /?`?/|^{}[]\\ HTTP/1.1\r\nHost: h\r\n\r\n", 1, None),
        (b"GET HTTPS://[::1]:8/ HTTP/1.1\r\nHost: h\r\n\r\n", 1, None),
        (b"GET http://h?q HTTP/1.1\r\nHost: h\r\n\r\n", 1, None),
        (b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 1, None),
        (b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", 1, None),
        (b"M-SEARCH / HTTP/1.1\r\nHost: h\r\n\r\n", 1, None),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: \x80\xff \"<>#\r\n\r\n", 1, None),
        // One empty line before a request (RFC 9112, section 2.2).
        (b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 1, None),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\r\nGET / HTTP/1.0\r\n\r\n", 2, None),
        (b"POST / HTTP/1.1\r\nHost: h\r\ncontent-length: 007 \r\n\r\n1234567GET / HTTP/1.0\r\n\r\n", 2, None),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", 1, None),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\tchunked \r\n\r\nA\r\n0123456789\r\n00\r\nT: x\r\n\r\nGET / HTTP/1.0\r\n\r\n", 2, None),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a;b=c;d=\"e f\"\r\nx\r\n0;z\r\n\r\n", 1, None),
        (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.0\r\n\r\n", 2, None),
        // A body that looks like a request is still a body.
        (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.0\r\n\r\n", 1, None),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9223372036854775807\r\n\r\nx", 1, None),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX-Transfer-Encoding: x\r\nContent-Length-: x\r\n\r\n", 1, None),
    ]);
}

#[test]
fn lengths_in_doubt() {
    const LENGTH: Option<Fault> = Some(Fault::Length);
    judge(&[
        // CL.TE and TE.CL.
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", 0, Some(Fault::LengthAndCoding)),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n8\r\nSMUGGLED\r\n0\r\n\r\n", 0, Some(Fault::LengthAndCoding)),
        // CL.CL.
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\nContent-Length: 7\r\n\r\n12345\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1 1\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1.0\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9223372036854775808\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551617\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\xb2\r\n\r\na", 0, LENGTH),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 1\r\n\r\na", 0, Some(Fault::Name)),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent\\Length: 1\r\n\r\na", 0, Some(Fault::Name)),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n Content-Length: 2\r\n\r\na", 0, Some(Fault::Folding)),
    ]);
}

#[test]
fn codings_in_doubt() {
    const CODING: Option<Fault> = Some(Fault::Coding);
    const UNKNOWN: Option<Fault> = Some(Fault::UnknownCoding);
    // TE.TE: one parser treats the field as chunked, another does not.
    let head = "POST / HTTP/1.1\r\nHost: h\r\n";
    for (field, fault) in [
        ("Transfer-Encoding: xchunked", UNKNOWN),
        ("Transfer-Encoding: chun ked", UNKNOWN),
        ("Transfer-Encoding: \"chunked\"", UNKNOWN),
        ("Transfer-Encoding: gzip, chunked", UNKNOWN),
        ("Transfer-Encoding: identity", UNKNOWN),
        ("Transfer-Encoding: , chunked", UNKNOWN),
        ("Transfer-Encoding: chunked, identity", CODING),
        ("Transfer-Encoding: chunked, chunked", CODING),
        ("Transfer-Encoding: chunked;x=y", CODING),
        ("Transfer-Encoding: chunkedx", CODING),
        ("Transfer-Encoding:", CODING),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            CODING,
        ),
        ("Transfer-Encoding: chunked\r\nTransfer-encoding: x", CODING),
        ("Transfer-Encoding : chunked", Some(Fault::Name)),
        ("Transfer-Encoding\t: chunked", Some(Fault::Name)),
        ("Transfer-Encoding\0: chunked", Some(Fault::Name)),
        (" Transfer-Encoding: chunked", Some(Fault::Folding)),
        ("X: y\r\n Transfer-Encoding: chunked", Some(Fault::Folding)),
        ("Transfer-Encoding:\r\n chunked", CODING),
        ("X: y\nTransfer-Encoding: chunked", Some(Fault::LineEnd)),
        ("X: y\rTransfer-Encoding: chunked", Some(Fault::LineEnd)),
        ("Transfer-Encoding: \x0bchunked", Some(Fault::Value)),
        ("Transfer-Encoding: chunked\0", Some(Fault::Value)),
        ("Transfer-Encoding: chunked\r\r", Some(Fault::LineEnd)),
    ] {
        let stream = format!("{head}{field}\r\n\r\n0\r\n\r\n");
        let outcome = scan([stream.as_bytes()]);
        assert_eq!(
            (outcome.fault, outcome.passed.len()),
            (fault, 0),
            "{stream:?}"
        );
        check(format!("\0{stream}").as_bytes());
    }
    judge(&[(
        b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        0,
        CODING,
    )]);
}

#[test]
fn chunks_in_doubt() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    const CHUNK: Fault = Fault::Chunk;
    for (body, passed, fault) in [
        ("\r\n", "", CHUNK),
        ("x\r\n", "", CHUNK),
        ("-1\r\n", "", CHUNK),
        ("+1\r\n", "", CHUNK),
        ("0x1\r\n", "", CHUNK),
        (" 1\r\n", "", CHUNK),
        ("1 \r\na\r\n", "", CHUNK),
        ("1 ;a\r\na\r\n", "", CHUNK),
        // Sizes that overflow 64, 32 or 31 bits.
        ("10000000000000001\r\na\r\n", "", CHUNK),
        ("ffffffffffffffff\r\na\r\n", "", CHUNK),
        ("8000000000000000\r\na\r\n", "", CHUNK),
        ("00000000000000001\r\na\r\n", "", CHUNK),
        // Line ends: LF alone, also at the end of an extension (TERM.EXT and EXT.TERM).
        ("1\na\r\n0\r\n\r\n", "", CHUNK),
        ("1;\nxx\r\n0\r\n\r\n", "", CHUNK),
        ("1;\rx\r\na\r\n", "", CHUNK),
        ("1\r\na\n0\r\n\r\n", "1\r\na", CHUNK),
        ("1\r\nab\r\n", "1\r\na", CHUNK),
        ("1\r\naXX\r\n0\r\n\r\n", "1\r\na", CHUNK),
        ("1\r\na\rX0\r\n\r\n", "1\r\na", CHUNK),
        ("1\rX\na\r\n", "", CHUNK),
        ("1;a=\x01\r\na\r\n", "", CHUNK),
        ("0\r\nX: y\n\r\n", "", Fault::LineEnd),
        ("0\r\nX : y\r\n\r\n", "", Fault::Name),
        ("0\r\n X: y\r\n\r\n", "", Fault::Folding),
        ("0\r\nContent-Length: 5\r\n\r\n", "", Fault::Trailer),
        (
            "0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "",
            Fault::Trailer,
        ),
        ("0\r\nHost: evil\r\n\r\n", "", Fault::Trailer),
        ("0\r\n\n", "", Fault::LineEnd),
        ("0\r\n\r\r", "", Fault::LineEnd),
    ] {
        let stream = format!("{head}{body}");
        let outcome = scan([stream.as_bytes()]);
        assert_eq!(outcome.fault, Some(fault), "{body:?}");
        assert_eq!(
            outcome.passed,
            format!("{head}{passed}").as_bytes(),
            "{body:?}"
        );
        check(format!("\0{stream}").as_bytes());
    }
}

#[test]
fn chunk_extensions_and_trailers_have_an_end() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let extension = format!("{head}1;{}", "a".repeat(9_000));
    assert_eq!(scan([extension.as_bytes()]).fault, Some(Fault::Trailer));
    let small = format!("{head}{}", "1;aaaaaaaa\r\nx\r\n".repeat(1_200));
    assert_eq!(scan([small.as_bytes()]).fault, Some(Fault::Trailer));
    let trailer = format!("{head}0\r\nX: {}", "a".repeat(9_000));
    assert_eq!(scan([trailer.as_bytes()]).fault, Some(Fault::Trailer));
    let trailers = format!("{head}0\r\n{}", "A: b\r\n".repeat(LIMITS.fields + 1));
    assert_eq!(
        scan([trailers.as_bytes()]).fault,
        Some(Fault::TooManyFields)
    );
}

#[test]
fn request_lines_in_doubt() {
    use Fault::{LineEnd, Method, Target, UnsupportedVersion, Version};
    for (line, fault) in [
        ("\r\n\r\nGET / HTTP/1.1\r\n", LineEnd),
        ("\nGET / HTTP/1.1\r\n", LineEnd),
        ("\rGET / HTTP/1.1\r\n", LineEnd),
        (" GET / HTTP/1.1\r\n", Method),
        ("\0", Method),
        ("\x16\x03\x01", Method),
        ("GET\t/ HTTP/1.1\r\n", Method),
        ("G\u{e9}T / HTTP/1.1\r\n", Method),
        ("GET\r\n", Method),
        ("GET  / HTTP/1.1\r\n", Target),
        ("GET  HTTP/1.1\r\n", Target),
        ("GET /\t HTTP/1.1\r\n", Target),
        ("GET /\0 HTTP/1.1\r\n", Target),
        ("GET /\x7f HTTP/1.1\r\n", Target),
        ("GET /\u{e9} HTTP/1.1\r\n", Target),
        ("GET /a#b HTTP/1.1\r\n", Target),
        ("GET /<a> HTTP/1.1\r\n", Target),
        ("GET a HTTP/1.1\r\n", Target),
        ("GET * HTTP/1.1\r\n", Target),
        ("GET ftp://h/ HTTP/1.1\r\n", Target),
        ("GET http:/h/ HTTP/1.1\r\n", Target),
        ("GET http:///p HTTP/1.1\r\n", Target),
        ("GET http://u@h/ HTTP/1.1\r\n", Target),
        ("GET http://h:x/ HTTP/1.1\r\n", Target),
        ("GET http://[::1/ HTTP/1.1\r\n", Target),
        ("CONNECT / HTTP/1.1\r\n", Target),
        ("CONNECT h/ HTTP/1.1\r\n", Target),
        ("GET /\r\n", Version),
        ("GET /\n", Version),
        ("GET / \r\n", Version),
        ("GET /  HTTP/1.1\r\n", Version),
        ("GET / http/1.1\r\n", Version),
        ("GET / HTTP/1.1 \r\n", Version),
        ("GET / HTTP/11\r\n", Version),
        ("GET / HTTP/1.12\r\n", Version),
        ("GET / HTTP/x.1\r\n", Version),
        ("GET / x HTTP/1.1\r\n", Version),
        ("GET / HTTP/1.2\r\n", UnsupportedVersion),
        ("GET / HTTP/2.0\r\n", UnsupportedVersion),
        ("GET / HTTP/0.9\r\n", UnsupportedVersion),
        ("PRI * HTTP/2.0\r\n", Target),
        ("GET / HTTP/1.1\n", LineEnd),
        ("GET / HTTP/1.1\rX", LineEnd),
    ] {
        let stream = format!("{line}Host: h\r\n\r\n");
        let outcome = scan([stream.as_bytes()]);
        assert_eq!(
            (outcome.fault, outcome.passed.len()),
            (Some(fault), 0),
            "{line:?}"
        );
        check(format!("\0{stream}").as_bytes());
    }
}

#[test]
fn fields_in_doubt() {
    use Fault::{Folding, Host, LineEnd, Name, Value};
    judge(&[
        (b"GET / HTTP/1.1\r\n\r\n", 0, Some(Host)),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            0,
            Some(Host),
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
            0,
            Some(Host),
        ),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 0, Some(Host)),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 0, Some(Host)),
        (b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 0, Some(Host)),
        (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 0, Some(Host)),
        (b"GET / HTTP/1.1\r\nHost: []\r\n\r\n", 0, Some(Host)),
        (b"GET / HTTP/1.1\r\nHost: [:]\r\n\r\n", 0, Some(Host)),
        (b"GET / HTTP/1.1\r\nHost: [1.2]\r\n\r\n", 0, Some(Host)),
        (b"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 0, Some(Host)),
        (b"GET / HTTP/1.1\r\nHost: h:99999999\r\n\r\n", 0, Some(Host)),
        (b"GET / HTTP/1.1\r\n Host: h\r\n\r\n", 0, Some(Folding)),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\n\tx\r\n\r\n",
            0,
            Some(Folding),
        ),
        (b"GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n", 0, Some(Name)),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX\r\n\r\n", 0, Some(Name)),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nX Y: z\r\n\r\n",
            0,
            Some(Name),
        ),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX(: z\r\n\r\n", 0, Some(Name)),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nX\x80: z\r\n\r\n",
            0,
            Some(Name),
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nX: \0\r\n\r\n",
            0,
            Some(Value),
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nX: \x1b[0m\r\n\r\n",
            0,
            Some(Value),
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nX: \x7f\r\n\r\n",
            0,
            Some(Value),
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
            0,
            Some(LineEnd),
        ),
        (b"GET / HTTP/1.1\r\nHost: h\n\r\n", 0, Some(LineEnd)),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\n", 0, Some(LineEnd)),
        // After a valid request.
        (
            b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            1,
            Some(Host),
        ),
    ]);
}

#[test]
fn limits_to_the_byte() {
    let limits = HeadLimits {
        line_bytes: 20,
        head_bytes: 60,
        fields: 2,
    };
    let verdict = |stream: String| {
        let mut scanner = Scanner::new(limits);
        scanner.scan(stream.as_bytes()).fault
    };
    let line = |n: usize| format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(n));
    assert_eq!(line(6).trim_end().len(), 20);
    assert_eq!(verdict(line(6)), None);
    assert_eq!(verdict(format!("\r\n{}", line(6))), None);
    assert_eq!(verdict(line(7)), Some(Fault::LineTooLong));
    let head = |n: usize| format!("GET / HTTP/1.0\r\nX: {}\r\n\r\n", "a".repeat(n));
    assert_eq!(head(37).len(), 60);
    assert_eq!(verdict(head(37)), None);
    assert_eq!(verdict(head(38)), Some(Fault::HeadTooLong));
    let fields = |n: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(n));
    assert_eq!(verdict(fields(2)), None);
    assert_eq!(verdict(fields(3)), Some(Fault::TooManyFields));
}

#[test]
fn nothing_is_scanned_behind_a_request_for_an_upgrade() {
    let head = |version: &str, fields: &str| format!("GET / {version}\r\nHost: h\r\n{fields}\r\n");
    let behind = "\0\r\nnot HTTP";
    for (request, stops) in [
        (
            head("HTTP/1.1", "Upgrade: websocket\r\nConnection: upgrade\r\n"),
            true,
        ),
        (head("HTTP/1.1", "uPGRADE:\r\nContent-Length: 0\r\n"), true),
        (
            head("HTTP/1.0", "Upgrade: websocket\r\nConnection: upgrade\r\n"),
            false,
        ),
        (head("HTTP/1.1", "Upgrade-Insecure-Requests: 1\r\n"), false),
        (
            head("HTTP/1.1", "Upgrade: a\r\nContent-Length: 1\r\n") + "x",
            false,
        ),
        (
            head("HTTP/1.1", "Transfer-Encoding: chunked\r\n") + "0\r\nUpgrade: a\r\n\r\n",
            false,
        ),
    ] {
        let stream = [&request, behind].concat();
        let mut scanner = Scanner::new(HeadLimits::default());
        let scanned = scanner.scan(stream.as_bytes());
        assert_eq!(scanned.passed, request.len(), "{request}");
        assert_eq!(scanned.fault.is_none(), stops, "{request}");
        assert_eq!(scanner.position() == Position::Upgrade, stops, "{request}");
        if stops {
            assert_eq!(scanner.scan(behind.as_bytes()).passed, 0);
            scanner.resume();
            assert_eq!(scanner.position(), Position::Between);
            assert_eq!(scanner.scan(behind.as_bytes()).fault, Some(Fault::Method));
        }
    }
}

#[test]
fn positions() {
    let mut scanner = Scanner::new(HeadLimits::default());
    let mut at = |bytes: &[u8]| {
        scanner.scan(bytes);
        scanner.position()
    };
    assert_eq!(at(b""), Position::Between);
    assert_eq!(at(b"\r"), Position::Head);
    assert_eq!(
        at(b"\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r"),
        Position::Head
    );
    assert_eq!(at(b"\n"), Position::Body);
    assert_eq!(at(b"xx"), Position::Between);
    assert_eq!(at(b"\0"), Position::Refused);
    assert_eq!(at(b"GET"), Position::Refused);
}
