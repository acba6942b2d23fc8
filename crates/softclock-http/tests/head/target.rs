//! Properties that hold for arbitrary bytes; the entry of the property tests and of the fuzzer (`fuzz/`).

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use softclock_http::head::{Fault, HeadLimits, Position, Scanner};

/// The result of scanning a stream.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) passed: Vec<u8>,
    pub(crate) fault: Option<Fault>,
    pub(crate) position: Position,
}

/// Small limits, so that tests reach them.
pub(crate) const LIMITS: HeadLimits = HeadLimits {
    line_bytes: 200,
    head_bytes: 600,
    fields: 8,
};

/// Checks all properties. The first byte determines how the others are divided into slices.
///
/// # Panics
/// If a property does not hold.
pub(crate) fn check(data: &[u8]) {
    let Some((&seed, stream)) = data.split_first() else {
        return;
    };
    let whole = scan([stream]);
    assert_eq!(whole, scan(stream.chunks(1)), "byte by byte");
    assert_eq!(whole, scan(cuts(stream, seed)), "in slices");
    assert!(stream.starts_with(&whole.passed));
    if whole.position == Position::Between {
        assert_eq!(whole.passed, stream, "nothing is withheld between requests");
    }
    for message in messages(&whole.passed) {
        check_with_hyper(&message);
    }
}

/// Scans slices as the stream of a connection on which requests for an upgrade are refused.
pub(crate) fn scan<'a>(slices: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut scanner = Scanner::new(LIMITS);
    let (mut passed, mut withheld, mut fault) = (Vec::new(), Vec::new(), None);
    'slices: for mut slice in slices {
        loop {
            let scanned = scanner.scan(slice);
            let (good, rest) = slice.split_at(scanned.passed);
            if scanned.passed > 0 {
                passed.append(&mut withheld);
                passed.extend_from_slice(good);
            }
            if scanned.fault.is_some() {
                fault = scanned.fault;
                break 'slices;
            }
            if scanner.position() != Position::Upgrade {
                withheld.extend_from_slice(rest);
                break;
            }
            assert_eq!(scanner.scan(rest).passed, 0, "nothing is scanned before");
            scanner.resume();
            slice = rest;
        }
    }
    Outcome {
        passed,
        fault,
        position: scanner.position(),
    }
}

/// Divides a stream into slices of one to sixteen bytes.
fn cuts(mut stream: &[u8], seed: u8) -> Vec<&[u8]> {
    let mut state = u32::from(seed) | 0x100;
    let mut slices = Vec::new();
    while !stream.is_empty() {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let (slice, rest) = stream.split_at(stream.len().min((state >> 16) as usize % 16 + 1));
        slices.push(slice);
        stream = rest;
    }
    slices
}

/// A request with its body, and whether the body is complete.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    pub(crate) complete: bool,
}

/// Returns the accepted requests, as the scanner frames them.
pub(crate) fn messages(passed: &[u8]) -> Vec<Message> {
    let mut scanner = Scanner::new(LIMITS);
    let mut messages = Vec::new();
    let mut bytes = Vec::new();
    for &byte in passed {
        let scanned = scanner.scan(&[byte]);
        assert_eq!(scanned.fault, None, "it passed before");
        bytes.push(byte);
        scanner.resume();
        if scanner.position() == Position::Between {
            messages.push(Message {
                bytes: std::mem::take(&mut bytes),
                complete: true,
            });
        }
    }
    if !bytes.is_empty() {
        messages.push(Message {
            bytes,
            complete: false,
        });
    }
    messages
}

/// Checks that hyper finds exactly one valid request in the message.
fn check_with_hyper(message: &Message) {
    let (requests, result) = read_with_hyper(&message.bytes);
    let text = String::from_utf8_lossy(&message.bytes);
    assert_eq!(requests.len(), 1, "{result:?}: {text:?}");
    if message.complete {
        assert!(requests[0].is_some(), "the body failed: {text:?}");
        assert!(result.is_ok(), "{result:?}: {text:?}");
    }
}

/// Returns the lengths of the bodies that hyper's server reads; `None` for a body that was cut.
pub(crate) fn read_with_hyper(stream: &[u8]) -> (Vec<Option<usize>>, hyper::Result<()>) {
    let bodies = RefCell::new(Vec::new());
    let service = service_fn(async |request: Request<Incoming>| {
        let body = request.into_body().collect().await.ok();
        bodies
            .borrow_mut()
            .push(body.map(|body| body.to_bytes().len()));
        let mut response = Response::new(Empty::<Bytes>::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok::<_, Infallible>(response)
    });
    let memory = Memory { unread: stream };
    let connection = http1::Builder::new()
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(memory, service);
    let mut connection = pin!(connection);
    let mut cx = Context::from_waker(Waker::noop());
    // The connection yields now and then, but never waits for I/O.
    let result = loop {
        if let Poll::Ready(result) = connection.as_mut().poll(&mut cx) {
            break result;
        }
    };
    (bodies.take(), result)
}

/// A client that sends these bytes and accepts everything.
struct Memory<'a> {
    unread: &'a [u8],
}

impl Read for Memory<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let (now, later) = self
            .unread
            .split_at(self.unread.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.unread = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
