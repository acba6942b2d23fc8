//! Upstreams are killed and started again while requests run: each request gets one response, and that is right.

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::server::{Server, directory, noise, softclock};
use crate::upstream::proxy;

/// How long; an hour by hand: `SOFTCLOCK_SOAK_SECONDS=3600 cargo test --release -p softclock-cli --test proxy soak`.
fn duration() -> Duration {
    let seconds = env::var("SOFTCLOCK_SOAK_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(15))
}

#[test]
fn soak() {
    let content = noise(200_000);
    let directory = directory(&[("f", &content)]);
    let start = |address: SocketAddr| {
        let mut command = softclock();
        let command = command.args(["serve", "--listen", &address.to_string()]);
        Server::spawn(command.arg(directory.path()))
    };
    let addresses = [free_address(), free_address()];
    let _steady = start(addresses[0]);
    let proxy = proxy(
        &addresses
            .map(|address| format!("http://{address}"))
            .each_ref()
            .map(String::as_str),
        &["--threads", "2", "--fail-time", "0.3"],
    );
    let is_over = Arc::new(AtomicBool::new(false));
    let counts: [Arc<AtomicU64>; 2] = Default::default();
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (address, is_over) = (proxy.address(), is_over.clone());
            let (content, counts) = (content.clone(), counts.clone());
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    ask(address, number % 2 == 0, &content, &counts);
                    thread::sleep(PAUSE);
                }
            })
        })
        .collect();
    let end = Instant::now() + duration();
    let mut kills = 0;
    while Instant::now() < end {
        let killed = start(addresses[1]);
        thread::sleep(Duration::from_millis(700));
        // SIGKILL, with requests in progress.
        drop(killed);
        thread::sleep(Duration::from_millis(300));
        kills += 1;
    }
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().expect("every response was right");
    }
    let [whole, cut] = counts.map(|count| count.load(Ordering::SeqCst));
    eprintln!("soak: {kills} kills, {whole} whole responses, {cut} cut short or 502");
    assert!(kills > 0 && whole > cut);
}

/// Nobody gets it by chance while an upstream is away: it is none of those that the kernel gives.
fn free_address() -> SocketAddr {
    let salt = RandomState::new().build_hasher().finish();
    let mut ports = (0..1000).map(|step| 20_000 + (salt.wrapping_add(7 * step) % 10_000) as u16);
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let is_free = |port: &u16| TcpListener::bind(address(*port)).is_ok();
    address(ports.find(is_free).expect("a free port"))
}

/// One connection's requests: a few small ones, which must succeed, or a large one, which may be cut short.
fn ask(address: SocketAddr, is_small: bool, content: &[u8], counts: &[Arc<AtomicU64>; 2]) {
    let mut client = Client::connect(address);
    for _ in 0..20 {
        let range = if is_small {
            "Range: bytes=10-29"
        } else {
            "X-None: 1"
        };
        let reply = client.ask("GET", "/f", &[range]);
        let expected = if is_small { &content[10..30] } else { content };
        let right = [200, 206].contains(&reply.status);
        if !right || !reply.is_complete {
            // An upstream that stays is there all the time: only what has begun elsewhere can be lost.
            assert!(right, "{reply:?}");
            assert!(expected.starts_with(&reply.body));
            counts[1].fetch_add(1, Ordering::SeqCst);
            return;
        }
        assert!(reply.body == expected);
        counts[0].fetch_add(1, Ordering::SeqCst);
    }
}

/// Between connections: what is tested is endurance, beside whatever else the machine does.
const PAUSE: Duration = Duration::from_millis(50);
