//! Properties that hold for arbitrary bytes; the entry of the property tests and of the fuzzer (`fuzz/`).

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use http::{Method, Request, StatusCode};
use http_body::Body;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::ext::ReasonPhrase;
use hyper::rt::{Read, ReadBufCursor, Write};
use softclock_http::response::{Fault, HEAD_BYTES, ResponseReader};

/// The result of reading one response, up to its end or the end of the connection.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Outcome {
    /// `None` if no response was read.
    pub(crate) status: Option<StatusCode>,
    pub(crate) reason: Option<Bytes>,
    pub(crate) fields: HeaderMap,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) is_complete: bool,
    pub(crate) is_reusable: bool,
}

/// Checks all properties. The first byte determines how the others are divided into reads, and whether they answer a
/// HEAD.
///
/// # Panics
/// If a property does not hold.
pub(crate) fn check(data: &[u8]) {
    let Some((&seed, stream)) = data.split_first() else {
        return;
    };
    let is_head = seed % 8 == 0;
    let (whole, _) = read(is_head, [stream]);
    assert_eq!(whole, read(is_head, stream.chunks(1)).0, "byte by byte");
    assert_eq!(whole, read(is_head, cuts(stream, seed)).0, "in reads");
    if whole.is_complete {
        check_with_hyper(is_head, stream, &whole);
    }
}

/// Reads as a connection to an upstream does.
pub(crate) fn read<'a>(
    is_head: bool,
    reads: impl IntoIterator<Item = &'a [u8]>,
) -> (Outcome, Option<Fault>) {
    read_next(ResponseReader::new(), is_head, reads)
}

/// Like [`read`], on the connection on which `before` arrived; `None` if that is not exactly one head.
pub(crate) fn read_after(before: &[u8], stream: &[u8]) -> Option<(Outcome, Option<Fault>)> {
    let mut reader = ResponseReader::new();
    reader.begin(false);
    match reader.read_head(before, &mut HeaderMap::new()) {
        Ok(Some((_, end))) if end == before.len() => Some(read_next(reader, false, [stream])),
        _ => None,
    }
}

fn read_next<'a>(
    mut reader: ResponseReader,
    is_head: bool,
    reads: impl IntoIterator<Item = &'a [u8]>,
) -> (Outcome, Option<Fault>) {
    reader.begin(is_head);
    let mut outcome = Outcome::default();
    let mut fields = HeaderMap::new();
    for bytes in reads {
        if outcome.status.is_some() {
            reader.read_body(bytes, |piece| outcome.content.extend_from_slice(piece));
            continue;
        }
        match reader.read_head(bytes, &mut fields) {
            Ok(None) => {}
            Ok(Some((head, end))) => {
                outcome.status = Some(head.status);
                outcome.reason = head.reason;
                outcome.fields = std::mem::take(&mut fields);
                reader.read_body(&bytes[end..], |piece| {
                    outcome.content.extend_from_slice(piece)
                });
            }
            Err(fault) => return (outcome, Some(fault)),
        }
    }
    if outcome.status.is_none() {
        return (outcome, Some(Fault::Truncated));
    }
    outcome.is_reusable = reader.is_reusable();
    reader.on_close();
    assert_eq!(reader.is_complete(), reader.fault().is_none());
    outcome.is_complete = reader.is_complete();
    outcome.trailers = reader.take_trailers();
    (outcome, reader.fault())
}

/// Divides a stream into reads of one to sixteen bytes.
fn cuts(mut stream: &[u8], seed: u8) -> Vec<&[u8]> {
    let mut state = u32::from(seed) | 0x100;
    let mut reads = Vec::new();
    while !stream.is_empty() {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let (bytes, rest) = stream.split_at(stream.len().min((state >> 16) as usize % 16 + 1));
        reads.push(bytes);
        stream = rest;
    }
    reads
}

/// Checks that hyper reads the same response as the reader, which accepted it.
fn check_with_hyper(is_head: bool, stream: &[u8], ours: &Outcome) {
    if ours.status == Some(StatusCode::SWITCHING_PROTOCOLS) {
        return;
    }
    let (status, mut fields, content) = read_with_hyper(is_head, stream);
    let text = String::from_utf8_lossy(stream);
    let own = ours.status.map(|status| (status, ours.reason.clone()));
    assert_eq!(status, own, "{text:?}");
    assert_eq!(content.as_ref(), Some(&ours.content), "{text:?}");
    // The bytes read show the length, so the fields about it are not compared.
    let mut own = ours.fields.clone();
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION] {
        fields.remove(&name);
        own.remove(&name);
    }
    assert_eq!(fields, own, "{text:?}");
}

type Status = (StatusCode, Option<Bytes>);

type Read3 = (Option<Status>, HeaderMap, Option<Vec<u8>>);

/// Returns the status with its reason, the fields and, if it is complete, the content.
fn read_with_hyper(is_head: bool, stream: &[u8]) -> Read3 {
    let mut cx = Context::from_waker(Waker::noop());
    let mut builder = http1::Builder::new();
    builder.max_buf_size(2 * HEAD_BYTES);
    let mut handshake = pin!(builder.handshake::<_, Empty<Bytes>>(Script::of(stream)));
    let Poll::Ready(Ok((mut sender, mut connection))) = handshake.as_mut().poll(&mut cx) else {
        panic!("nothing to wait for");
    };
    let mut request = Request::new(Empty::new());
    if is_head {
        *request.method_mut() = Method::HEAD;
    }
    let mut response = pin!(sender.send_request(request));
    let mut content = Vec::new();
    let mut incoming = None;
    let mut is_whole = false;
    let (mut status, mut fields) = (None, HeaderMap::new());
    // Each turn reads at least a byte, or ends the response.
    for _ in 0..2 * stream.len() + 20 {
        let _ = Pin::new(&mut connection).poll(&mut cx);
        if incoming.is_none() {
            match response.as_mut().poll(&mut cx) {
                Poll::Ready(Ok(response)) => {
                    let (mut parts, body) = response.into_parts();
                    let reason = parts.extensions.remove::<ReasonPhrase>().map(Bytes::from);
                    (status, fields) = (Some((parts.status, reason)), parts.headers);
                    incoming = Some(body);
                }
                Poll::Ready(Err(_)) => break,
                Poll::Pending => continue,
            }
        }
        if let Some(body) = &mut incoming {
            match Pin::new(body).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    content.extend_from_slice(&data);
                }
                Poll::Ready(Some(Err(_))) => break,
                Poll::Ready(None) => {
                    is_whole = true;
                    break;
                }
                Poll::Pending => {}
            }
        }
    }
    (status, fields, is_whole.then_some(content))
}

/// A socket that accepts all writes, and returns these bytes after the first write.
struct Script {
    bytes: Vec<u8>,
    has_begun: bool,
}

impl Script {
    fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            has_begun: false,
        }
    }
}

impl Read for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.has_begun {
            return Poll::Pending;
        }
        let n = buffer.remaining().min(self.bytes.len());
        buffer.put_slice(&self.bytes[..n]);
        self.bytes.drain(..n);
        Poll::Ready(Ok(()))
    }
}

impl Write for Script {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_begun = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
