//! A client of HTTP/2 over TLS that sends any given frames, valid or not, and reads the answers.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A connection after the exchange of prefaces.
pub(crate) struct Http2 {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

/// A received frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Status(u16),
    /// The stream was reset, with this code.
    Reset(u32),
    /// The connection was closed, with the code of a GOAWAY if there was one.
    Ended(Option<u32>),
}

impl Http2 {
    /// Connects to a server whose certificate is in the file `trusted`.
    pub(crate) fn connect(address: SocketAddr, trusted: &Path) -> Self {
        // Allow no table, so that the server sends each status literally.
        Self::with_settings(address, trusted, &[0, 1, 0, 0, 0, 0])
    }

    pub(crate) fn with_settings(address: SocketAddr, trusted: &Path, settings: &[u8]) -> Self {
        let stream = TcpStream::connect(address).expect("a listening server");
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).expect("a time-out");
        stream.set_write_timeout(limit).expect("a time-out");
        stream.set_nodelay(true).expect("a socket");
        let name = ServerName::IpAddress(IpAddr::from(address.ip()));
        let session = ClientConnection::new(Arc::new(config(trusted)), name).expect("a session");
        let mut client = Self {
            stream: StreamOwned::new(session, stream),
        };
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let start = [&preface[..], &frame(SETTINGS, 0, 0, settings)].concat();
        assert!(client.send(&start), "the server takes the preface");
        assert!(client.send(&frame(SETTINGS, ACK, 0, b"")));
        client
    }

    /// False if the server has ended the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.try_send(bytes).is_ok()
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// The next frame; `None` at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).ok()?;
        let [a, b, c, kind, _, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some(Frame {
            kind,
            stream: u32::from_be_bytes(stream),
            payload,
        })
    }

    /// The outcome of the request on `stream`.
    pub(crate) fn outcome(&mut self, stream: u32) -> Outcome {
        loop {
            match self.next() {
                Some(frame) if frame.kind == GOAWAY => {
                    return Outcome::Ended(Some(code(&frame.payload[4..])));
                }
                Some(frame) if frame.stream != stream => {}
                Some(frame) if frame.kind == HEADERS => {
                    return Outcome::Status(status(&frame.payload));
                }
                Some(frame) if frame.kind == RST_STREAM => {
                    return Outcome::Reset(code(&frame.payload));
                }
                Some(_) => {}
                None => return Outcome::Ended(None),
            }
        }
    }

    /// Whether the server ends the connection within so many bytes of these frames; `frames` gets the number of the
    /// turn. A server that takes nothing for long does not end it.
    pub(crate) fn ends_within(
        &mut self,
        max: usize,
        mut frames: impl FnMut(u32) -> Vec<u8>,
    ) -> bool {
        let mut sent = 0;
        for turn in 0.. {
            let bytes = frames(turn);
            match self.try_send(&bytes) {
                Ok(()) if sent > max => return false,
                Ok(()) => sent += bytes.len(),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        false
    }
}

fn config(trusted: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(trusted).expect("a certificate");
    roots.add(certificate).expect("one that can be trusted");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("TLS");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Encodes a block of these fields, each as a literal without an index.
pub(crate) fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_number(&mut block, 0, 7, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// RFC 7541, section 5.1.
pub(crate) fn push_number(block: &mut Vec<u8>, first: u8, bits: u32, mut number: usize) {
    let max = (1 << bits) - 1;
    if number < max {
        return block.push(first | number as u8);
    }
    block.push(first | max as u8);
    number -= max;
    while number > 0x7f {
        block.push(number as u8 | 0x80);
        number >>= 7;
    }
    block.push(number as u8);
}

/// A complete request with these fields.
pub(crate) fn request(stream: u32, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(fields))
}

/// A valid request for `path`.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    request(
        stream,
        &[
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", b"test"),
            (b":path", path.as_bytes()),
        ],
    )
}

fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().expect("four bytes"))
}

/// The status at the start of a block, from an encoder without a table.
fn status(mut block: &[u8]) -> u16 {
    while let [0x20..=0x3f, rest @ ..] = block {
        block = rest;
    }
    match block {
        [index @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(index - 0x88)],
        [0x48 | 0x08 | 0x18, 3, a, b, c, ..] => [a, b, c]
            .iter()
            .fold(0, |status, &&digit| status * 10 + u16::from(digit - b'0')),
        [0x48 | 0x08 | 0x18, length, text @ ..] => digits(&text[..usize::from(length & 0x7f)]),
        _ => panic!("no status: {block:?}"),
    }
}

/// Three digits in Huffman's code (RFC 7541, appendix B).
fn digits(text: &[u8]) -> u16 {
    let mut bits = text
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let mut status = 0;
    for _ in 0..3 {
        let mut code = 0;
        for _ in 0..5 {
            code = code << 1 | bits.next().expect("bits");
        }
        let digit = match code {
            0..=2 => code,
            _ => (code << 1 | bits.next().expect("bits")) - 0x19 + 3,
        };
        status = status * 10 + u16::from(digit);
    }
    status
}
