//! No loop of a task keeps others from running.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use softclock::net::{TcpListener, TcpStream, UdpSocket};

use crate::{LIMIT, MS, run};

/// A task that loops over a future that is always ready lets other tasks run: their sleeps end.
#[test]
fn no_loop_over_what_is_ready_starves_a_sleep() {
    others_sleep_beside("sleeps of no time", async || {
        softclock::sleep(Duration::ZERO).await;
    });
    others_sleep_beside("sleeps until the past", async || {
        softclock::sleep_until(softclock::Instant::ORIGIN).await;
    });
    others_sleep_beside("timeouts of no time", async || {
        let _ = softclock::timeout(Duration::ZERO, std::future::pending::<()>()).await;
    });
    let interval = RefCell::new(None);
    others_sleep_beside("an interval of a nanosecond", async || {
        let taken = interval.take();
        let mut ticks = taken.unwrap_or_else(|| softclock::interval(Duration::from_nanos(1)));
        ticks.tick().await;
        interval.replace(Some(ticks));
    });
    others_sleep_beside("nothing paced to be sent", async || {
        softclock::net::all_paced_sent().await;
    });
    let root = softclock::fs::Root::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let manifest = Path::new("Cargo.toml");
    others_sleep_beside("files that the kernel knows", async || {
        root.open_file(manifest).await.unwrap();
    });
    let file = run(root.open_file(manifest)).unwrap();
    others_sleep_beside("reads from memory", async || {
        file.read_at(Vec::new(), 64, 0).await.unwrap();
    });
}

/// The same for sockets, which must belong to the runtime of the loop.
#[test]
fn no_loop_over_what_a_socket_knows_starves_a_sleep() {
    let stream = Rc::new(RefCell::new(None));
    let connected = async || {
        if stream.borrow().is_none() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await;
            let (server, _) = listener.accept().await.unwrap();
            server.write_all(b"to be read").await.unwrap();
            *stream.borrow_mut() = Some((Rc::new(client.unwrap()), server));
        }
        stream.borrow().as_ref().unwrap().0.clone()
    };
    others_sleep_beside("bytes that wait", async || {
        let stream = connected().await;
        poll_fn(|cx| stream.poll_read_ready(cx)).await;
    });
    stream.take();
    others_sleep_beside("nothing to write", async || {
        connected().await.write_all(b"").await.unwrap();
    });
    stream.take();
    others_sleep_beside("nothing to read", async || {
        connected().await.read_exact(&mut []).await.unwrap();
    });
    stream.take();
    others_sleep_beside("all sent", async || {
        connected().await.sent().await.unwrap();
    });
    stream.take();
    #[cfg(feature = "futures-io")]
    others_sleep_beside("nothing to flush", async || {
        let stream = connected().await;
        let flushed = futures_lite::io::AsyncWriteExt::flush(&mut &*stream).await;
        flushed.unwrap();
    });
    stream.take();
    let socket = RefCell::new(None);
    others_sleep_beside("trains of no datagram", async || {
        let taken = socket.take();
        let taken = taken.unwrap_or_else(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        taken.send_train(b"", 100, None).await.unwrap();
        socket.replace(Some(taken));
    });
    socket.take();
}

/// A task that uses up its calls in each turn does not outlast its timeout.
#[test]
fn a_timeout_ends_beside_what_is_always_ready() {
    run(async {
        let begun = Instant::now();
        let busy = async {
            while begun.elapsed() < LIMIT / 3 {
                softclock::sleep(Duration::ZERO).await;
            }
        };
        let limited = softclock::timeout(10 * MS, busy).await;
        limited.expect_err("the loop ended by itself");
    });
}

/// Calls `step` repeatedly while another task sleeps for 10 ms.
fn others_sleep_beside(what: &str, step: impl AsyncFn()) {
    run(async {
        let ended = Rc::new(Cell::new(false));
        let end = ended.clone();
        softclock::spawn_local(async move {
            softclock::sleep(10 * MS).await;
            end.set(true);
        });
        // By the system's clock, since the loop may keep the runtime from updating its own.
        let begun = Instant::now();
        while !ended.get() {
            step().await;
            assert!(begun.elapsed() < LIMIT / 3, "starved beside {what}");
        }
    });
}
