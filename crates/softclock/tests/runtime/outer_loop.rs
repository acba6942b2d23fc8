//! A runtime inside another loop, here one around epoll_wait.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnix;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use softclock::net::{TcpListener, UnixStream};
use softclock::{Mechanism, Runtime, sleep, spawn_local};

use super::{LIMIT, MS};

/// A loop that waits for a runtime only.
struct Outer {
    epoll: OwnedFd,
    runtime: Runtime,
    /// Waits that ended.
    waits: usize,
}

impl Outer {
    fn new(runtime: Runtime) -> Self {
        Self::told_by(runtime, EventFlags::IN)
    }

    /// Is told once of each event, as a loop by mio is.
    fn by_edges(runtime: Runtime) -> Self {
        Self::told_by(runtime, EventFlags::IN | EventFlags::ET)
    }

    fn told_by(runtime: Runtime, flags: EventFlags) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let data = EventData::new_u64(0);
        epoll::add(&epoll, runtime.descriptor().unwrap(), data, flags).unwrap();
        Self {
            epoll,
            runtime,
            waits: 0,
        }
    }

    /// Waits, and returns whether the descriptor of the runtime has ended the wait.
    fn wait(&mut self, most: Duration) -> bool {
        let own = self.runtime.before_wait();
        let limit = own.map_or(most, |own| own.min(most)).try_into().unwrap();
        let mut events = Vec::with_capacity(4);
        epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&limit)).unwrap();
        self.waits += 1;
        !events.is_empty()
    }

    fn run_until(&mut self, is_done: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < LIMIT, "the runtime stands still");
            self.wait(LIMIT);
            self.runtime.turn(Some(Duration::ZERO));
        }
        // Not by a turn after a wait that nothing has ended.
        assert!(start.elapsed() < LIMIT, "the runtime stood still");
    }
}

/// A runtime that has a descriptor, whichever mechanism the environment names.
fn by_epoll() -> Runtime {
    let builder = Runtime::builder().events(Mechanism::Epoll);
    builder.build().unwrap()
}

#[test]
fn serves_and_sleeps() {
    let runtime = by_epoll();
    let listener = runtime.block_on(async { TcpListener::bind(([127, 0, 0, 1], 0)) });
    let listener = listener.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Rc::new(Cell::new(0));
    let counted = served.clone();
    let server = runtime.spawn_local(async move {
        for _ in 0..2 {
            let (stream, _) = listener.accept().await.unwrap();
            let counted = counted.clone();
            spawn_local(async move {
                let mut buffer = [0; 4];
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    sleep(Duration::from_micros(300)).await;
                    stream.write_all(&buffer[..length]).await.unwrap();
                    counted.set(counted.get() + 1);
                }
            });
        }
    });
    let clients = [(), ()].map(|()| {
        thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            let start = Instant::now();
            for n in 0..50_u32 {
                stream.write_all(&n.to_le_bytes()).unwrap();
                let mut answer = [0; 4];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, n.to_le_bytes());
            }
            assert!(start.elapsed() >= Duration::from_micros(50 * 300));
        })
    });
    let mut outer = Outer::new(runtime);
    outer.run_until(|| served.get() == 100);
    assert!(server.is_finished());
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn edges_are_seen_beside_other_work() {
    for signalling in ["interrupt", "soft-poll=5", "automatic"] {
        let builder = Runtime::builder().events(Mechanism::Epoll);
        let runtime = builder.signalling(signalling.parse().unwrap()).build();
        edges_are_seen_by(runtime.unwrap());
    }
}

fn edges_are_seen_by(runtime: Runtime) {
    let (here, mut there) = StdUnix::pair().unwrap();
    let read = Rc::new(Cell::new(0));
    let counted = read.clone();
    let stream = runtime.block_on(async { UnixStream::from_std(here).unwrap() });
    runtime.spawn_local(async move {
        let mut buffer = [0; 4];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            counted.set(counted.get() + length);
        }
    });
    let mut outer = Outer::by_edges(runtime);
    for round in 1..=200 {
        // The reader waits.
        while outer.runtime.before_wait().is_some() {
            outer.runtime.turn(Some(Duration::ZERO));
        }
        there.write_all(&[1]).unwrap();
        assert!(outer.wait(LIMIT), "round {round}");
        drop(outer.runtime.spawn_local(async {}));
        outer.runtime.turn(Some(Duration::ZERO));
        outer.run_until(|| read.get() == round);
    }
}

