//! QUIC on a softclock runtime.

mod support;

use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{ConnectionError, Endpoint, EndpointConfig, Runtime, ServerConfig};
use softclock_quinn::{
    Limits, PacedSocket, Pacing, SoftclockRuntime, observed, paced, paced_by_window,
};
use support::{NAME, configs, cubic, fetch, serve};

fn endpoint(quinn: &Arc<SoftclockRuntime>, server: Option<ServerConfig>) -> Endpoint {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    Endpoint::new(EndpointConfig::default(), server, socket, quinn.clone()).unwrap()
}

/// The server of a paced socket.
fn paced_server(
    quinn: &Arc<SoftclockRuntime>,
    config: ServerConfig,
    socket: Arc<PacedSocket>,
) -> Endpoint {
    let any = EndpointConfig::default();
    let server = Endpoint::new_with_abstract_socket(any, Some(config), socket, quinn.clone());
    server.unwrap()
}

fn spawn(task: support::Task) {
    drop(softclock::spawn_local(task));
}

#[test]
fn both_ends_on_one_thread() {
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    let (server_config, client_config) = configs(cubic());
    runtime.block_on(async {
        let server = endpoint(&quinn, Some(server_config));
        let address = server.local_addr().unwrap();
        let serving = softclock::spawn_local(serve(server.clone(), spawn));
        let client = endpoint(&quinn, None);
        for bytes in [0, 1, 3_000_000] {
            let connecting = client.connect_with(client_config.clone(), address, NAME);
            let connection = connecting.unwrap().await.unwrap();
            fetch(&connection, bytes).await;
            connection.close(0_u32.into(), b"done");
        }
        client.wait_idle().await;
        server.close(0_u32.into(), b"");
        serving.await;
        server.wait_idle().await;
    });
}

#[test]
fn a_client_that_finds_no_server_times_out() {
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    let (_, mut client_config) = configs(cubic());
    let mut transport = quinn::TransportConfig::default();
    let limit = Duration::from_millis(100);
    transport.max_idle_timeout(Some(limit.try_into().unwrap()));
    client_config.transport_config(Arc::new(transport));
    runtime.block_on(async {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = endpoint(&quinn, None);
        let address = silent.local_addr().unwrap();
        let start = softclock::now();
        let connecting = client.connect_with(client_config, address, NAME).unwrap();
        let error = connecting.await.unwrap_err();
        assert_eq!(error, quinn::ConnectionError::TimedOut);
        assert!(softclock::now().since(start) >= limit);
    });
}

#[test]
fn another_thread_uses_a_connection() {
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    let (server_config, client_config) = configs(cubic());
    let ended = runtime.block_on(async {
        let server = endpoint(&quinn, Some(server_config));
        let address = server.local_addr().unwrap();
        softclock::spawn_local(serve(server.clone(), spawn));
        let client = endpoint(&quinn, None);
        // Connects there, too: its task is sent here.
        let other = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            runtime.block_on(async {
                let connecting = client.connect_with(client_config, address, NAME).unwrap();
                let connection = connecting.await.unwrap();
                fetch(&connection, 200_000).await;
                connection.close(0_u32.into(), b"");
            });
        });
        while !other.is_finished() {
            softclock::sleep(Duration::from_millis(1)).await;
        }
        other.join()
    });
    ended.unwrap();
}

#[test]
fn the_runtime_ends_before_connections_and_endpoints() {
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    let (server_config, client_config) = configs(cubic());
    let (server, client, connection) = runtime.block_on(async {
        let server = endpoint(&quinn, Some(server_config));
        let address = server.local_addr().unwrap();
        softclock::spawn_local(serve(server.clone(), spawn));
        let client = endpoint(&quinn, None);
        let connecting = client.connect_with(client_config.clone(), address, NAME);
        let connection = connecting.unwrap().await.unwrap();
        fetch(&connection, 1000).await;
        (server, client, connection)
    });
    drop(runtime);
    let address = server.local_addr().unwrap();
    drop(connection);
    drop((client, quinn));
    // The thread may have another runtime, though the endpoint has not been dropped.
    drop(softclock::Runtime::new().unwrap());
    thread::spawn(move || drop(server)).join().unwrap();
    UdpSocket::bind(address).expect("the address is free");
}

#[test]
fn a_socket_is_closed_though_the_mailbox_is_full() {
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = SoftclockRuntime::new(&runtime);
    let remote = runtime.remote();
    runtime.block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = quinn.wrap_udp_socket(socket).unwrap();
        let address = socket.local_addr().unwrap();
        // No turn of the runtime passes meanwhile.
        let other = thread::spawn(move || {
            while remote.post(|| {}).is_ok() {}
            drop(socket);
        });
        other.join().unwrap();
        softclock::sleep(Duration::from_millis(1)).await;
        UdpSocket::bind(address).expect("the address is free");
    });
}

