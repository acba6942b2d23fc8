//! Slow HTTP/2 clients, on one runtime with the server and without TLS.

use std::convert::Infallible;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{Builder as ClientBuilder, SendRequest};
use softclock::hyper::LocalExecutor;
use softclock::net::{TcpListener, TcpStream};
use softclock::{JoinHandle, Sleep, sleep, timeout};
use tempfile::TempDir;

use super::frames::{Frames, Part, RST_STREAM};
use super::*;
use crate::client::members::Members;
use crate::exchange::live::{Live, WorkerOptions};
use crate::net::carrier::Peer;
use crate::proxy::options::{Proxy, ProxyOptions};
use crate::server::worker::Worker;
use crate::site::content::Site;
use crate::site::disk_reads::{self, READS, Turn};

type Served = JoinHandle<Result<(), h2::Error>>;

/// Connects to a server of the files `big` and `part`. Returns the client's socket, the server's task, and the members
/// among which the connection counts.
async fn connect(timeouts: Timeouts) -> (TcpStream, Served, Rc<Members>) {
    let (client, server) = pair().await;
    let (site, directory) = site();
    let worker = worker(site, timeouts);
    let members = Rc::clone(&worker.members);
    (client, serve(server, worker, directory).await, members)
}

/// Returns both ends of a new connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let client = softclock::spawn_local(async move { TcpStream::connect(address).await.unwrap() });
    let (server, _) = listener.accept().await.unwrap();
    (client.await, server)
}

fn site() -> (Site, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("big"), vec![b'b'; 1 << 20]).unwrap();
    fs::write(directory.path().join("part"), vec![b'p'; PART_BYTES]).unwrap();
    (Site::directory(directory.path()).unwrap(), directory)
}

fn worker(served: impl Into<crate::exchange::served::Served>, timeouts: Timeouts) -> Rc<Worker> {
    let connection = ConnectionOptions {
        timeouts,
        ..ConnectionOptions::default()
    };
    Worker::new(Live {
        served: served.into().live(1, None),
        options: WorkerOptions {
            connection,
            ..WorkerOptions::default()
        },
        tls: None,
        access_log: None,
    })
}

/// Serves a connection by `worker`. Drops `kept` when the connection ends.
async fn serve(stream: TcpStream, worker: Rc<Worker>, kept: impl Sized + 'static) -> Served {
    let membership = worker.members.admit().await;
    let options = worker.exchanges.live().options.connection;
    let session = Session::new(Rc::clone(&worker.exchanges), Peer::Local, false);
    softclock::spawn_local(async move {
        let _kept = kept;
        converse(stream.into(), session, &options, membership).await
    })
}

/// Returns a hyper client whose window for each stream is `window` bytes.
async fn speak<B>(stream: TcpStream, window: u32) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Unpin + 'static,
{
    let mut builder = ClientBuilder::new(LocalExecutor);
    builder.initial_stream_window_size(window);
    let (requests, connection) = builder.handshake(stream).await.unwrap();
    drop(softclock::spawn_local(connection));
    requests
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    let request = Request::get(format!("http://t{path}"));
    request.body(Empty::new()).unwrap()
}

/// Returns timeouts of this length. The minimum rate is so high that it adds no time for the bytes of a response, and
/// its window is longer than the tests.
fn all(limit: Duration) -> Timeouts {
    Timeouts {
        idle: Some(limit),
        send: Some(limit),
        min_rate: u32::MAX,
        ..Timeouts::default()
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let limited = async { timeout(Duration::from_secs(30), test).await };
    let runtime = softclock::Runtime::new().unwrap();
    runtime.block_on(limited).expect("it ends")
}

const SHORT: Duration = Duration::from_millis(200);

/// A length of more than one frame, and less than one piece.
const PART_BYTES: usize = 40_000;

#[test]
fn more_to_take_has_more_time() {
    let timeouts = Timeouts {
        send: Some(Duration::from_secs(60)),
        min_rate: 256,
        ..Timeouts::default()
    };
    assert_eq!(timeouts.for_bytes(0), Some(Duration::from_secs(60)));
    assert_eq!(timeouts.for_bytes(25_600), Some(Duration::from_secs(160)));
    let any_rate = Timeouts {
        min_rate: 0,
        ..timeouts
    };
    assert_eq!(any_rate.for_bytes(1), None);
}

#[test]
fn a_client_that_says_nothing_is_let_go() {
    run(async {
        let (_silent, served, members) = connect(all(SHORT)).await;
        let _ = served.await;
        assert_eq!(members.count(), 0);
    });
}

#[test]
fn a_client_that_asks_no_more_is_let_go() {
    run(async {
        let (stream, served, _) = connect(all(SHORT)).await;
        let mut requests = speak(stream, 1 << 20).await;
        let response = requests.send_request(get("/big")).await.unwrap();
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes().len(), 1 << 20);
        let _ = served.await;
        assert!(requests.send_request(get("/big")).await.is_err());
    });
}

