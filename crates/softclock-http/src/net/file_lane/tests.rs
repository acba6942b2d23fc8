//! hyper over a socket that accepts random numbers of bytes at random times: in all modes of hyper's buffers, the right
//! bytes must be sent.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Write;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use softclock::Runtime;
use softclock::fs::Root;

use super::*;
use crate::client::options::{BUFFER_BYTES, ConnectionOptions};
use crate::exchange::session::Session;
use crate::exchange::stream::GuardedStream;

/// The bytes that a socket has sent.
#[derive(Default)]
struct Sent {
    bytes: RefCell<Vec<u8>>,
    from_files: Cell<usize>,
}

/// A socket that accepts random numbers of bytes at random times.
struct Capricious {
    requests: Vec<u8>,
    sent: Rc<Sent>,
    random: Random,
}

impl Capricious {
    /// Accepts a random number of `offered` bytes, or is pending.
    fn poll_some(&mut self, cx: &Context<'_>, offered: usize) -> Poll<usize> {
        match self.random.below(4) {
            0 => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            1 => Poll::Ready(offered.min(1 + self.random.below(100))),
            2 => Poll::Ready(1 + self.random.below(offered)),
            _ => Poll::Ready(offered),
        }
    }
}

impl Write for Capricious {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(self.poll_some(cx, bytes.len()));
        self.sent.bytes.borrow_mut().extend(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.to_vec()).collect();
        self.poll_write(cx, &all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Socket for Capricious {
    fn poll_receive(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let n = buffer.len().min(self.requests.len());
        buffer[..n].copy_from_slice(&self.requests[..n]);
        self.requests.drain(..n);
        Poll::Ready(Ok(n))
    }

    fn sends_files(&self) -> bool {
        true
    }

    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(self.poll_some(cx, len));
        let mut bytes = vec![0; taken];
        // A blocking read, as some file systems cannot read cached bytes without waiting.
        let read =
            std::fs::File::from(file.as_fd().try_clone_to_owned()?).read_at(&mut bytes, offset)?;
        self.sent.bytes.borrow_mut().extend(&bytes[..read]);
        self.sent.from_files.set(self.sent.from_files.get() + read);
        Poll::Ready(Ok(read))
    }

    fn unacknowledged(&self) -> u64 {
        0
    }

    fn poll_readable(&self, _: &Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn poll_lost(&self, _: &Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn poll_ended(&self, _: &Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn give_up(&self) {}
}

/// A body that randomly sends parts of its file, sends copied bytes, or waits.
struct Mixed {
    site: Rc<Site>,
    entrance: Option<Entrance>,
    range: Range<usize>,
    random: Random,
}

impl http_body::Body for Mixed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.range.is_empty() {
            return Poll::Ready(None);
        }
        let most = this.range.len().min(PART_BYTES);
        let len = match this.random.below(3) {
            0 => 1 + this.random.below(most.min(2_000)),
            1 => 1 + this.random.below(most),
            _ => most,
        };
        let at = this.range.start;
        let copied = this.site.content.slice(at..at + len);
        let bytes = match &mut this.entrance {
            None => copied,
            Some(entrance) => {
                assert!(ready!(entrance.poll_open(cx)));
                match this.random.below(3) {
                    0 => {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    2 => {
                        let sent = &this.site.loaded;
                        sent.set(sent.get() + len);
                        entrance.load(&this.site.file, at as u64, len)
                    }
                    _ => {
                        entrance.pass_by();
                        copied
                    }
                }
            }
        };
        this.range.start += len;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.range.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.range.len() as u64)
    }
}

struct Site {
    content: Bytes,
    /// A file with the same content.
    file: File,
    /// The number of bytes of the file that were loaded into the lane.
    loaded: Cell<usize>,
}

/// Responds with the range that the target names: first byte, length, and whether the file may be sent.
fn answer(
    request: &Request<Incoming>,
    site: &Rc<Site>,
    lane: &Rc<FileLane>,
    seed: u64,
) -> Response<Mixed> {
    let mut numbers = request.uri().path()[1..].split('/');
    let mut next = || numbers.next().unwrap().parse::<usize>().unwrap();
    let (first, len, sends) = (next(), next(), next());
    let is_head = request.method() == Method::HEAD;
    let mut response = Response::new(Mixed {
        site: Rc::clone(site),
        entrance: (sends > 0).then(|| Entrance::new(Rc::clone(lane))),
        range: first..first + if is_head { 0 } else { len },
        random: Random(seed + first as u64),
    });
    response.headers_mut().insert(CONTENT_LENGTH, len.into());
    response
}

/// Returns the bytes that hyper sends in response to `requests`.
async fn sent(requests: Vec<u8>, site: &Rc<Site>, seed: u64) -> Rc<Sent> {
    let sent = Rc::new(Sent::default());
    let socket = Capricious {
        requests,
        sent: Rc::clone(&sent),
        random: Random(seed),
    };
    let stream = GuardedStream::new(
        socket,
        Session::for_tests(),
        &ConnectionOptions::default(),
        None,
    );
    let lane = Rc::clone(stream.lane().expect("a socket that sends files"));
    let service = service_fn(|request| {
        let response = answer(&request, site, &lane, seed);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = Builder::new();
    // Without vectored writes hyper copies everything into one buffer.
    let copying = seed.is_multiple_of(2);
    builder.half_close(true).writev(!copying);
    if seed.is_multiple_of(3) {
        builder.max_buf_size(BUFFER_BYTES);
    }
    let connection = builder.serve_connection(stream, service);
    let ended = softclock::timeout(Duration::from_secs(60), connection).await;
    ended.expect("it hangs").unwrap();
    sent
}

/// Removes the next response from `bytes` and returns its body.
fn next_body<'a>(bytes: &mut &'a [u8], method: &str) -> &'a [u8] {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, rest) = bytes.split_at(end.expect("a head") + 4);
    let head = std::str::from_utf8(head).expect("a head").to_lowercase();
    let (_, len) = head.split_once("content-length: ").expect("a length");
    let len = len.split('\r').next().unwrap().parse().unwrap();
    let (body, rest) = rest.split_at(if method == "HEAD" { 0 } else { len });
    *bytes = rest;
    body
}

#[test]
fn the_right_bytes_leave_whatever_hyper_does() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let content: Vec<u8> = (0..1_000_000).map(|_| random.below(256) as u8).collect();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f"), &content).unwrap();
    let root = Root::open(directory.path()).unwrap();
    let runtime = Runtime::new().unwrap();
    let file = runtime.block_on(root.open_file("f".as_ref())).unwrap();
    let mut loaded = 0;
    let site = Rc::new(Site {
        content: content.into(),
        file,
        loaded: Cell::default(),
    });
    for seed in 1..=60 {
        let asked: Vec<_> = (0..8).map(|_| random.asked(site.content.len())).collect();
        let requests: String = asked.iter().map(Asked::request).collect();
        site.loaded.set(0);
        let sent = runtime.block_on(sent(requests.clone().into_bytes(), &site, seed));
        let bytes = sent.bytes.borrow();
        let mut rest = &bytes[..];
        for Asked { method, range, .. } in &asked {
            let expected: &[u8] = match *method {
                "HEAD" => b"",
                _ => &site.content[range.clone()],
            };
            let body = next_body(&mut rest, method);
            assert!(body == expected, "seed {seed}: {requests}");
        }
        assert!(rest.is_empty(), "seed {seed}: {requests}");
        assert_eq!(sent.from_files.get(), site.loaded.get(), "seed {seed}");
        loaded += site.loaded.get();
    }
    assert!(loaded > 0);
}

struct Asked {
    method: &'static str,
    range: Range<usize>,
    sends: bool,
}

impl Asked {
    fn request(&self) -> String {
        let (method, first, len) = (self.method, self.range.start, self.range.len());
        let sends = u8::from(self.sends);
        format!("{method} /{first}/{len}/{sends} HTTP/1.1\r\nHost: t\r\n\r\n")
    }
}

#[test]
fn a_part_that_is_not_written_ends_the_connection() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f"), b"content").unwrap();
    let root = Root::open(directory.path()).unwrap();
    let file = Runtime::new()
        .unwrap()
        .block_on(root.open_file("f".as_ref()));
    let lane = Rc::new(FileLane::default());
    let mut entrance = Entrance::new(Rc::clone(&lane));
    let cx = &Context::from_waker(Waker::noop());
    assert!(lane.on_flush(|| true).is_ok());
    assert!(entrance.poll_open(cx).is_pending(), "a flush of before");
    assert!(lane.on_flush(|| true).is_ok());
    assert_eq!(entrance.poll_open(cx), Poll::Ready(true));
    assert_eq!(entrance.load(&file.unwrap(), 0, 7).len(), 7);
    assert!(lane.on_flush(|| true).is_err());
}

/// As for a connection whose rate was set in the meantime.
#[test]
fn a_socket_may_send_no_files_from_some_flush_on() {
    let lane = Rc::new(FileLane::default());
    let mut entrance = Entrance::new(Rc::clone(&lane));
    let cx = &Context::from_waker(Waker::noop());
    assert!(entrance.poll_open(cx).is_pending());
    assert!(lane.on_flush(|| false).is_ok());
    assert_eq!(entrance.poll_open(cx), Poll::Ready(false));
    assert!(entrance.poll_open(cx).is_pending());
    assert!(lane.on_flush(|| true).is_ok());
    assert_eq!(entrance.poll_open(cx), Poll::Ready(true));
}

/// The xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn asked(&mut self, len: usize) -> Asked {
        let first = self.below(len);
        let most = if self.below(3) == 0 { 1_000 } else { len };
        Asked {
            method: if self.below(8) == 0 { "HEAD" } else { "GET" },
            range: first..first + self.below((len - first).min(most)) + 1,
            sends: self.below(3) > 0,
        }
    }
}
