//! Paced sockets under tokio.

mod support;

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use quinn::congestion::{ControllerFactory, CubicConfig};
use quinn::udp::Transmit;
use quinn::{
    AsyncUdpSocket, ConnectionError, Endpoint, EndpointConfig, PathStats, ServerConfig,
    TokioRuntime,
};
use softclock_core::wan::WanOptions;
use softclock_quinn::{
    Limits, PacedSocket, Pacing, observed, observed_unchanged, paced, paced_by_window,
};
use support::relay::{Arrival, Relay, most_within};
use support::{NAME, configs, cubic, fetch, serve};

const MS: Duration = Duration::from_millis(1);

fn bind() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

fn endpoint(socket: Arc<PacedSocket>, server: Option<ServerConfig>) -> Endpoint {
    let (config, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
    Endpoint::new_with_abstract_socket(config, server, socket, runtime).unwrap()
}

fn unpaced(server: Option<ServerConfig>) -> Endpoint {
    let (config, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
    Endpoint::new(config, server, bind(), runtime).unwrap()
}

fn spawn(task: support::Task) {
    drop(tokio::spawn(task));
}

/// Fetches `bytes` from `server` through a relay. Returns the datagrams of the server.
async fn transfer(
    server: Endpoint,
    client_config: quinn::ClientConfig,
    delay: Duration,
    bytes: u64,
) -> Vec<Arrival> {
    let relay = Relay::start(server.local_addr().unwrap(), delay);
    let serving = tokio::spawn(serve(server.clone(), spawn));
    let client = unpaced(None);
    let connecting = client.connect_with(client_config, relay.address, NAME);
    let connection = connecting.unwrap().await.unwrap();
    fetch(&connection, bytes).await;
    connection.close(0_u32.into(), b"");
    client.wait_idle().await;
    server.close(0_u32.into(), b"");
    serving.await.unwrap();
    relay.end()
}

#[tokio::test]
async fn a_stated_rate_spreads_the_bursts_of_quinn() {
    let (server_config, client_config) = configs(cubic());
    let plain = unpaced(Some(server_config.clone()));
    let plain = transfer(plain, client_config.clone(), 5 * MS, 400_000).await;

    let pacing = Pacing::of_rate("20mbit".parse().unwrap());
    let socket = paced(bind(), &TokioRuntime, pacing).unwrap();
    let server = endpoint(socket.clone(), Some(server_config));
    let start = Instant::now();
    let arrivals = transfer(server, client_config, 5 * MS, 400_000).await;
    // 160 ms at 20 Mbit/s.
    assert!(start.elapsed() > 150 * MS, "{:?}", start.elapsed());
    let counts = socket.counts().unwrap();
    assert!(counts.sent > 270 && counts.dropped == 0, "{counts:?}");
    // A datagram takes about 0.5 ms, and at most four leave together.
    let (most, without) = (most_within(&arrivals, MS / 2), most_within(&plain, MS / 2));
    assert!(
        most <= 6 && most * 3 / 2 <= without,
        "{most}, unpaced {without}"
    );
}

#[tokio::test]
async fn a_learnt_rate_spreads_the_bursts_of_quinn() {
    let (server_config, client_config) = configs(cubic());
    let plain = unpaced(Some(server_config));
    let plain = transfer(plain, client_config, 20 * MS, 400_000).await;

    let (server_config, client_config) = configs(observed(CubicConfig::default()));
    let socket = paced_by_window(bind(), &TokioRuntime, Limits::default()).unwrap();
    let server = endpoint(socket, Some(server_config));
    let arrivals = transfer(server, client_config, 20 * MS, 400_000).await;
    // The window grows to 300 kB for each 40 ms at most: 0.13 ms for each datagram.
    let window = Duration::from_micros(200);
    let (most, without) = (most_within(&arrivals, window), most_within(&plain, window));
    assert!(most * 3 / 2 <= without, "{most}, unpaced {without}");
}

/// Transfers `length` bytes over a bottleneck with a queue of five packets. Returns the packets that the server lost.
async fn lost_at_a_short_queue(
    server: Endpoint,
    client_config: quinn::ClientConfig,
    length: usize,
) -> u64 {
    let link = WanOptions {
        delay: 20 * MS,
        rate: Some("50mbit".parse().unwrap()),
        queue_packets: 5,
        ..WanOptions::default()
    };
    send_over(server, client_config, link, length)
        .await
        .lost_packets
}

/// Transfers `length` bytes over `link`. Returns the server's statistics when all bytes are acknowledged.
async fn send_over(
    server: Endpoint,
    client_config: quinn::ClientConfig,
    link: WanOptions,
    length: usize,
) -> PathStats {
    let relay = Relay::over(server.local_addr().unwrap(), link);
    let client = unpaced(None);
    let connecting = client.connect_with(client_config, relay.address, NAME);
    let accepted = async { server.accept().await.unwrap().await.unwrap() };
    let (connection, accepted) = tokio::join!(connecting.unwrap(), accepted);
    let connection = connection.unwrap();
    let mut stream = accepted.open_uni().await.unwrap();
    let sending = async {
        stream.write_all(&vec![0xA5; length]).await.unwrap();
        stream.finish().unwrap();
        stream.stopped().await.unwrap();
    };
    let receiving = async {
        let mut stream = connection.accept_uni().await.unwrap();
        stream.read_to_end(length).await.unwrap()
    };
    let ((), received) = tokio::join!(sending, receiving);
    assert_eq!(received.len(), length);
    relay.end();
    accepted.stats().path
}

/// One datagram of a socket to itself.
fn to_itself<'a>(socket: &PacedSocket, contents: &'a [u8]) -> Transmit<'a> {
    Transmit {
        destination: socket.local_addr().unwrap(),
        ecn: None,
        contents,
        segment_size: None,
        src_ip: None,
    }
}

