//! The server, and the task on its thread that runs the slices.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::time::Duration;

use softclock::Runtime;
use softclock::net::TcpListener;
use softclock_http::{Site, WorkerOptions, requests_answered};
use softclock_linux::clock::cpu_time_ns;

use super::variant::Variant;

/// Counts of one slice of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) variant: Variant,
    pub(super) time: Duration,
    pub(super) requests: u64,
    pub(super) events: u64,
    /// Processor time of the server's thread.
    pub(super) cpu: Duration,
}

/// Serves the bundled site for `seconds`, or until `stop` is set, and reports each slice.
pub(super) fn run(
    seconds: Duration,
    stop: &AtomicBool,
    listening: Sender<SocketAddr>,
    slices: Sender<Slice>,
) -> io::Result<()> {
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let options = WorkerOptions {
            drain: Duration::from_millis(100),
            ..WorkerOptions::default()
        };
        let (end, ended) = async_channel::bounded::<()>(1);
        let server = softclock::spawn_local(async move {
            let ended = async move {
                // An error means that the channel was closed, which ends the server too.
                let _ = ended.recv().await;
            };
            softclock_http::serve(vec![listener], Rc::new(Site::bundled()), options, ended).await
        });
        // Ignore the error: if the clients have ended, they report the reason.
        let _ = listening.send(address);
        let result = take_turns(seconds, stop, &slices).await;
        // Stop the clients first: they would report connections that the server closes.
        stop.store(true, Relaxed);
        drop(end);
        server.await;
        result
    })
}

async fn take_turns(
    seconds: Duration,
    stop: &AtomicBool,
    slices: &Sender<Slice>,
) -> io::Result<()> {
    let begun = softclock::now();
    let slice = slice_of(seconds);
    // Warm up without counting: connections are made and caches filled.
    softclock::sleep(slice).await;
    for turn in 0.. {
        for variant in order(turn) {
            if stop.load(Relaxed) || softclock::now().since(begun) >= seconds {
                return Ok(());
            }
            // An error means that the receiver has ended; `stop` is then set soon.
            let _ = slices.send(take(variant, slice).await?);
        }
    }
    Ok(())
}

async fn take(variant: Variant, length: Duration) -> io::Result<Slice> {
    let lateness = variant.lateness();
    // The counters only grow, so take their differences over the slice.
    let (requests, events) = (requests_answered(), lateness.fires());
    let cpu_ns = cpu_time_ns();
    let begun = softclock::now();
    let running = variant.start(length)?;
    softclock::sleep(length).await;
    running.stop()?;
    Ok(Slice {
        variant,
        time: softclock::now().since(begun),
        requests: requests_answered() - requests,
        events: lateness.fires() - events,
        cpu: Duration::from_nanos(cpu_time_ns() - cpu_ns),
    })
}

/// Length of a slice: at least five rounds fit, and switching takes a negligible part of it.
fn slice_of(seconds: Duration) -> Duration {
    (seconds / 24).clamp(Duration::from_millis(20), Duration::from_millis(200))
}

/// The order of the variants, reversed every other round, so that the after-effects of a variant do not always hit the
/// same one.
fn order(turn: usize) -> [Variant; Variant::ALL.len()] {
    let mut order = Variant::ALL;
    if turn % 2 == 1 {
        order.reverse();
    }
    order
}
