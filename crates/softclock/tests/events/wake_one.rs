//! Threads that share a listener: which of them receives an event for a connection.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use softclock::events::{Delivery, Mechanism};

use crate::{LONG, NONE, READ, queue, take};

pub(crate) fn threads_share_a_listener(mechanism: Mechanism) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let accept = || {
        let queue = queue(mechanism);
        let source = queue.add(listener.try_clone().unwrap());
        queue.declare_interest(&source, READ, None).unwrap();
        let mut accepted = 0;
        while !take(&queue, Some(Duration::from_secs(1))).is_empty() {
            while source.accept().is_ok() {
                accepted += 1;
            }
            source.consumed(READ);
        }
        accepted
    };
    let total: usize = std::thread::scope(|scope| {
        let threads = [scope.spawn(accept), scope.spawn(accept)];
        let clients: Vec<_> = (0..50)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let total = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        drop(clients);
        total
    });
    assert_eq!(total, 50);
}

#[test]
fn an_event_for_one_thread_reaches_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let count = |told: &AtomicUsize, accepted: &AtomicUsize| {
        let queue = queue(Mechanism::Epoll);
        let source = queue.add_for(listener.try_clone().unwrap(), Delivery::One);
        queue.declare_interest(&source, READ, None).unwrap();
        while accepted.load(Ordering::SeqCst) < 20 {
            let events = take(&queue, Some(Duration::from_millis(100)));
            told.fetch_add(events.len(), Ordering::SeqCst);
            while source.accept().is_ok() {
                accepted.fetch_add(1, Ordering::SeqCst);
            }
            source.consumed(READ);
        }
    };
    let (told, accepted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| count(&told, &accepted))));
        for number in 1..=20 {
            let _client = TcpStream::connect(address).unwrap();
            while accepted.load(Ordering::SeqCst) < number {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    // All four threads for each connection would make 80; occasionally more than one is woken.
    assert!(told.load(Ordering::SeqCst) < 40, "{told:?}");
}

/// The kernel checks the threads in the order of their declarations.
#[test]
fn an_event_is_not_left_to_a_busy_thread() {
    for busy_first in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let watch = || {
            let queue = queue(Mechanism::Epoll);
            let source = queue.add_for(listener.try_clone().unwrap(), Delivery::One);
            queue.declare_interest(&source, READ, None).unwrap();
            (queue, source)
        };
        let busy = busy_first.then(watch);
        let (queue, source) = watch();
        // This queue never takes its events.
        let _busy = busy.unwrap_or_else(watch);
        let address = listener.local_addr().unwrap();
        let clients = std::thread::spawn(move || {
            let connect = |_| {
                std::thread::sleep(Duration::from_millis(2));
                TcpStream::connect(address).unwrap()
            };
            (0..10).map(connect).collect::<Vec<_>>()
        });
        let mut accepted = 0;
        while accepted < 10 {
            assert_eq!(take(&queue, LONG).len(), 1, "{accepted} accepted");
            while source.accept().is_ok() {
                accepted += 1;
            }
            source.consumed(READ);
        }
        drop(clients.join().unwrap());
    }
}

/// Threads that have work for each event: no thread gets all events, and each gets some.
#[test]
fn wake_one_starves_no_thread() {
    const THREADS: usize = 4;
    const CONNECTIONS: usize = 200;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let total = AtomicUsize::new(0);
    let serve = || {
        let queue = queue(Mechanism::Epoll);
        let source = queue.add_for(listener.try_clone().unwrap(), Delivery::One);
        queue.declare_interest(&source, READ, None).unwrap();
        let mut accepted = 0;
        while total.load(Ordering::SeqCst) < CONNECTIONS {
            take(&queue, Some(Duration::from_millis(50)));
            while source.accept().is_ok() {
                total.fetch_add(1, Ordering::SeqCst);
                accepted += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            source.consumed(READ);
        }
        accepted
    };
    let accepted = std::thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(serve));
        let _clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                TcpStream::connect(address).unwrap()
            })
            .collect();
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(accepted.iter().sum::<usize>(), CONNECTIONS);
    assert!(accepted.iter().all(|&count| count > 0), "{accepted:?}");
}

/// The kernel checks this thread first, but it has lost its interest and waits for another source.
#[test]
fn a_thread_that_lost_its_interest_takes_no_events_from_others() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let shared = listener.try_clone().unwrap();
    let (revoked, is_revoked) = mpsc::channel();
    let (other, mut release) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let queue = queue(Mechanism::Epoll);
            let source = queue.add_for(shared, Delivery::One);
            let other = queue.add(other);
            queue.declare_interest(&source, READ, None).unwrap();
            queue.declare_interest(&other, READ, None).unwrap();
            queue.declare_interest(&source, NONE, None).unwrap();
            revoked.send(()).unwrap();
            assert_eq!(take(&queue, LONG), [(other.id(), READ)]);
            // With its interest renewed, it receives the state of the source.
            queue.declare_interest(&source, READ, None).unwrap();
            assert_eq!(take(&queue, LONG), [(source.id(), READ)]);
        });
        is_revoked.recv().unwrap();
        let queue = queue(Mechanism::Epoll);
        let source = queue.add_for(listener.try_clone().unwrap(), Delivery::One);
        queue.declare_interest(&source, READ, None).unwrap();
        // By now the other thread most likely waits.
        std::thread::sleep(Duration::from_millis(20));
        for number in 0..5 {
            let _client = TcpStream::connect(address).unwrap();
            let events = take(&queue, Some(Duration::from_secs(5)));
            assert_eq!(events.len(), 1, "connection {number}");
            source.accept().unwrap();
            source.accept().unwrap_err();
            source.consumed(READ);
        }
        drop(source);
        let _client = TcpStream::connect(address).unwrap();
        release.write_all(b"x").unwrap();
        waits.join().unwrap();
    });
}
