//! HTTP/2 from clients that do what they should not: the rules of HTTP/1 for requests, and limits of frames and fields.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::h2_frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, Outcome, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, get, push_number, request,
};
use crate::server::{Server, directory, metric, noise, until};
use crate::tls;

struct Site {
    directory: TempDir,
    server: Server,
}

impl Site {
    fn start(options: &[&str]) -> Self {
        let big = noise(8_000_000);
        let directory = tls::with_site(&[("site/f", b"file"), ("site/big", &big)]);
        let options = [&["--metrics", "127.0.0.1:0"], options].concat();
        let server = tls::start(&directory, &options);
        Self { directory, server }
    }

    fn certificate(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    fn connect(&self) -> Http2 {
        Http2::connect(self.server.address(), &self.certificate())
    }

    fn serves(&self) {
        let mut client = self.connect();
        client.send(&get(1, "/f"));
        assert_eq!(client.outcome(1), Outcome::Status(200));
    }
}

type Fields<'a> = &'a [(&'a [u8], &'a [u8])];

/// The outcome of a GET with this authority, this path and these other fields.
fn get_outcome(site: &Site, authority: Option<&[u8]>, path: &[u8], others: Fields) -> Outcome {
    outcome(site, [b"GET", b"https", path], authority, others)
}

fn outcome(
    site: &Site,
    [method, scheme, path]: [&[u8]; 3],
    authority: Option<&[u8]>,
    others: Fields,
) -> Outcome {
    let mut fields = vec![
        (&b":method"[..], method),
        (b":scheme", scheme),
        (b":path", path),
    ];
    fields.extend(authority.map(|authority| (&b":authority"[..], authority)));
    fields.extend(others);
    let mut client = site.connect();
    client.send(&request(1, &fields));
    client.outcome(1)
}

fn assert_malformed(what: &[u8], outcome: Outcome) {
    let is_it = matches!(
        outcome,
        Outcome::Status(400) | Outcome::Reset(PROTOCOL_ERROR)
    );
    let is_it = is_it || outcome == Outcome::Ended(Some(PROTOCOL_ERROR));
    assert!(is_it, "{:?}: {outcome:?}", String::from_utf8_lossy(what));
}

const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 0xb;

const TEST: Option<&[u8]> = Some(b"test:8443");

#[test]
fn targets_that_http_1_refuses_are_refused() {
    let site = Site::start(&[]);
    for path in [&b"/f"[..], b"/f?a=b|c", b"/f?`", b"/%66"] {
        assert_eq!(
            get_outcome(&site, TEST, path, &[]),
            Outcome::Status(200),
            "{path:?}"
        );
    }
    let asterisk = outcome(&site, [b"OPTIONS", b"https", b"*"], TEST, &[]);
    assert_eq!(asterisk, Outcome::Status(204));
    for path in [
        &b"*"[..],
        b"PRI",
        b"f",
        b"",
        b"?f",
        b"/f x",
        b"/\xc3\xbc",
        b"/\xff",
        b"/f<",
        b"/f\"",
        b"*f",
        b"http://test/f",
        b"/f\x7f",
        b"/f\t",
    ] {
        assert_malformed(path, get_outcome(&site, TEST, path, &[]));
    }
    for (what, request) in [
        ("an empty scheme", [&b"GET"[..], b"", b"/f"]),
        ("another scheme", [b"GET", b"ftp", b"/f"]),
        ("no method", [b"", b"https", b"/f"]),
        ("two words", [b"G T", b"https", b"/f"]),
    ] {
        assert_malformed(what.as_bytes(), outcome(&site, request, TEST, &[]));
    }
    // Tunnels are refused in any form.
    let mut client = site.connect();
    client.send(&request(
        1,
        &[(b":method", b"CONNECT"), (b":authority", b"test:1")],
    ));
    assert_eq!(client.outcome(1), Outcome::Status(405));
}

#[test]
fn hosts_that_http_1_refuses_are_refused() {
    let site = Site::start(&[]);
    let with_host = |host: &[u8]| get_outcome(&site, None, b"/f", &[(b"host", host)]);
    assert_eq!(with_host(b"test"), Outcome::Status(200));
    for (authority, host) in [
        (&b"test:8443"[..], &b"TEST:8443"[..]),
        (b"[::1]:443", b"[::1]"),
    ] {
        let both = get_outcome(&site, Some(authority), b"/f", &[(b"host", host)]);
        assert_eq!(both, Outcome::Status(200));
    }
    for host in [
        &b"a b"[..],
        b"a\tb",
        b"a/b",
        b"u@a",
        b"u:p@a",
        b"a?b",
        b"a#b",
        b"a<b",
        b"a,b",
        b"a\"b",
        b"a\\b",
        b"[]",
        b"[:]",
        b"[::1",
        b"a:b",
        b"a:123456",
        b"a:1:2",
        b"",
        b"%61",
        b"\xc3\xbc",
    ] {
        assert_malformed(host, with_host(host));
        assert_malformed(host, get_outcome(&site, Some(host), b"/f", &[]));
    }
    assert_malformed(b"no host", get_outcome(&site, None, b"/f", &[]));
    for others in [
        &[(&b"host"[..], &b"other"[..])][..],
        &[(b"host", b"test:1")],
        &[(b"host", b"test:8443"), (b"host", b"test:8443")],
    ] {
        assert_malformed(others[0].1, get_outcome(&site, TEST, b"/f", others));
    }
}

#[test]
fn fields_that_http_1_refuses_are_refused() {
    let site = Site::start(&[]);
    let with = |others: Fields| get_outcome(&site, TEST, b"/f", others);
    assert_eq!(
        with(&[(b"x!", b"a\tb\xff"), (b"y", b"")]),
        Outcome::Status(200)
    );
    for (name, value) in [
        (&b"a\"b"[..], &b"c"[..]),
        (b"a b", b"c"),
        (b"A", b"c"),
        (b"", b"c"),
        (b"a:b", b"c"),
        (b"a", b"b\r\nc: d"),
        (b"a", b" b"),
        (b"a", b"b\t"),
        (b"a", b"b\0"),
        (b"content-length", b"+0"),
        (b"transfer-encoding", b"chunked"),
        (b"connection", b"close"),
    ] {
        assert_malformed(name, with(&[(name, value)]));
    }
    let length = (&b"content-length"[..], &b"0"[..]);
    assert_malformed(b"two lengths", with(&[length, length]));
}

fn with_fields(stream: u32, name: impl Fn(usize) -> String, count: usize) -> Vec<u8> {
    let mut all = block(&[
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":authority", b"test"),
        (b":path", b"/f"),
    ]);
    for number in 0..count {
        all.extend(block(&[(name(number).as_bytes(), b"a=b")]));
    }
    let mut pieces = all.chunks(16_000);
    let first = pieces.next().unwrap();
    let mut frames = frame(HEADERS, END_STREAM, stream, first);
    for piece in pieces {
        frames.extend(frame(CONTINUATION, 0, stream, piece));
    }
    frames.extend(frame(CONTINUATION, END_HEADERS, stream, b""));
    frames
}