/// quinn tries again as long as the poller is ready: it must not be while the socket takes nothing.
#[tokio::test]
async fn a_connection_that_is_not_observed_waits_for_the_socket() {
    let socket = paced_by_window(bind(), &TokioRuntime, Limits::default()).unwrap();
    let mut poller = socket.clone().create_io_poller();
    let transmit = to_itself(&socket, b"early");
    // tokio has not yet asked the kernel.
    let early = socket.try_send(&transmit).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::WouldBlock);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(poller.as_mut().poll_writable(&mut cx).is_pending());
    poll_fn(|cx| poller.as_mut().poll_writable(cx))
        .await
        .unwrap();
    socket.try_send(&transmit).unwrap();
}

/// Another connection of the thread, whose socket is not paced, does not lend its queue to one that waits.
#[tokio::test]
async fn a_connection_that_waits_keeps_its_queue() {
    let socket = paced_by_window(bind(), &TokioRuntime, Limits::default()).unwrap();
    let mut poller = socket.clone().create_io_poller();
    let transmit = to_itself(&socket, &[0; 1200]);
    let controller = || observed(CubicConfig::default()).build(Instant::now(), 1200);
    let (mut own, mut other) = (controller(), controller());
    let mut cx = Context::from_waker(Waker::noop());
    let mut sent = 0;
    loop {
        own.on_sent(Instant::now(), 1200, sent);
        // tokio has not yet asked the kernel, so nothing leaves.
        if poller.as_mut().poll_writable(&mut cx).is_pending() {
            break;
        }
        socket.try_send(&transmit).unwrap();
        sent += 1;
        assert!(sent < 1000, "the queue has no end");
    }
    for number in 0..3 {
        other.on_sent(Instant::now(), 1200, number);
        assert!(poller.as_mut().poll_writable(&mut cx).is_pending());
    }
}

#[tokio::test]
async fn a_learnt_rate_loses_less_at_a_short_queue() {
    let (server_config, client_config) = configs(cubic());
    let plain = lost_at_a_short_queue(unpaced(Some(server_config)), client_config, 400_000).await;

    let (server_config, client_config) = configs(observed(CubicConfig::default()));
    let limits = Limits {
        burst: 2,
        ..Limits::default()
    };
    let socket = paced_by_window(bind(), &TokioRuntime, limits).unwrap();
    let server = endpoint(socket, Some(server_config));
    let learnt = lost_at_a_short_queue(server, client_config, 400_000).await;
    assert!(
        plain > 0 && learnt * 2 <= plain,
        "{learnt}, unpaced {plain}"
    );
}

/// The same for a transfer that would overshoot the path, whose capacity the trains of four tell.
#[tokio::test]
async fn a_measured_path_loses_less_in_slow_start() {
    let (server_config, client_config) = configs(cubic());
    let plain = unpaced(Some(server_config));
    let plain = lost_at_a_short_queue(plain, client_config, 2_000_000).await;

    let (server_config, client_config) = configs(observed(CubicConfig::default()));
    let socket = paced_by_window(bind(), &TokioRuntime, Limits::default()).unwrap();
    let server = endpoint(socket, Some(server_config));
    let learnt = lost_at_a_short_queue(server, client_config, 2_000_000).await;
    assert!(
        plain > 0 && learnt * 4 <= plain,
        "{learnt}, unpaced {plain}"
    );
}

