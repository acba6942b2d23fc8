//! Unix stream sockets.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net as std_unix;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock::net::{UnixListener, UnixStream};
use softclock::{Runtime, sleep, spawn_local, timeout};

fn run(test: impl Future<Output = ()>) {
    let limited = async { timeout(Duration::from_secs(20), test).await };
    let result = Runtime::new().unwrap().block_on(limited);
    result.expect("the test hangs");
}

#[test]
fn large_transfers_and_half_close() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path, 0o600).unwrap();
        let server = spawn_local(async move {
            let stream = listener.accept().await.unwrap();
            let mut received = Vec::new();
            let mut buffer = vec![0; 10_000];
            while let n @ 1.. = stream.read(&mut buffer).await.unwrap() {
                received.extend_from_slice(&buffer[..n]);
            }
            stream.write_all(&received).await.unwrap();
        });
        let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 / 3) as u8).collect();
        let client = UnixStream::connect(&path).unwrap();
        client.write_all(&sent).await.unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut echoed = Vec::new();
        let mut buffer = vec![0; 70_000];
        while let n @ 1.. = client.read(&mut buffer).await.unwrap() {
            echoed.extend_from_slice(&buffer[..n]);
        }
        assert!(echoed == sent);
        server.await;
    });
}

#[test]
fn listeners_from_elsewhere_share_a_socket() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let bound = std::thread::spawn({
            let path = path.clone();
            move || softclock::net::bind_unix(&path, 0o600).unwrap()
        });
        let bound = bound.join().unwrap();
        let other = bound.try_clone().unwrap();
        let listener = UnixListener::from_std(bound).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().await.unwrap();
        drop(listener);
        let _client = UnixStream::connect(&path).unwrap();
        let other = UnixListener::from_std(other).unwrap();
        other.accept().await.unwrap();
    });
}

#[test]
fn who_listens_nowhere_is_not_there() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let error = |path| UnixStream::connect(path).unwrap_err().kind();
        assert_eq!(error(&path), ErrorKind::NotFound);
        drop(UnixListener::bind(&path, 0o600).unwrap());
        assert_eq!(error(&path), ErrorKind::ConnectionRefused);
        let taken = UnixListener::bind(&path, 0o600).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    });
}

/// Returns streams, each with its other end.
fn pairs(number: usize) -> Vec<(UnixStream, std_unix::UnixStream)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = std_unix::UnixListener::bind(&path).unwrap();
    let pair = |_| {
        let here = UnixStream::connect(&path).unwrap();
        (here, listener.accept().unwrap().0)
    };
    (0..number).map(pair).collect()
}

/// A task may wait for any number of streams: those that are not ready take none of its calls.
#[test]
fn a_task_that_waits_for_many_is_woken_by_what_comes() {
    run(async {
        let pairs = pairs(300);
        let (_, last) = &pairs[299];
        let mut last = last.try_clone().unwrap();
        let polls = Rc::new(Cell::new(0));
        let task = spawn_local({
            let polls = polls.clone();
            poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                let is_read = |here: &UnixStream| here.poll_read(cx, &mut [0]).is_ready();
                match pairs.iter().any(|(here, _)| is_read(here)) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
        });
        sleep(Duration::from_millis(20)).await;
        // New streams are each tried once, which takes some turns.
        let begun = polls.get();
        assert!(begun < 10, "{begun} polls");
        sleep(Duration::from_millis(20)).await;
        assert_eq!(polls.get(), begun);
        last.write_all(b"x").unwrap();
        task.await;
        assert_eq!(polls.get(), begun + 1);
    });
}

#[test]
fn a_closed_connection_is_known_without_a_call() {
    run(async {
        let (here, there) = pairs(1).remove(0);
        let lost = || poll_fn(|cx| here.poll_lost(cx));
        there.shutdown(Shutdown::Write).unwrap();
        let soon = timeout(Duration::from_millis(20), lost()).await;
        soon.expect_err("only one direction has ended");
        drop(there);
        lost().await;
    });
}

#[test]
fn an_ended_direction_is_known_behind_unread_data() {
    run(async {
        let (here, mut there) = pairs(1).remove(0);
        let ended = || poll_fn(|cx| here.poll_ended(cx));
        there.write_all(b"question").unwrap();
        let soon = timeout(Duration::from_millis(20), ended()).await;
        soon.expect_err("the peer may send more");
        there.shutdown(Shutdown::Write).unwrap();
        ended().await;
        assert_eq!(here.read(&mut [0; 16]).await.unwrap(), 8);
        ended().await;
    });
}

#[test]
fn forgotten_readers_are_not_woken() {
    run(async {
        let (here, mut there) = pairs(1).remove(0);
        let here = Rc::new(here);
        let polls = Rc::new(Cell::new(0));
        spawn_local({
            let (here, polls) = (here.clone(), polls.clone());
            poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                here.poll_read(cx, &mut [0]).map(drop)
            })
        });
        sleep(Duration::from_millis(5)).await;
        assert_eq!(polls.get(), 1);
        here.forget_readers();
        there.write_all(b"xy").unwrap();
        sleep(Duration::from_millis(5)).await;
        assert_eq!(polls.get(), 1);
        // The data that has arrived can still be read.
        let quiet = Context::from_waker(Waker::noop());
        assert!(here.poll_read(&quiet, &mut [0]).is_ready());
    });
}

#[test]
fn streams_from_elsewhere() {
    run(async {
        let (here, mut there) = std_unix::UnixStream::pair().unwrap();
        let here = UnixStream::from_std(here).unwrap();
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            there.write_all(b"x").unwrap();
        });
        let mut buffer = [0; 2];
        assert_eq!(here.read(&mut buffer).await.unwrap(), 1);
        assert_eq!(here.read(&mut buffer).await.unwrap(), 0);
        writing.join().unwrap();
    });
}
