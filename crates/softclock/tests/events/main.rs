//! Explicit event delivery over real descriptors.

mod wake_one;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::io::fcntl_dupfd_cloexec;
use softclock::events::{EventQueue, Mechanism, Readiness, Source, SourceEvent, SourceId};

use wake_one::threads_share_a_listener;

const READ: Readiness = Readiness::READABLE;
const NONE: Readiness = Readiness::NONE;
const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// Turns each function into one test per mechanism.
macro_rules! on_each_mechanism {
    ($($test:ident)*) => {
        on_each_mechanism!(@module io_uring IoUring $($test)*);
        on_each_mechanism!(@module epoll Epoll $($test)*);
        on_each_mechanism!(@module poll Poll $($test)*);
        on_each_mechanism!(@module select Select $($test)*);
    };
    (@module $name:ident $mechanism:ident $($test:ident)*) => {
        mod $name {
            use softclock::events::{EventQueue, Mechanism};
            $(
                #[test]
                fn $test() {
                    match EventQueue::with_mechanism(Mechanism::$mechanism) {
                        Ok(queue) => assert_eq!(queue.mechanism(), Mechanism::$mechanism),
                        Err(error) => softclock_testing::skip!("{error}"),
                    }
                    super::$test(Mechanism::$mechanism);
                }
            )*
        }
    };
}

on_each_mechanism!(
    what_was_there_before_the_declaration_is_told_by_it
    what_comes_during_the_declaration_is_not_missed
    arrivals_before_delivery_are_one_event
    events_that_have_become_meaningless_are_not_delivered
    a_closed_source_leaves_nothing_to_the_next_of_its_number
    a_number_used_again_has_nothing_of_the_former
    a_duplicate_that_is_left_is_silent
    what_is_queued_is_given_without_waiting
    a_wait_ends_when_something_comes
    each_queue_is_told
    all_events_come_through_a_small_array
    the_timeout_passes_when_nothing_comes
    a_source_of_another_queue_is_refused
    a_descriptor_given_back_is_open_and_silent
    threads_share_a_listener
);

fn queue(mechanism: Mechanism) -> EventQueue {
    EventQueue::with_mechanism(mechanism).unwrap()
}

/// Returns a connection, one end of which is a source of the queue with interest in reading.
fn connection(queue: &EventQueue) -> (Source<UnixStream>, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let here = queue.add(here);
    queue.declare_interest(&here, READ, None).unwrap();
    (here, there)
}

fn take(queue: &EventQueue, timeout: Option<Duration>) -> Vec<(SourceId, Readiness)> {
    let mut events = [SourceEvent::NONE; 256];
    let found = queue.get_next_event(&mut events, timeout).unwrap();
    let events = events[..found].iter();
    events
        .map(|event| (event.source, event.readiness))
        .collect()
}

fn read_all(source: &Source<UnixStream>) -> usize {
    let mut total = 0;
    loop {
        match (&**source).read(&mut [0; 64]) {
            Ok(n) => total += n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                source.consumed(READ);
                return total;
            }
        }
    }
}

fn what_was_there_before_the_declaration_is_told_by_it(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let (here, mut there) = UnixStream::pair().unwrap();
    there.write_all(b"early").unwrap();
    let here = queue.add(here);
    let mut state = NONE;
    queue
        .declare_interest(&here, READ, Some(&mut state))
        .unwrap();
    assert!(state.contains(READ));
    drop(there);
    queue
        .declare_interest(&here, READ, Some(&mut state))
        .unwrap();
    assert!(state.contains(Readiness::READ_CLOSED));
}

/// Data that another thread writes during the declaration is reported, by the state or by an event.
fn what_comes_during_the_declaration_is_not_missed(mechanism: Mechanism) {
    let queue = queue(mechanism);
    // The other thread receives the order just before it writes.
    let (write, orders) = mpsc::sync_channel::<UnixStream>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || orders.iter().try_for_each(|mut peer| peer.write_all(b"x")));
        for round in 0..400 {
            let (here, there) = UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            let here = queue.add(here);
            for _first_and_again in 0..2 {
                write.send(there.try_clone().unwrap()).unwrap();
                (0..round * 10).for_each(|_| std::hint::spin_loop());
                // Events from before the declaration are of no interest.
                assert!(take(&queue, NOW).is_empty());
                let mut state = NONE;
                queue
                    .declare_interest(&here, READ, Some(&mut state))
                    .unwrap();
                let mut read = if state.contains(READ) {
                    read_all(&here)
                } else {
                    0
                };
                while read == 0 {
                    assert!(!take(&queue, LONG).is_empty(), "missed in {round}");
                    read = read_all(&here);
                }
                queue.declare_interest(&here, NONE, None).unwrap();
            }
        }
        drop(write);
    });
}