#[test]
fn fields_have_the_limit_of_http_1() {
    let site = Site::start(&["--metrics", "127.0.0.1:0"]);
    let each = |number| format!("x-{number}");
    for (count, status) in [(100, 200), (101, 431), (400, 431)] {
        let mut client = site.connect();
        client.send(&with_fields(1, each, count));
        assert_eq!(client.outcome(1), Outcome::Status(status), "{count}");
    }
    // Header fields as browsers send them.
    let mut client = site.connect();
    for turn in 0..100 {
        let stream = 2 * turn + 1;
        client.send(&with_fields(stream, |_| "cookie".into(), 180));
        assert_eq!(client.outcome(stream), Outcome::Status(200));
    }
    let page = crate::client::Client::connect(site.server.metrics()).get("/metrics");
    let samples = page.text();
    let counted = "softclock_limits_reached_total{limit=\"request_fields\"} 2\n";
    assert!(samples.contains(counted), "{samples}");
    site.server.until_logged("limit reached");
}

/// With 1000 fields, and with 300, which are read and refused.
#[test]
fn clients_that_go_on_with_too_many_fields_are_let_go() {
    let site = Site::start(&[]);
    for (count, requests) in [(1_000, 2), (300, 10)] {
        let each = |number| format!("x-{number}");
        let mut client = site.connect();
        let mut refused = 0;
        while client.send(&with_fields(2 * refused + 1, each, count)) {
            match client.outcome(2 * refused + 1) {
                Outcome::Status(431) => refused += 1,
                Outcome::Ended(Some(ENHANCE_YOUR_CALM) | None) => break,
                outcome => panic!("{count}: {outcome:?}"),
            }
            assert!(refused <= requests, "{count}");
        }
    }
    site.serves();
}

