//! One rule for calls outside a runtime: an `io::Result` fails, everything else panics, with the same message.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener, UdpSocket as StdUdp};
use std::os::unix::net::UnixStream as StdUnix;
use std::panic::catch_unwind;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use futures_lite::future::block_on;
use softclock::fs::Root;
use softclock::net::{self, TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use softclock::signal::{Signal, Signals};
use softclock::{Descriptor, GiveWay, Instant, Runtime, time};

use crate::{MS, run};

const MESSAGE: &str =
    "outside a softclock runtime: call this from within Runtime::block_on, on its thread";

/// The address of a port that the system selects.
const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

fn panics<R>(name: &str, call: impl FnOnce() -> R + std::panic::UnwindSafe) {
    let Err(payload) = catch_unwind(call) else {
        panic!("{name} does not panic");
    };
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    assert_eq!(text.as_deref(), Some(MESSAGE), "{name}");
}

fn fails<R>(name: &str, result: io::Result<R>) {
    let Err(error) = result else {
        panic!("{name} does not fail");
    };
    assert_eq!(error.to_string(), MESSAGE, "{name}");
    assert_eq!(error.kind(), io::ErrorKind::Other, "{name}");
}

/// Polls a future once.
fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn functions_without_an_error_panic() {
    panics("spawn_local", || softclock::spawn_local(async {}));
    panics("JoinSet", || {
        softclock::JoinSet::new().spawn_local(async {})
    });
    panics("remote", softclock::remote);
    panics("now", softclock::now);
    panics("trigger", softclock::trigger);
    panics("system_call", || softclock::system_call(|| ()));
    panics("measure_time", softclock::measure_time);
    panics("schedule", || softclock::schedule_soft_event(1, |_| ()));
    panics("schedule_after", || softclock::schedule_after(MS, |_| ()));
    panics("set_backup", || softclock::set_backup(None));
    panics("resolution", softclock::interrupt_clock_resolution);
    panics("statistics", softclock::statistics);
    panics("trace_triggers", || softclock::trace_triggers(1));
    panics("trace_is_full", softclock::is_trigger_trace_full);
    panics("take_trace", softclock::take_trigger_trace);
    panics("sleep", || softclock::sleep(MS));
    panics("timeout", || softclock::timeout(MS, async {}));
    panics("interval", || softclock::interval(MS));
    panics("to_std", || time::to_std(Instant::ORIGIN));
    panics("from_std", || time::from_std(std::time::Instant::now()));
}

#[test]
fn futures_without_an_error_panic() {
    panics("sleep_until", || {
        poll(softclock::sleep_until(Instant::ORIGIN))
    });
    let [sleep] = run(async { [softclock::sleep(MS)] });
    panics("a sleep", || poll(sleep));
    panics("GiveWay", || {
        GiveWay::default().poll(&Context::from_waker(Waker::noop()))
    });
    panics("all_paced_sent", || poll(net::all_paced_sent()));
}

#[test]
fn functions_with_an_error_fail() {
    fails("TcpListener", TcpListener::bind(ANY));
    let listener = StdListener::bind(ANY).unwrap();
    let address = listener.local_addr().unwrap();
    fails("TcpStream", block_on(TcpStream::connect(address)));
    fails("TcpListener::from_std", TcpListener::from_std(listener));
    fails("UdpSocket", UdpSocket::bind(ANY));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    fails("UnixListener", UnixListener::bind(&path, 0o600));
    assert!(!path.exists(), "nothing is left behind");
    fails("UnixStream", UnixStream::connect(&path));
    let (stream, _other) = StdUnix::pair().unwrap();
    fails("UnixStream::from_std", UnixStream::from_std(stream));
    fails("Descriptor", Descriptor::new(StdUdp::bind(ANY).unwrap()));
    let signals = Signals::block(&[Signal::Hangup]).unwrap();
    fails("Signals", block_on(signals.next()));
}

#[test]
fn calls_that_need_no_runtime_work() {
    block_on(async {
        softclock::yield_now().await;
        assert_eq!(softclock::spawn_blocking(|| 3).await, 3);
        let addresses = net::lookup_host("127.0.0.1:80").await.unwrap();
        assert_eq!(addresses.count(), 1);

        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "content").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let file = root.open_file(Path::new("file")).await.unwrap();
        assert_eq!(file.read_at(Vec::new(), 10, 0).await.unwrap(), b"content");
        assert_eq!(file.current_metadata().unwrap().len(), 7);
        assert!(file.is_cached(0, 7));
    });
}

/// The thread that has a runtime is outside it between two calls of `block_on`.
#[test]
fn a_runtime_that_does_not_run_is_outside() {
    let runtime = Runtime::new().unwrap();
    panics("now", softclock::now);
    let socket = runtime.block_on(async { UdpSocket::bind(ANY) }).unwrap();
    fails("UdpSocket", UdpSocket::bind(ANY));
    assert!(socket.local_addr().is_ok(), "existing sockets remain");
}
