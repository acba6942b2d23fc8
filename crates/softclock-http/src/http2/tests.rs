//! Clients of HTTP/2 that take their time, on one runtime with the server and without TLS.

use std::fs;

use http::StatusCode;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{Builder as ClientBuilder, SendRequest};
use softclock::hyper::LocalExecutor;
use softclock::net::{TcpListener, TcpStream};
use softclock::{JoinHandle, sleep, timeout};

use super::*;
use crate::carrier::Peer;
use crate::members::Members;
use crate::site::Site;
use crate::worker::{Worker, WorkerOptions};

type Served = JoinHandle<Result<(), hyper::Error>>;

/// A connection to a server of a file `big`, as a task; and the members that the connection is one of.
async fn connect(timeouts: Timeouts) -> (TcpStream, Served, Rc<Members>) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("big"), vec![b'b'; 1 << 20]).unwrap();
    let site = Site::directory(directory.path()).unwrap();
    let listener = TcpListener::bind(([127, 0, 0, 1], 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let client = softclock::spawn_local(async move { TcpStream::connect(address).await.unwrap() });
    let (stream, _) = listener.accept().await.unwrap();
    let options = ConnectionOptions {
        timeouts,
        ..ConnectionOptions::default()
    };
    let worker = Worker::of_site(Rc::new(site), WorkerOptions::default());
    let members = Rc::clone(&worker.members);
    let membership = members.admit().await;
    let client_of_server = Client::new(worker, Peer::Local, false);
    let served = softclock::spawn_local(async move {
        // Removed with the connection.
        let _directory = directory;
        converse(stream.into(), client_of_server, &options, membership).await
    });
    (client.await, served, members)
}

/// A client of hyper's, which takes so much of each response before it is read.
async fn speak(stream: TcpStream, window: u32) -> SendRequest<Empty<Bytes>> {
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

/// Timeouts of this length, at a rate at which a chunk takes no time.
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

#[test]
fn a_stream_that_is_not_read_is_reset_and_others_go_on() {
    run(async {
        let (stream, _served, _) = connect(all(SHORT)).await;
        let mut requests = speak(stream, 1 << 16).await;
        let stuck = requests.send_request(get("/big")).await.unwrap();
        for _ in 0..10 {
            sleep(SHORT / 5).await;
            let response = requests.send_request(get("/none")).await.unwrap();
            assert_eq!(response.status(), StatusCode::NOT_FOUND);
        }
        let error = stuck.into_body().collect().await.unwrap_err();
        assert!(format!("{error:?}").contains("CANCEL"), "{error:?}");
        assert!(requests.send_request(get("/none")).await.is_ok());
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