/// The second file is a single piece, which h2 has completely at once.
#[test]
fn a_stream_that_is_not_read_is_reset_and_others_go_on() {
    run(reset_while_others_go_on("/big", 1 << 16));
    run(reset_while_others_go_on("/part", 1 << 10));
}

async fn reset_while_others_go_on(path: &str, window: u32) {
    let (stream, _served, _) = connect(all(5 * SHORT)).await;
    let mut requests = speak(stream, window).await;
    let stuck = requests.send_request(get(path)).await.unwrap();
    for _ in 0..50 {
        sleep(SHORT / 5).await;
        let response = requests.send_request(get("/none")).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }
    let Err(error) = stuck.into_body().collect().await else {
        panic!("it was not reset");
    };
    assert!(format!("{error:?}").contains("CANCEL"), "{error:?}");
    assert!(requests.send_request(get("/none")).await.is_ok());
}

/// The client opens a window, until the body waits for a read from the disk, and closes it.
#[test]
fn a_stream_without_a_window_leaves_its_disk_read_to_others() {
    run(async {
        let (site, directory) = site();
        evict(&directory.path().join("big"));
        let (client, server) = pair().await;
        let _served = serve(server, worker(site, Timeouts::default()), directory).await;
        let mut underway: Vec<_> = (0..READS).map(|_| Turn::ask()).collect();
        let mut rounds = 0..20;
        let start = [PREFACE, &frame(4, 0, 0, b""), &request(1, GET_BIG)];
        client.write_all(&start.concat()).await.unwrap();
        while disk_reads::waiting() == 0 {
            if rounds.next().is_none() {
                softclock_testing::in_part!("files cannot be evicted from the page cache");
                return;
            }
            sleep(SHORT / 4).await;
        }
        client.write_all(&windows(0)).await.unwrap();
        sleep(SHORT).await;
        underway.pop();
        let turn = Turn::ask();
        poll_fn(|cx| turn.poll(cx)).await;
    });
}

/// The client closes the window when h2 has all of the response.
#[test]
fn a_stream_whose_window_closes_behind_its_end_is_reset() {
    run(async {
        let timeouts = Timeouts {
            idle: None,
            ..all(5 * SHORT)
        };
        let (client, _served, _) = connect(timeouts).await;
        let window_of_all = frame(8, 0, 0, &(1u32 << 30).to_be_bytes());
        let start = [PREFACE, &windows(1 << 20), &window_of_all];
        client.write_all(&start.concat()).await.unwrap();
        let part = 33;
        // More than the sockets' buffers have room for.
        for stream in (1..part).step_by(2) {
            client.write_all(&request(stream, GET_BIG)).await.unwrap();
        }
        sleep(SHORT).await;
        let get_part = b"\x82\x86\x01\x01t\x04\x05/part";
        client.write_all(&request(part, get_part)).await.unwrap();
        sleep(SHORT).await;
        client.write_all(&windows(0)).await.unwrap();
        let mut frames = Frames::from_server();
        let (mut buffer, mut resets) = (vec![0; 64 << 10], 0);
        // Responses without a body, so that the connection goes on.
        for stream in (part + 2..=255).step_by(2) {
            let head_none = b"\x02\x04HEAD\x86\x01\x01t\x04\x05/none";
            client.write_all(&request(stream, head_none)).await.unwrap();
            while let Ok(read) = timeout(SHORT / 4, client.read(&mut buffer)).await {
                let mut bytes = &buffer[..read.unwrap()];
                assert!(!bytes.is_empty(), "the connection ended");
                while let Some(piece) = frames.next(&mut bytes) {
                    if let Part::Header(header) = piece
                        && header.kind == RST_STREAM
                    {
                        resets += 1;
                        if header.stream == u32::from(part) {
                            return;
                        }
                    }
                }
            }
        }
        panic!("only {resets} others were reset");
    });
}

