//! Heads that must be refused, and randomly changed requests.

use crate::random::Random;

/// The whole of a request that no server may understand, with an end that a lenient one would see.
pub(crate) fn head(random: &mut Random) -> Vec<u8> {
    let target = random.pick(&["/", "/0/1/20", "/f4-100"]);
    match random.weighted(&[3, 1]) {
        0 => {
            let field = random.pick(FIELDS);
            format!("POST {target} HTTP/1.1\r\nHost: fuzz\r\n{field}\r\n\r\n").into_bytes()
        }
        _ => random.pick(HEADS).to_vec(),
    }
}

/// Malformed fields, sent beside Host.
const FIELDS: &[&str] = &[
    "Content-Length: 4\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 4",
    "Content-Length: 1\r\nContent-Length: 2",
    "Content-Length: 1, 2",
    "Content-Length: +1",
    "Content-Length: -1",
    "Content-Length: 0x1",
    "Content-Length: 1 1",
    "Content-Length:",
    "Content-Length: 99999999999999999999999",
    "Content-Length : 1",
    "Content-Length\t: 1",
    " Content-Length: 1",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: \x0bchunked",
    "Transfer-Encoding: chunked;x",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding:\r\n chunked",
    "Transfer-Encoding\x0b: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    "X: a\nTransfer-Encoding: chunked",
    "X: a\rTransfer-Encoding: chunked",
    "X: a\0b",
    "X: a\r\n\tb",
    "X y: a",
    ": a",
    "X",
    "Host: other",
];

/// Other whole heads.
const HEADS: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\nHost: fuzz\n\n",
    b"GET / HTTP/2.0\r\nHost: fuzz\r\n\r\n",
    b"GET / HTTP/1.2\r\nHost: fuzz\r\n\r\n",
    b"GET  / HTTP/1.1\r\nHost: fuzz\r\n\r\n",
    b"GET /\t HTTP/1.1\r\nHost: fuzz\r\n\r\n",
    b"GET / x HTTP/1.1\r\nHost: fuzz\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: fuzz\r\n\r\n",
    b"GET x HTTP/1.1\r\nHost: fuzz\r\n\r\n",
    b"GET /\xff\x00 HTTP/1.1\r\nHost: fuzz\r\n\r\n",
    b"G(T / HTTP/1.1\r\nHost: fuzz\r\n\r\n",
    b" GET / HTTP/1.1\r\nHost: fuzz\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
];

/// Changes, removes, repeats or adds some bytes.
pub(crate) fn mutate(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..random.within(1..=3) {
        let at = random.within(0..=bytes.len() - 1);
        let end = (at + random.within(1..=8)).min(bytes.len());
        match random.within(0..=4) {
            0 => bytes[at] ^= 1 << random.within(0..=7),
            1 => bytes[at] = random.pick(b"\r\n\0 \t:;,/%\x7f\xff0"),
            2 => drop(bytes.drain(at..end.min(bytes.len() - 1).max(at))),
            3 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let new = random.pick(&[
                    &b"\r\n"[..],
                    b"\n",
                    b"\0",
                    b"\r\n\r\n",
                    b": ",
                    b" HTTP/1.1\r\n",
                ]);
                bytes.splice(at..at, new.iter().copied());
            }
        }
    }
    bytes
}