/// The window after a transfer within slow start, in which it grows by half of the acknowledged bytes or by all.
#[tokio::test]
async fn slow_start_is_slower_if_observed_unless_unchanged() {
    let mut windows = Vec::new();
    let cubic = CubicConfig::default;
    for factory in [observed(cubic()), observed_unchanged(cubic())] {
        let (server_config, client_config) = configs(factory);
        let link = WanOptions {
            delay: 20 * MS,
            ..WanOptions::default()
        };
        let server = unpaced(Some(server_config));
        let path = send_over(server, client_config, link, 500_000).await;
        windows.push(path.cwnd);
    }
    assert!(windows[0] * 5 / 4 < windows[1], "{windows:?}");
}

#[tokio::test]
async fn connections_share_a_bounded_queue() {
    let (server_config, client_config) = configs(cubic());
    let limits = Limits {
        burst: 2,
        queue: 20,
    };
    let pacing = Pacing::of_rate("50mbit".parse().unwrap()).with_limits(limits);
    let socket = paced(bind(), &TokioRuntime, pacing).unwrap();
    let server = endpoint(socket.clone(), Some(server_config));
    let address = server.local_addr().unwrap();
    tokio::spawn(serve(server, spawn));
    let mut tasks = tokio::task::JoinSet::new();
    let client = unpaced(None);
    for _ in 0..8 {
        let connecting = client.connect_with(client_config.clone(), address, NAME);
        tasks.spawn(async move {
            let connection = connecting.unwrap().await.unwrap();
            fetch(&connection, 100_000).await;
        });
    }
    let mut most = 0;
    while !tasks.is_empty() {
        most = most.max(socket.counts().unwrap().queued);
        tokio::select! {
            ended = tasks.join_next() => ended.unwrap().unwrap(),
            () = tokio::task::yield_now() => {}
        }
    }
    assert!((1..=20).contains(&most), "{most}");
}

#[tokio::test]
async fn the_last_words_of_a_dropped_endpoint_are_sent() {
    let (server_config, client_config) = configs(cubic());
    let pacing = Pacing::of_rate("2mbit".parse().unwrap());
    let socket = paced(bind(), &TokioRuntime, pacing).unwrap();
    let server = endpoint(socket.clone(), Some(server_config));
    let address = server.local_addr().unwrap();
    let client = unpaced(None);
    let connecting = client.connect_with(client_config, address, NAME).unwrap();
    let accepted = async { server.accept().await.unwrap().await.unwrap() };
    let (connection, accepted) = tokio::join!(connecting, accepted);
    let connection = connection.unwrap();
    let mut stream = accepted.open_uni().await.unwrap();
    // Fewer than the first congestion window, which would hold the closing frame back.
    stream.write_all(&[0; 7_000]).await.unwrap();
    // Until datagrams wait.
    while socket.counts().unwrap().queued < 3 {
        tokio::time::sleep(MS).await;
    }
    accepted.close(7_u32.into(), b"bye");
    drop((stream, accepted, server, socket));
    match connection.closed().await {
        ConnectionError::ApplicationClosed(closed) => assert_eq!(closed.error_code, 7_u32.into()),
        other => panic!("{other}"),
    }
}

#[test]
fn the_runtime_ends_while_datagrams_wait() {
    let (server_config, client_config) = configs(observed(CubicConfig::default()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let socket = runtime.block_on(async {
        let pacing = Pacing::of_rate("2mbit".parse().unwrap());
        let socket = paced(bind(), &TokioRuntime, pacing).unwrap();
        let server = endpoint(socket.clone(), Some(server_config));
        let address = server.local_addr().unwrap();
        tokio::spawn(serve(server, spawn));
        let connecting = unpaced(None).connect_with(client_config, address, NAME);
        let connection = connecting.unwrap().await.unwrap();
        tokio::spawn(async move { fetch(&connection, 1_000_000).await });
        while socket.counts().unwrap().queued < 5 {
            tokio::time::sleep(MS).await;
        }
        socket
    });
    runtime.shutdown_background();
    // Sent or, once the socket takes no more, dropped.
    let start = Instant::now();
    while socket.counts().unwrap().queued > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(100),
            "{:?}",
            socket.counts()
        );
        std::thread::sleep(MS);
    }
}