fn arrivals_before_delivery_are_one_event(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let (here, mut there) = connection(&queue);
    assert!(take(&queue, NOW).is_empty());
    for _ in 0..5 {
        there.write_all(b"x").unwrap();
    }
    assert_eq!(take(&queue, LONG), [(here.id(), READ)]);
    assert!(take(&queue, NOW).is_empty());
    if matches!(mechanism, Mechanism::IoUring | Mechanism::Epoll) {
        // These mechanisms report the next arrival even though the data was not read.
        there.write_all(b"x").unwrap();
        assert_eq!(take(&queue, LONG), [(here.id(), READ)]);
        assert_eq!(read_all(&here), 6);
    } else {
        assert_eq!(read_all(&here), 5);
    }
    there.write_all(b"x").unwrap();
    assert_eq!(take(&queue, LONG), [(here.id(), READ)]);
}

fn events_that_have_become_meaningless_are_not_delivered(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let (pairs, one) = three_of_which_one_is_told(&queue);
    // The other two are queued now.
    let queued = |of: &&(Source<UnixStream>, UnixStream)| of.0.id() != one.source;
    let [second, third] = pairs.iter().filter(queued).collect::<Vec<_>>()[..] else {
        panic!("three connections")
    };
    assert_eq!(read_all(&second.0), 1);
    queue.declare_interest(&third.0, NONE, None).unwrap();
    assert!(take(&queue, NOW).is_empty());
}

fn a_closed_source_leaves_nothing_to_the_next_of_its_number(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let number = number_of_our_own();
    let (first, first_peer) = numbered(&queue, number);
    let (second, second_peer) = numbered(&queue, number);
    (&first_peer).write_all(b"x").unwrap();
    (&second_peer).write_all(b"x").unwrap();
    let mut one = [SourceEvent::NONE];
    assert_eq!(queue.get_next_event(&mut one, LONG).unwrap(), 1);
    // One event is queued. Its source is closed, and a new source gets its descriptor number.
    let closed = if one[0].source == first.id() {
        second
    } else {
        first
    };
    let (number, id) = (closed.as_raw_fd(), closed.id());
    drop(closed);
    let (heir, _peer) = heir(&queue, number);
    assert_ne!(heir.id(), id);
    assert_eq!(take(&queue, NOW), []);
}

fn a_number_used_again_has_nothing_of_the_former(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let (former, former_peer) = numbered(&queue, number_of_our_own());
    let number = former.as_raw_fd();
    // This event is still in the kernel.
    (&former_peer).write_all(b"x").unwrap();
    drop(former);
    let (heir, peer) = heir(&queue, number);
    assert_eq!(take(&queue, NOW), []);
    (&peer).write_all(b"x").unwrap();
    assert_eq!(take(&queue, LONG), [(heir.id(), READ)]);
}

/// Creates three connections with data and takes the first event, so that the other two are queued.
fn three_of_which_one_is_told(
    queue: &EventQueue,
) -> (Vec<(Source<UnixStream>, UnixStream)>, SourceEvent) {
    let pairs: Vec<_> = (0..3).map(|_| connection(queue)).collect();
    pairs
        .iter()
        .for_each(|(_, there)| (&*there).write_all(b"x").unwrap());
    let mut one = [SourceEvent::NONE];
    assert_eq!(queue.get_next_event(&mut one, LONG).unwrap(), 1);
    (pairs, one[0])
}

/// Like [`connection`], with a source that has this descriptor number, which must be free.
fn heir(queue: &EventQueue, number: RawFd) -> (Source<UnixStream>, UnixStream) {
    let (heir, peer) = numbered(queue, number);
    assert_eq!(heir.as_raw_fd(), number);
    (heir, peer)
}

/// Like [`connection`], with a source that has the first free descriptor number from `least` on.
fn numbered(queue: &EventQueue, least: RawFd) -> (Source<UnixStream>, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    let here = UnixStream::from(fcntl_dupfd_cloexec(here, least).unwrap());
    here.set_nonblocking(true).unwrap();
    let here = queue.add(here);
    queue.declare_interest(&here, READ, None).unwrap();
    (here, there)
}

/// Returns a descriptor number below 1024 that no other test uses at the same time: others use the lowest free
/// number.
fn number_of_our_own() -> RawFd {
    static NEXT: AtomicI32 = AtomicI32::new(700);
    NEXT.fetch_add(10, Ordering::Relaxed)
}

fn a_duplicate_that_is_left_is_silent(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let (here, there) = connection(&queue);
    let duplicate = here.try_clone().unwrap();
    drop(here);
    (&there).write_all(b"x").unwrap();
    assert_eq!(take(&queue, NOW), []);
    (&duplicate).read_exact(&mut [0]).unwrap();
}

