//! Properties that hold for arbitrary bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::target::{check, messages, read_with_hyper, scan};

/// Valid and invalid pieces of requests, from which streams can be made that are invalid only late.
const PIECES: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /a?b=c HTTP/1.1\r\nHost: h\r\n",
    b"POST / HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /x HTTP/1.0\r\nContent-Length: 2\r\n\r\nab",
    b"OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n",
    b"GET http://h:80/p HTTP/1.1\r\nHost: h\r\n\r\n",
    b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"5;a=\"b c\"\r\nhello\r\n",
    b"Content-Length: 4\r\n",
    b"Content-Length:5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Host: h\r\n",
    b"Connection: close\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"A: b\r\n",
    b" folded\r\n",
    b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
    b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b"\0",
    b"\x80\xff",
    b"HTTP/1.1",
    b"ffffffffffffffff\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => select(PIECES).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 1..4),
    ];
    vec(piece, 1..10).prop_map(|pieces| pieces.concat())
}

/// A request line and fields, in which one byte of any value is replaced or inserted at any place.
fn nearly_good_head() -> impl Strategy<Value = Vec<u8>> {
    let base = b"\r\nGET http://host.example:8080/p/a?q=r HTTP/1.1\r\nHost: host.example:80\r\n\
        Content-Length: 0\r\nX-Y: some value\r\n\r\n";
    (0..base.len(), any::<u8>(), any::<bool>()).prop_map(|(place, byte, insert)| {
        let mut head = base.to_vec();
        match insert {
            true => head.insert(place, byte),
            false => head[place] = byte,
        }
        head
    })
}

fn good_request() -> impl Strategy<Value = Vec<u8>> {
    let path = "/[a-z0-9%/|^~!$&'()*+,;=:@-]{0,20}";
    let query = "(\\?[a-z0-9%/?|^`{}~=&+]{0,20})?";
    let fields = vec(("[A-Z][a-zA-Z0-9!#_|~-]{0,9}", "[ -~\\t]{0,20}"), 0..4);
    let body = vec(any::<u8>(), 0..50);
    (path, query, fields, body, any::<bool>()).prop_map(|(path, query, fields, body, chunked)| {
        let mut request = format!("POST {path}{query} HTTP/1.1\r\nHost: h\r\n").into_bytes();
        for (name, value) in fields {
            request.extend(format!("X-{name}: {value}\r\n").bytes());
        }
        if chunked {
            request.extend(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(7) {
                request.extend(format!("{:x}\r\n", chunk.len()).bytes());
                request.extend(chunk);
                request.extend(b"\r\n");
            }
            request.extend(b"0\r\n\r\n");
        } else {
            request.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
            request.extend(body);
        }
        request
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn arbitrary_bytes(data in vec(any::<u8>(), 0..300)) {
        check(&data);
    }

    #[test]
    fn mixed_pieces(seed: u8, stream in stream()) {
        check(&[&[seed][..], &stream].concat());
    }

    #[test]
    fn a_byte_off(seed: u8, head in nearly_good_head()) {
        check(&[&[seed][..], &head].concat());
    }

    #[test]
    fn pipelines_are_framed_as_hyper_frames_them(requests in vec(good_request(), 1..6)) {
        let stream = requests.concat();
        let outcome = scan([&stream[..]]);
        prop_assert_eq!(outcome.fault, None);
        let framed = messages(&outcome.passed);
        prop_assert_eq!(framed.len(), requests.len());
        for (message, request) in framed.iter().zip(&requests) {
            prop_assert_eq!(&message.bytes, request);
        }
        let (bodies, result) = read_with_hyper(&stream);
        prop_assert!(result.is_ok(), "{:?}", result);
        prop_assert_eq!(bodies.len(), requests.len());
        prop_assert!(bodies.iter().all(Option::is_some));
    }
}