/// The frames of a turn.
type Frames<'a> = &'a dyn Fn(u32) -> Vec<u8>;

#[test]
fn floods_of_control_frames_end_the_connection() {
    let site = Site::start(&[]);
    let ids = |turn: u32| 2 * turn + 1;
    let kinds: [(&str, Frames); 8] = [
        ("SETTINGS", &|_| frame(SETTINGS, 0, 0, b"")),
        ("SETTINGS with values", &|_| {
            frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255].repeat(100))
        }),
        ("PING", &|_| frame(PING, 0, 0, b"12345678")),
        ("PING as an answer", &|_| frame(PING, 1, 0, b"12345678")),
        ("PRIORITY", &|turn| {
            frame(PRIORITY, 0, ids(turn), &[0, 0, 0, 0, 9])
        }),
        ("WINDOW_UPDATE", &|_| {
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])
        }),
        ("unknown", &|_| frame(99, 0, 0, b"")),
        ("unknown and large", &|_| frame(99, 0, 0, &[0; 16_000])),
    ];
    for (what, frames) in kinds {
        let before = site.server.reached("control_frames");
        let mut client = site.connect();
        let ended = client.ends_within(5_000_000, |turn| {
            (0..50).flat_map(|each| frames(50 * turn + each)).collect()
        });
        assert!(ended, "without end: {what}");
        assert_eq!(
            site.server.reached("control_frames"),
            before + 1.0,
            "{what}"
        );
        site.serves();
    }
    site.server.until_logged("limit=\"control_frames\"");
}

/// The frames belong to one upload, whose stream stays open.
#[test]
fn floods_of_empty_data_end_the_connection() {
    let site = Site::start(&[]);
    let mut client = site.connect();
    let head = block(&[
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"test"),
        (b":path", b"/f"),
    ]);
    client.send(&frame(HEADERS, END_HEADERS, 1, &head));
    let empty = frame(DATA, 0, 1, b"").repeat(50);
    assert!(
        client.ends_within(5_000_000, |_| empty.clone()),
        "without end"
    );
    assert_eq!(site.server.reached("http2_flood"), 1.0);
    site.server.until_logged("limit=\"http2_flood\"");
    site.serves();
}

/// A window and a PING for each piece of a large download, and for each of many small ones.
#[test]
fn clients_that_acknowledge_each_piece_are_served() {
    let site = Site::start(&["--max-control-frames", "100"]);
    let mut client = site.connect();
    let mut taken = 0;
    client.send(&get(1, "/big"));
    while taken < 8_000_000 {
        let piece = client.next().expect("the download goes on");
        if piece.kind == DATA && !piece.payload.is_empty() {
            taken += piece.payload.len();
            let room = u32::try_from(piece.payload.len()).unwrap().to_be_bytes();
            let mut frames = frame(PING, 0, 0, b"12345678");
            for stream in [0, 1]
                .iter()
                .filter(|&&stream| stream == 0 || taken < 8_000_000)
            {
                frames.extend(frame(WINDOW_UPDATE, 0, *stream, &room));
            }
            assert!(client.send(&frames));
        }
    }
    for stream in (3..2_000).step_by(2) {
        let priority = frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 9]);
        client.send(&[priority, get(stream, "/f"), frame(PING, 0, 0, b"12345678")].concat());
        assert_eq!(client.outcome(stream), Outcome::Status(200), "{stream}");
        client.send(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 4]));
    }
}