/// Evicts the content of a file from the page cache.
fn evict(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Returns the frame of a request whose header block is `block`.
fn request(stream: u8, block: &[u8]) -> Vec<u8> {
    frame(1, END_STREAM | END_HEADERS, stream, block)
}

/// Returns the frame that gives each stream a window of these bytes.
fn windows(bytes: u32) -> Vec<u8> {
    frame(4, 0, 0, &[&[0, 4], &bytes.to_be_bytes()[..]].concat())
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let header = [0, 0, length, kind, flags, 0, 0, 0, stream];
    [&header, payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The fields are `:method: GET`, `:scheme: http`, `:authority: t` and `:path: /big`.
const GET_BIG: &[u8] = b"\x82\x86\x01\x01t\x04\x04/big";

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[test]
fn one_piece_comes_whole() {
    run(async {
        let (stream, _served, _) = connect(Timeouts::default()).await;
        let mut requests = speak(stream, 1 << 10).await;
        let response = requests.send_request(get("/part")).await.unwrap();
        let body = response.into_body().collect().await.unwrap();
        assert!(body.to_bytes() == vec![b'p'; PART_BYTES]);
    });
}

#[test]
fn a_stream_that_is_read_slowly_is_not_reset() {
    run(async {
        let (stream, _served, _) = connect(all(5 * SHORT)).await;
        let mut requests = speak(stream, 1 << 16).await;
        let mut response = requests.send_request(get("/big")).await.unwrap();
        let (mut taken, begun) = (0, softclock::now());
        while let Some(frame) = response.frame().await {
            taken += frame.unwrap().into_data().unwrap().len();
            sleep(SHORT / 8).await;
        }
        assert_eq!(taken, 1 << 20);
        assert!(softclock::now().since(begun) > 5 * SHORT, "not slowly");
    });
}

#[test]
fn idle_connections_make_room() {
    run(async {
        let (stream, served, members) = connect(Timeouts::default()).await;
        let mut requests = speak(stream, 1 << 16).await;
        let busy = requests.send_request(get("/big")).await.unwrap();
        let later = softclock::now() + Duration::from_secs(3_600);
        members.shed(later);
        sleep(SHORT).await;
        assert_eq!(members.count(), 1, "it is in use");
        busy.into_body().collect().await.unwrap();
        sleep(SHORT).await;
        members.shed(later);
        let _ = served.await;
        assert_eq!(members.count(), 0);
    });
}

#[test]
fn a_request_that_comes_with_the_end_is_answered() {
    run(async {
        let (client, server) = pair().await;
        let mut requests = speak(client, 1 << 16).await;
        let response = softclock::spawn_local(requests.send_request(get("/part")));
        // The server finds the request and the end in its first poll.
        sleep(SHORT).await;
        let (site, directory) = site();
        let worker = worker(site, Timeouts::default());
        worker.members.end();
        let served = serve(server, worker, directory).await;
        let response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes().len(), PART_BYTES);
        assert!(requests.send_request(get("/part")).await.is_err());
        drop(requests);
        let _ = served.await;
    });
}

/// A body that yields one piece and then stays pending.
struct Stuck(Option<Bytes>);

impl Body for Stuck {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None => Poll::Pending,
        }
    }
}

/// Starts an upstream that answers a request with `says`. Its task ends with its connection.
fn upstream(says: &'static [u8]) -> (Proxy, JoinHandle<()>) {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = ProxyOptions {
        upload_buffer: 0,
        ..ProxyOptions::default()
    };
    let proxy = Proxy::new(vec![url.parse().unwrap()], options);
    let serve = async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1_024];
        stream.read(&mut buffer).await.unwrap();
        stream.write_all(says).await.unwrap();
        while let Ok(1..) = stream.read(&mut buffer).await {}
    };
    (proxy.unwrap(), softclock::spawn_local(serve))
}

/// Returns the status of an upload that stops, at an upstream that answers `says`, and whether the upstream is still in
/// use.
async fn status_of_stuck(says: &'static [u8]) -> (StatusCode, bool) {
    let (proxy, over) = upstream(says);
    let timeouts = Timeouts {
        body: Some(5 * SHORT),
        ..Timeouts::default()
    };
    let worker = worker(proxy, timeouts);
    let active = || worker.upstreams()[0].active;
    let (client, server) = pair().await;
    let _served = serve(server, Rc::clone(&worker), ()).await;
    let mut requests = speak(client, 1 << 16).await;
    let request = Request::post("http://t/").body(Stuck(Some("part".into())));
    let response = requests.send_request(request.unwrap()).await.unwrap();
    let status = response.status();
    response.into_body().collect().await.unwrap();
    let in_use = active() == 1;
    over.await;
    while active() > 0 {
        sleep(SHORT / 20).await;
    }
    (status, in_use)
}

#[test]
fn an_upload_that_stops_frees_its_upstream() {
    run(async {
        let awaited = status_of_stuck(b"").await;
        assert_eq!(awaited, (StatusCode::REQUEST_TIMEOUT, false));
        let early = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";
        let answered = status_of_stuck(early).await;
        assert_eq!(answered, (StatusCode::UNAUTHORIZED, true));
    });
}

/// An endless body that yields one byte at a time.
struct Trickle(Sleep);

impl Body for Trickle {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(Pin::new(&mut self.0).poll(cx));
        self.0.reset(softclock::now() + SHORT / 8);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
    }
}

