//! Unix sockets.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as std_unix;
use std::os::unix::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use softclock::net::relay::Supervise;
use softclock::net::{UnixDatagram, UnixListener, UnixStream};
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

/// A read ends behind a message with descriptors, also if it takes none of them. What follows is read without another
/// arrival.
#[test]
fn what_follows_descriptors_is_read() {
    run(async {
        let (here, mut there) = pairs(1).remove(0);
        let reader = spawn_local(async move {
            let (mut read, mut buffer) = (Vec::new(), [0; 100]);
            while read.len() < 6 {
                let length = here.read(&mut buffer).await.unwrap();
                read.extend_from_slice(&buffer[..length]);
            }
            read
        });
        // The reader waits, and does not run again before all has arrived.
        sleep(Duration::from_millis(2)).await;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [there.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let parts = [IoSlice::new(b"one")];
        sendmsg(&there, &parts, &mut control, SendFlags::empty()).unwrap();
        there.write_all(b"two").unwrap();
        assert_eq!(reader.await, b"onetwo");
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

#[test]
fn datagrams_of_a_pair_keep_their_bounds() {
    run(async {
        let (one, two) = UnixDatagram::pair().unwrap();
        let mut buffer = [0; 16];
        let error = two.try_recv(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(
            timeout(Duration::from_millis(2), two.readable())
                .await
                .is_err()
        );
        one.send(b"first").await.unwrap();
        one.try_send(b"second").unwrap();
        two.readable().await;
        assert_eq!(two.recv(&mut buffer).await.unwrap(), 5);
        assert_eq!(two.recv(&mut buffer[..3]).await.unwrap(), 3);
        assert_eq!(&buffer[..3], b"sec");
        assert!(one.local_addr().unwrap().is_unnamed());
        drop(two);
        let error = one.send(b"nobody").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn datagrams_find_paths_and_abstract_names() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let bound = UnixDatagram::bind(&path).unwrap();
        let taken = UnixDatagram::bind(&path).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let name = format!(
            "softclock-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let named = UnixDatagram::bind_addr(&name).unwrap();
        named.send_to(b"to a path", &path).await.unwrap();
        let mut buffer = [0; 16];
        let (length, sender) = bound.recv_from(&mut buffer).await.unwrap();
        assert_eq!(
            (length, sender.as_abstract_name()),
            (9, name.as_abstract_name())
        );
        bound.send_to_addr(b"to a name", &sender).await.unwrap();
        let (_, sender) = named.recv_from(&mut buffer).await.unwrap();
        assert_eq!(sender.as_pathname(), Some(&*path));

        let client = UnixDatagram::unbound().unwrap();
        let error = client.peer_addr().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        client.connect(&path).unwrap();
        client.send(b"connected").await.unwrap();
        let (_, sender) = bound.recv_from(&mut buffer).await.unwrap();
        assert!(sender.is_unnamed());
        assert_eq!(
            client.peer_addr().unwrap().as_pathname(),
            bound.local_addr().unwrap().as_pathname()
        );
        client.connect_addr(&name).unwrap();
        client.try_send(b"connected anew").unwrap();
        named.recv(&mut buffer).await.unwrap();
    });
}

#[test]
fn senders_of_datagrams_wait_for_room_in_the_queue() {
    const DATAGRAMS: usize = 1_000;
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        for connects in [true, false] {
            let _ = std::fs::remove_file(&path);
            let bound = UnixDatagram::bind(&path).unwrap();
            let path = path.clone();
            let sender = spawn_local(async move {
                let client = UnixDatagram::unbound().unwrap();
                if connects {
                    client.connect(&path).unwrap();
                }
                for number in 0..DATAGRAMS {
                    let number = number.to_ne_bytes();
                    match connects {
                        true => client.send(&number).await.unwrap(),
                        false => client.send_to(&number, &path).await.unwrap(),
                    };
                }
            });
            sleep(Duration::from_millis(2)).await;
            assert!(
                !sender.is_finished(),
                "a queue holds net.unix.max_dgram_qlen"
            );
            for number in 0..DATAGRAMS {
                let mut buffer = [0; 16];
                assert_eq!(bound.recv(&mut buffer).await.unwrap(), 8);
                assert_eq!(&buffer[..8], number.to_ne_bytes());
                if number % 100 == 0 {
                    sleep(Duration::from_micros(100)).await;
                }
            }
            sender.await;
        }
    });
}

#[test]
fn unix_sockets_are_taken_over_and_given_back() {
    run(async {
        let (here, there) = std_unix::UnixStream::pair().unwrap();
        let here = UnixStream::from_std(here).unwrap();
        let there = UnixStream::from_std(there).unwrap();
        assert_eq!(here.try_write(b"before").unwrap(), 6);
        let here = here.into_std();
        let here = UnixStream::from_std(here).unwrap();
        here.write_all(b"after").await.unwrap();
        let mut buffer = [0; 16];
        there.readable().await;
        assert_eq!(there.try_read(&mut buffer).unwrap(), 11);
        assert!(
            timeout(Duration::from_millis(2), there.readable())
                .await
                .is_err()
        );
        here.writable().await;

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path, 0o600).unwrap();
        let listener = UnixListener::from_std(listener.into_std()).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().await.unwrap();

        let (one, two) = UnixDatagram::pair().unwrap();
        let one = UnixDatagram::from_std(one.into_std()).unwrap();
        // By a duplicate of the descriptor.
        let duplicate = std_unix::UnixDatagram::from(one.as_fd().try_clone_to_owned().unwrap());
        duplicate.send(b"x").unwrap();
        assert_eq!(two.recv(&mut buffer).await.unwrap(), 1);
    });
}