#[test]
fn many_events_at_once_are_seen_by_edges() {
    const SOCKETS: usize = 300;
    let runtime = by_epoll();
    let read = Rc::new(Cell::new(0));
    let peers: Vec<StdUnix> = (0..SOCKETS)
        .map(|_| {
            let (here, there) = StdUnix::pair().unwrap();
            let counted = read.clone();
            let stream = runtime.block_on(async { UnixStream::from_std(here).unwrap() });
            runtime.spawn_local(async move {
                let mut buffer = [0; 4];
                while let Ok(1..) = stream.read(&mut buffer).await {
                    counted.set(counted.get() + 1);
                }
            });
            there
        })
        .collect();
    let mut outer = Outer::by_edges(runtime);
    while outer.runtime.before_wait().is_some() {
        outer.runtime.turn(Some(Duration::ZERO));
    }
    for mut peer in &peers {
        peer.write_all(&[1]).unwrap();
    }
    outer.run_until(|| read.get() == SOCKETS);
}

#[test]
fn an_idle_runtime_ends_no_wait() {
    let runtime = by_epoll();
    let listener = runtime.block_on(async { TcpListener::bind(([127, 0, 0, 1], 0)) });
    let listener = listener.unwrap();
    runtime.spawn_local(async move { listener.accept().await.map(drop) });
    let mut outer = Outer::new(runtime);
    // The task runs, and waits.
    while outer.runtime.before_wait().is_some() {
        outer.runtime.turn(Some(Duration::ZERO));
    }
    assert!(!outer.wait(50 * MS), "nothing has arrived");
    outer.runtime.turn(Some(Duration::ZERO));
    assert!(!outer.wait(50 * MS), "nor later");
}

#[test]
fn a_sleep_costs_few_waits() {
    let runtime = by_epoll();
    let task = runtime.spawn_local(async { sleep(50 * MS).await });
    let mut outer = Outer::new(runtime);
    // epoll_wait rounds up, so nothing is left to spin for.
    outer.run_until(|| task.is_finished());
    assert!(outer.waits < 10, "{} waits", outer.waits);
}

#[test]
fn other_threads_end_the_wait() {
    let runtime = by_epoll();
    let remote = runtime.remote();
    let mut outer = Outer::new(runtime);
    let is_done = Arc::new(AtomicBool::new(false));
    let done = is_done.clone();
    let other = thread::spawn(move || {
        thread::sleep(20 * MS);
        remote.post(move || done.store(true, Relaxed))
    });
    assert!(outer.wait(LIMIT), "the post ends it");
    outer.run_until(|| is_done.load(Relaxed));
    other.join().unwrap().unwrap();
}

#[test]
fn turns_alone_run_tasks() {
    let runtime = Runtime::new().unwrap();
    let task = runtime.spawn_local(async {
        sleep(3 * MS).await;
        7
    });
    let start = Instant::now();
    runtime.turn(Some(MS));
    assert!(!task.is_finished());
    while !task.is_finished() {
        assert!(start.elapsed() < LIMIT);
        runtime.turn(None);
    }
    assert!(start.elapsed() >= 3 * MS);
    assert_eq!(runtime.block_on(task), 7);
}

#[test]
fn a_turn_waits_no_longer_than_it_may() {
    let runtime = Runtime::new().unwrap();
    let task = runtime.spawn_local(async { sleep(10 * LIMIT).await });
    let start = Instant::now();
    (0..3).for_each(|_| runtime.turn(Some(2 * MS)));
    assert!(start.elapsed() < LIMIT && !task.is_finished());
}

#[test]
fn other_mechanisms_have_no_descriptor() {
    for mechanism in [Mechanism::IoUring, Mechanism::Poll, Mechanism::Select] {
        let Ok(runtime) = Runtime::builder().events(mechanism).build() else {
            continue; // it does not work here
        };
        let error = runtime.descriptor().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("use epoll"), "{error}");
    }
}

/// What a turn does for a socket of the same runtime is found before the outer loop waits.
#[cfg(feature = "memory-net")]
#[test]
fn a_datagram_to_a_socket_of_the_same_runtime_is_received() {
    use softclock::net::UdpSocket;

    let runtime = Runtime::builder()
        .events(Mechanism::Epoll)
        .in_memory()
        .build()
        .unwrap();
    let bind = || async { UdpSocket::bind(([127, 0, 0, 1], 0)).unwrap() };
    let (sender, receiver) = runtime.block_on(async { (bind().await, bind().await) });
    let to = receiver.local_addr().unwrap();
    let is_received = Rc::new(Cell::new(false));
    let received = is_received.clone();
    let receiving = runtime.spawn_local(async move {
        receiver.recv_from(&mut [0; 10]).await.unwrap();
        received.set(true);
    });
    let mut outer = Outer::new(runtime);
    // Until the receiver waits.
    while outer.runtime.before_wait().is_some() {
        outer.runtime.turn(Some(Duration::ZERO));
    }
    let sending = (outer.runtime).spawn_local(async move { sender.send_to(b"x", to).await });
    outer.run_until(|| is_received.get());
    drop((receiving, sending));
}