/// CVE-2023-44487, with requests that take their time.
#[test]
fn rapid_reset_ends_the_connection() {
    let site = Site::start(&[]);
    let mut client = site.connect();
    let ended = client.ends_within(5_000_000, |turn| {
        let streams = (100 * turn..100 * turn + 100).map(|number| 2 * number + 1);
        let both = streams.flat_map(|stream| {
            [
                get(stream, "/big"),
                frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
            ]
        });
        both.flatten().collect()
    });
    assert!(ended, "without end");
    site.serves();
}

/// CVE-2024-27316: a head without an end.
#[test]
fn continuation_floods_end_the_connection() {
    let site = Site::start(&[]);
    for piece in [&b""[..], &block(&[(b"x", b"y")]), &[0x82; 10_000]] {
        let mut client = site.connect();
        client.send(&frame(HEADERS, 0, 1, &block(&[(b":method", b"GET")])));
        let more = frame(CONTINUATION, 0, 1, piece);
        assert!(
            client.ends_within(5_000_000, |_| more.clone()),
            "without end"
        );
    }
    site.serves();
}

/// The crate h2 itself refuses such a request, so the site does not see it.
#[test]
fn heads_that_are_too_long_are_refused_and_counted() {
    let logs = directory(&[]);
    let log = logs.path().join("access.log");
    let log_option = log.display().to_string();
    let site = Site::start(&["--max-head", "3000", "--access-log", &log_option]);
    let long = [b'a'; 5_000];
    let outcome = get_outcome(&site, TEST, b"/f", &[(b"x", &long)]);
    assert_eq!(outcome, Outcome::Status(431));
    site.serves();
    assert_eq!(site.server.reached("request_head"), 1.0);
    site.server.until_logged("limit=\"request_head\"");
    let refused = "softclock_http_responses_total{method=\"other\",class=\"4xx\"}";
    assert_eq!(metric(site.server.metrics(), refused), 1.0);
    until("the line", || {
        fs::read_to_string(&log).is_ok_and(|log| log.contains("] \"-\" 431 -\n"))
    });
}

/// A large field in the dynamic table, referenced again and again by one byte.
#[test]
fn hpack_bombs_are_refused() {
    let site = Site::start(&[]);
    let before = site.server.peak_resident_kb();
    for references in [100, 1_000, 16_000] {
        let mut client = site.connect();
        let mut bomb = block(&[
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", b"test"),
            (b":path", b"/f"),
        ]);
        bomb.push(0x40);
        push_number(&mut bomb, 0, 7, 1);
        bomb.push(b'x');
        push_number(&mut bomb, 0, 7, 4_000);
        bomb.extend([b'v'; 4_000]);
        bomb.resize(bomb.len() + references, 0xbe);
        let mut outcomes = Vec::new();
        for turn in 0..50 {
            let stream = 2 * turn + 1;
            let mut pieces = bomb.chunks(16_000);
            let mut frames = frame(HEADERS, END_STREAM, stream, pieces.next().unwrap());
            pieces.for_each(|piece| frames.extend(frame(CONTINUATION, 0, stream, piece)));
            frames.extend(frame(CONTINUATION, END_HEADERS, stream, b""));
            if !client.send(&frames) {
                break;
            }
            outcomes.push(client.outcome(stream));
            if matches!(outcomes.last(), Some(Outcome::Ended(_))) {
                break;
            }
        }
        let are_refusals = outcomes.iter().all(|outcome| {
            matches!(
                outcome,
                Outcome::Status(431) | Outcome::Reset(_) | Outcome::Ended(_)
            )
        });
        assert!(are_refusals, "{references}: {outcomes:?}");
    }
    let more = site.server.peak_resident_kb() - before;
    assert!(more < 50_000, "{more} kB");
    site.serves();
}