/// An endpoint goes on though a thread opens connections while the runtime's mailbox is full.
#[test]
fn connections_begin_though_the_mailbox_is_full() {
    const CONNECTIONS: usize = 20;
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    let (server_config, client_config) = configs(cubic());
    let remote = runtime.remote();
    runtime.block_on(async {
        let server = endpoint(&quinn, Some(server_config));
        let address = server.local_addr().unwrap();
        let serving = softclock::spawn_local(serve(server.clone(), spawn));
        let client = endpoint(&quinn, None);
        let connecting = client.connect_with(client_config.clone(), address, NAME);
        let first = connecting.unwrap().await.unwrap();
        let other = client.clone();
        // No turn of the runtime passes meanwhile.
        let opening = thread::spawn(move || {
            while remote.post(|| {}).is_ok() {}
            let connect = || other.connect_with(client_config.clone(), address, NAME);
            Vec::from_iter((0..CONNECTIONS).map(|_| connect().unwrap()))
        });
        let opened = opening.join().unwrap();
        fetch(&first, 1000).await;
        for connecting in opened {
            let connection = connecting.await.unwrap();
            fetch(&connection, 1).await;
            connection.close(0_u32.into(), b"done");
        }
        first.close(0_u32.into(), b"done");
        client.wait_idle().await;
        server.close(0_u32.into(), b"");
        serving.await;
    });
}

#[test]
fn an_endpoint_belongs_to_the_thread_of_the_runtime() {
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    let other = thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Endpoint::new(EndpointConfig::default(), None, socket, quinn).map(drop)
    });
    let error = other.join().unwrap().unwrap_err();
    assert!(
        error.to_string().contains("inside the softclock runtime"),
        "{error}"
    );
}

#[test]
fn descriptors_are_given_back() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    runtime.block_on(async {
        let mut before = None;
        for _ in 0..20 {
            let endpoint = endpoint(&quinn, None);
            endpoint.close(0_u32.into(), b"");
            endpoint.wait_idle().await;
            drop(endpoint);
            softclock::sleep(Duration::from_millis(2)).await;
            before.get_or_insert_with(open);
        }
        // Other tests of this program open and close descriptors meanwhile, but not twenty for good.
        assert!(open() < before.unwrap() + 15);
    });
}

#[test]
fn a_paced_socket_on_softclock() {
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    let (server_config, client_config) = configs(cubic());
    runtime.block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let pacing = Pacing::of_rate("40mbit".parse().unwrap());
        let socket = paced(socket, &*quinn, pacing).unwrap();
        let server = paced_server(&quinn, server_config, socket.clone());
        let address = server.local_addr().unwrap();
        softclock::spawn_local(serve(server.clone(), spawn));
        let client = endpoint(&quinn, None);
        let connecting = client.connect_with(client_config, address, NAME);
        let connection = connecting.unwrap().await.unwrap();
        let start = softclock::now();
        fetch(&connection, 500_000).await;
        // 100 ms at this rate.
        assert!(softclock::now().since(start) > Duration::from_millis(90));
        assert!(socket.counts().unwrap().sent > 300);
    });
    assert!(!has_timer_thread());
}

#[test]
fn a_socket_that_learns_on_softclock() {
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    let (server_config, client_config) = configs(observed(CubicConfig::default()));
    runtime.block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = paced_by_window(socket, &*quinn, Limits::default()).unwrap();
        let server = paced_server(&quinn, server_config, socket);
        let address = server.local_addr().unwrap();
        softclock::spawn_local(serve(server.clone(), spawn));
        let client = endpoint(&quinn, None);
        for _ in 0..2 {
            let connecting = client.connect_with(client_config.clone(), address, NAME);
            let connection = connecting.unwrap().await.unwrap();
            fetch(&connection, 3_000_000).await;
            connection.close(0_u32.into(), b"done");
        }
        client.wait_idle().await;
    });
    assert!(!has_timer_thread());
}

#[test]
fn the_last_words_of_a_dropped_endpoint_are_sent() {
    let runtime = softclock::Runtime::new().unwrap();
    let quinn = Arc::new(SoftclockRuntime::new(&runtime));
    let (server_config, client_config) = configs(cubic());
    runtime.block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let pacing = Pacing::of_rate("2mbit".parse().unwrap());
        let socket = paced(socket, &*quinn, pacing).unwrap();
        let server = paced_server(&quinn, server_config, socket.clone());
        let address = server.local_addr().unwrap();
        let client = endpoint(&quinn, None);
        let connecting = client.connect_with(client_config, address, NAME).unwrap();
        let accepting = softclock::spawn_local(async move {
            let accepted = server.accept().await.unwrap().await.unwrap();
            (server, accepted)
        });
        let connection = connecting.await.unwrap();
        let (server, accepted) = accepting.await;
        let mut stream = accepted.open_uni().await.unwrap();
        // Fewer than the first congestion window, which would hold the closing frame back.
        stream.write_all(&[0; 7_000]).await.unwrap();
        // Until datagrams wait.
        while socket.counts().unwrap().queued < 3 {
            softclock::sleep(Duration::from_millis(1)).await;
        }
        accepted.close(7_u32.into(), b"bye");
        drop((stream, accepted, server, socket));
        match connection.closed().await {
            ConnectionError::ApplicationClosed(closed) => {
                assert_eq!(closed.error_code, 7_u32.into());
            }
            other => panic!("{other}"),
        }
    });
}

/// Whether this process has a timer thread. The kernel keeps 15 bytes of its name.
fn has_timer_thread() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().any(|task| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        // A thread may have ended meanwhile.
        name.is_ok_and(|name| name.trim_end() == "softclock-timer")
    })
}