/// Returns the status of an upload that is slower than the minimum rate.
async fn status_of_slow(upload_buffer: usize, expected_connections: u64) -> StatusCode {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = ProxyOptions {
        upload_buffer,
        ..ProxyOptions::default()
    };
    let proxy = Proxy::new(vec![url.parse().unwrap()], options).unwrap();
    let timeouts = Timeouts {
        min_upload_rate: 1_000_000,
        rate_window: 5 * SHORT,
        ..Timeouts::default()
    };
    let worker = worker(proxy, timeouts);
    let (client, server) = pair().await;
    let _served = serve(server, Rc::clone(&worker), ()).await;
    let mut requests = speak(client, 1 << 16).await;
    let request = Request::post("http://t/").body(Trickle(sleep(SHORT)));
    let response = requests.send_request(request.unwrap()).await.unwrap();
    let upstream = &worker.upstreams()[0];
    assert_eq!(
        (upstream.counts.connections, upstream.active),
        (expected_connections, 0)
    );
    response.status()
}

#[test]
fn an_upload_that_is_too_slow_ends_without_an_upstream() {
    run(async {
        assert_eq!(
            status_of_slow(16 << 10, 0).await,
            StatusCode::REQUEST_TIMEOUT
        );
        assert_eq!(status_of_slow(0, 1).await, StatusCode::REQUEST_TIMEOUT);
        assert_eq!(status_of_slow(2, 1).await, StatusCode::REQUEST_TIMEOUT);
    });
}

#[test]
fn trailers_that_may_be_none_are_dropped() {
    run(async {
        let says = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            2\r\nok\r\n0\r\nConnection: x\r\nKeep-Alive: 5\r\nX-Sum: 7\r\nSet-Cookie: a=b\r\n\r\n";
        let (proxy, _over) = upstream(says);
        let (client, server) = pair().await;
        let _served = serve(server, worker(proxy, Timeouts::default()), ()).await;
        let response = speak(client, 1 << 16).await.send_request(get("/"));
        let body = response.await.unwrap().into_body().collect().await.unwrap();
        let sum = [("x-sum".parse().unwrap(), "7".parse().unwrap())];
        assert_eq!(body.trailers(), Some(&sum.into_iter().collect()));
        assert_eq!(body.to_bytes(), "ok");
    });
}

/// RFC 9110, section 8.6. Clients treat a 204 response with a length as a broken stream.
#[test]
fn a_length_comes_only_where_one_may_be() {
    run(async {
        for (says, length) in [
            (
                &b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"[..],
                None,
            ),
            (
                b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
                None,
            ),
            (
                b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
                Some("5"),
            ),
        ] {
            let (proxy, _over) = upstream(says);
            let (client, server) = pair().await;
            let _served = serve(server, worker(proxy, Timeouts::default()), ()).await;
            let mut requests = speak(client, 1 << 16).await;
            let response = requests.send_request(get("/")).await.unwrap();
            let told = response.headers().get(http::header::CONTENT_LENGTH);
            let told = told.map(|value| value.to_str().unwrap());
            assert_eq!(told, length, "{}", response.status());
            response.into_body().collect().await.unwrap();
        }
        // The server's own answers, too, such as that to OPTIONS.
        let (stream, _served, _) = connect(Timeouts::default()).await;
        let mut requests = speak(stream, 1 << 16).await;
        let options = Request::options("http://t/big").body(Empty::new()).unwrap();
        let response = requests.send_request(options).await.unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        assert!(
            !response
                .headers()
                .contains_key(http::header::CONTENT_LENGTH)
        );
    });
}

#[test]
fn long_targets_are_refused_as_long_lines_are() {
    run(async {
        let (stream, _served, _) = connect(Timeouts::default()).await;
        let mut requests = speak(stream, 1 << 16).await;
        let lines = ConnectionOptions::default().head.line_bytes;
        for (bytes, status) in [
            (lines, StatusCode::NOT_FOUND),
            (lines + 1, StatusCode::URI_TOO_LONG),
        ] {
            let path = format!("/{}", "a/".repeat(bytes / 2 + 1));
            let request = get(&path[..bytes]);
            assert_eq!(
                requests.send_request(request).await.unwrap().status(),
                status
            );
        }
    });
}

#[test]
fn a_request_that_is_reset_frees_its_upstream() {
    run(async {
        let (proxy, over) = upstream(b"");
        let worker = worker(proxy, Timeouts::default());
        let active = || worker.upstreams()[0].active;
        let (client, server) = pair().await;
        let _served = serve(server, Rc::clone(&worker), ()).await;
        let mut requests = speak(client, 1 << 16).await;
        let mut response = Box::pin(requests.send_request(get("/")));
        while active() == 0 {
            let _ = timeout(SHORT / 20, &mut response).await;
        }
        drop(response);
        over.await;
        while active() > 0 {
            sleep(SHORT / 20).await;
        }
    });
}