fn what_is_queued_is_given_without_waiting(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let _connections = three_of_which_one_is_told(&queue);
    // Without a time limit, and yet it does not wait until the array is full.
    assert_eq!(take(&queue, None).len(), 2);
}

fn a_wait_ends_when_something_comes(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let (here, there) = connection(&queue);
    let pause = Duration::from_millis(20);
    let start = Instant::now();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(pause);
        (&there).write_all(b"x").unwrap();
        there
    });
    assert_eq!(take(&queue, None), [(here.id(), READ)]);
    assert!(start.elapsed() >= pause);
    drop(thread.join().unwrap());
}

fn each_queue_is_told(mechanism: Mechanism) {
    let queues = [(); 3].map(|()| queue(mechanism));
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let sources = queues.each_ref().map(|queue| {
        let source = queue.add(here.try_clone().unwrap());
        queue.declare_interest(&source, READ, None).unwrap();
        source
    });
    for _ in 0..3 {
        (&there).write_all(b"x").unwrap();
        for (queue, source) in queues.iter().zip(&sources) {
            assert_eq!(take(queue, LONG), [(source.id(), READ)]);
        }
        for source in &sources {
            read_all(source);
        }
    }
}

fn all_events_come_through_a_small_array(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let pairs: Vec<_> = (0..150).map(|_| connection(&queue)).collect();
    pairs
        .iter()
        .for_each(|(_, there)| (&*there).write_all(b"x").unwrap());
    let mut events = [SourceEvent::NONE; 100];
    let mut found: Vec<SourceId> = Vec::new();
    while found.len() < pairs.len() {
        let count = queue.get_next_event(&mut events, LONG).unwrap();
        assert!(count > 0, "{} of {}", found.len(), pairs.len());
        found.extend(events[..count].iter().map(|event| event.source));
    }
    assert!(take(&queue, NOW).is_empty());
    found.sort_by_key(|id| id.to_bits());
    let mut all: Vec<SourceId> = pairs.iter().map(|(here, _)| here.id()).collect();
    all.sort_by_key(|id| id.to_bits());
    assert_eq!(found, all);
}

fn the_timeout_passes_when_nothing_comes(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let (_here, _there) = connection(&queue);
    let time = Duration::from_millis(20);
    let start = Instant::now();
    assert!(take(&queue, Some(time)).is_empty());
    assert!(start.elapsed() >= time);
    assert_eq!(queue.get_next_event(&mut [], None).unwrap(), 0);
}

fn a_source_of_another_queue_is_refused(mechanism: Mechanism) {
    let (one, other) = (queue(mechanism), queue(mechanism));
    let (here, _there) = connection(&one);
    let error = other.declare_interest(&here, READ, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

fn a_descriptor_given_back_is_open_and_silent(mechanism: Mechanism) {
    let queue = queue(mechanism);
    let (here, mut there) = connection(&queue);
    let mut stream = here.into_inner();
    there.write_all(b"x").unwrap();
    assert!(take(&queue, NOW).is_empty());
    stream.read_exact(&mut [0]).unwrap();
}

#[test]
fn the_papers_example_echoes() {
    let (mut server, address) = papers_example();
    let mut clients: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    for round in 0..50u8 {
        for (client, number) in clients.iter_mut().zip(0..) {
            client.write_all(&[round, number]).unwrap();
        }
        for (client, number) in clients.iter_mut().zip(0..) {
            let mut answer = [0; 2];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round, number]);
        }
    }
    drop(clients);
    assert!(server.wait().unwrap().success());
}

#[test]
fn the_papers_example_waits_for_a_client_that_reads_late() {
    let (mut server, address) = papers_example();
    let mut client = TcpStream::connect(&address).unwrap();
    let mut other = TcpStream::connect(&address).unwrap();
    // Writes until the buffers of both sides are full in both directions.
    client
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let pattern: Vec<u8> = (0..=250).cycle().take(251 * 400).collect();
    let mut sent = 0;
    let refused = loop {
        match client.write(&pattern[sent % 251..]) {
            Ok(length) => sent += length,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
    other.write_all(b"x").unwrap();
    other.read_exact(&mut [0]).unwrap();

    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.len(), sent);
    let in_order = answer.chunks(251).all(|part| pattern.starts_with(part));
    assert!(in_order, "bytes are lost or exchanged");
    drop((client, other));
    assert!(server.wait().unwrap().success());
}

/// Starts the example of the paper's Figure 3 as a process, and returns its address.
fn papers_example() -> (Child, String) {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut server = Command::new(cargo)
        .args(["run", "--quiet", "--example", "figure_3"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = server.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap();
    (server, address.to_owned())
}
