//! Properties that hold for arbitrary bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::target::{check, read, read_after};

/// Valid and invalid pieces of responses, from which streams can be made that are invalid only late.
const PIECES: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 404 Not Found\r\n",
    b"HTTP/1.1 204\r\n",
    b"HTTP/1.1 304 \n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: 3\r\n",
    b"content-length: 4\n",
    b"Content-Length: 3, 3\r\n",
    b"Content-Length: +3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: Chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: x, keep-alive\r\n",
    b"Server: s\r\n",
    b" folded\r\n",
    b"\r\n",
    b"\r\n",
    b"\r\n",
    b"\n",
    b"3\r\nabc\r\n",
    b"5  \r\nhello\r\n",
    b"2;a=b\r\nok\r\n",
    b"0\r\n\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"0\r\nContent-Length: 1\r\n\r\n",
    b"ffffffffffffffff1\r\n",
    b"\0",
    b"\x80",
    b"H",
];

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        9 => select(PIECES).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 1..4),
    ];
    let start = select(&PIECES[..8]).prop_map(<[u8]>::to_vec);
    (start, vec(piece, 1..10)).prop_map(|(start, rest)| [start, rest.concat()].concat())
}

/// Lines, of which two heads are likely to have some in the same place.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let line = select(&PIECES[8..19]).prop_map(<[u8]>::to_vec);
    let other = "[a-c]: [a-c]{0,2}\r\n".prop_map(String::into_bytes);
    vec(prop_oneof![line, other], 0..6).prop_map(|lines| lines.concat())
}

/// The framing of a response.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunks(usize),
    Close,
}

fn framing() -> impl Strategy<Value = Framing> {
    prop_oneof![
        Just(Framing::Length),
        (1_usize..50).prop_map(Framing::Chunks),
        Just(Framing::Close),
    ]
}

fn response(fields: &[(String, String)], body: &[u8], framing: Framing) -> Vec<u8> {
    let mut response = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in fields {
        response.extend(format!("X-{name}: {value}\r\n").bytes());
    }
    match framing {
        Framing::Length => {
            response.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
            response.extend(body);
        }
        Framing::Chunks(length) => {
            response.extend(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(length) {
                response.extend(format!("{:x}\r\n", chunk.len()).bytes());
                response.extend(chunk);
                response.extend(b"\r\n");
            }
            response.extend(b"0\r\nX-T: t\r\n\r\n");
        }
        Framing::Close => {
            response.extend(b"\r\n");
            response.extend(body);
        }
    }
    response
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
    fn a_head_is_not_read_by_the_one_before(before in lines(), lines in lines()) {
        let head = |lines: &[u8]| [b"HTTP/1.1 200 OK\r\n", lines, b"\r\n"].concat();
        let stream = [&head(&lines)[..], b"abc"].concat();
        if let Some(again) = read_after(&head(&before), &stream) {
            prop_assert_eq!(again, read(false, [&stream[..]]));
        }
    }

    #[test]
    fn a_byte_off(seed: u8, place in 0_usize..90, byte: u8) {
        let mut stream = response(&[("Y".into(), "z".into())], b"some content", Framing::Chunks(5));
        if let Some(old) = stream.get_mut(place) {
            *old = byte;
        }
        check(&[&[seed][..], &stream].concat());
    }

    #[test]
    fn good_responses_are_read(
        fields in vec(("[A-Z][a-zA-Z0-9!#_|~-]{0,9}", "[!-~][ -~]{0,20}[!-~]"), 0..6),
        body in vec(any::<u8>(), 0..200),
        framing in framing(),
        seed: u8,
    ) {
        let stream = response(&fields, &body, framing);
        let (outcome, fault) = read(false, [&stream[..]]);
        prop_assert_eq!(fault, None);
        prop_assert!(outcome.is_complete);
        prop_assert_eq!(&outcome.content, &body);
        prop_assert_eq!(outcome.is_reusable, !matches!(framing, Framing::Close));
        prop_assert_eq!(outcome.trailers.is_some(), matches!(framing, Framing::Chunks(_)));
        for (name, value) in &fields {
            let mut values = outcome.fields.get_all(format!("x-{name}")).iter();
            prop_assert!(values.any(|own| own == value.as_str()));
        }
        check(&[&[seed | 1][..], &stream].concat());
        // A response that is cut short must not appear complete.
        if let Some((_, cut)) = stream.split_last() {
            let (outcome, fault) = read(false, [cut]);
            let may_end = matches!(framing, Framing::Close) && !body.is_empty();
            prop_assert_eq!(fault.is_none(), may_end);
            prop_assert_eq!(outcome.is_complete, may_end);
        }
    }
}
