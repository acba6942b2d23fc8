//! Descriptors of the application: how many calls and wake-ups they take.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket as StdUdp};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnix;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use softclock::net::UdpSocket;
use softclock::{Descriptor, Direction, Mechanism, Runtime, Transfer, sleep, spawn_local, timeout};

/// Runs `test` with each mechanism that this kernel has.
fn run<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for mechanism in [
        Mechanism::Epoll,
        Mechanism::IoUring,
        Mechanism::Poll,
        Mechanism::Select,
    ] {
        let runtime = match Runtime::builder().events(mechanism).build() {
            Ok(runtime) => runtime,
            Err(error) => {
                println!("skipped: {mechanism}: {error}");
                continue;
            }
        };
        let limited = runtime.block_on(async { timeout(LIMIT, test()).await });
        limited.unwrap_or_else(|_| panic!("hangs with {mechanism}"));
    }
}

const LIMIT: Duration = Duration::from_secs(20);

const SHORT: Duration = Duration::from_millis(2);

/// The calls of a closure.
#[derive(Default)]
struct Calls {
    all: Cell<u32>,
    would_block: Cell<u32>,
}

impl Calls {
    fn counted<R>(&self, result: io::Result<R>) -> io::Result<R> {
        self.all.set(self.all.get() + 1);
        let blocked = result
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.would_block
            .set(self.would_block.get() + u32::from(blocked));
        result
    }
}

fn pair() -> (Descriptor<StdUnix>, StdUnix) {
    let (here, there) = StdUnix::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    (Descriptor::new(here).unwrap(), there)
}

/// Reads `messages` of 5 bytes, each when it has come. Returns the calls after the first message.
async fn read_messages(messages: u32, report: fn(usize) -> Transfer<usize>) -> (u32, u32) {
    let (here, mut there) = pair();
    let calls = Rc::new(Calls::default());
    let reader = spawn_local({
        let calls = calls.clone();
        async move {
            for _ in 0..=messages {
                let mut buffer = [0; 100];
                let read = here.read_with(|_| {
                    let read = calls.counted((&mut here.descriptor()).read(&mut buffer));
                    read.map(report)
                });
                assert_eq!(read.await.unwrap(), 5);
            }
        }
    });
    there.write_all(b"first").unwrap();
    // The reader has waited for the second when this has passed.
    softclock::sleep(SHORT).await;
    let before = (calls.all.get(), calls.would_block.get());
    for _ in 0..messages {
        there.write_all(b"later").unwrap();
        softclock::sleep(SHORT).await;
    }
    reader.await;
    (
        calls.all.get() - before.0,
        calls.would_block.get() - before.1,
    )
}

#[test]
fn a_short_read_is_not_followed_by_a_call_that_would_block() {
    run(|| async {
        let counts = read_messages(10, |read| Transfer::of(read, 100)).await;
        assert_eq!(counts, (10, 0));
        // Not told that a read was short, the next one finds out.
        let (_, would_block) = read_messages(10, Transfer::full).await;
        assert!(would_block >= 9, "{would_block}");
    });
}

#[test]
fn the_end_that_comes_with_data_is_read() {
    run(|| async {
        let (here, mut there) = pair();
        let reader = spawn_local(async move {
            let mut buffer = [0; 100];
            let mut lengths = Vec::new();
            while lengths.last() != Some(&0) {
                let read = here.read_with(|_| {
                    let read = (&mut here.descriptor()).read(&mut buffer)?;
                    Ok(Transfer::of(read, 100))
                });
                lengths.push(read.await.unwrap());
            }
            lengths
        });
        // The reader waits.
        sleep(SHORT).await;
        there.write_all(b"last").unwrap();
        there.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reader.await, [4, 0]);
    });
}

/// A read of TCP ends before urgent data. What follows is read without another arrival.
#[test]
fn what_follows_urgent_data_is_read() {
    run(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        here.set_nonblocking(true).unwrap();
        let here = Descriptor::new(here).unwrap();
        let reader = spawn_local(async move {
            let (mut all, mut buffer) = (Vec::new(), [0; 100]);
            while all.len() < 6 {
                let read = here.read_with(|_| {
                    let read = here.descriptor().read(&mut buffer)?;
                    Ok(Transfer::of(read, 100))
                });
                let length = read.await.unwrap();
                all.extend_from_slice(&buffer[..length]);
            }
            all
        });
        // The reader waits, and does not run again before all has arrived.
        sleep(SHORT).await;
        send(&there, b"abc", SendFlags::empty()).unwrap();
        send(&there, b"!", SendFlags::OOB).unwrap();
        send(&there, b"def", SendFlags::empty()).unwrap();
        assert_eq!(reader.await, b"abcdef");
    });
}

#[test]
fn the_end_of_a_stream_stays_to_be_read() {
    run(|| async {
        let (here, mut there) = pair();
        there.write_all(b"last").unwrap();
        drop(there);
        let mut buffer = [0; 100];
        for expected in [4, 0, 0] {
            let read = here.read_with(|_| {
                let read = (&mut here.descriptor()).read(&mut buffer)?;
                Ok(Transfer::of(read, 100))
            });
            assert_eq!(read.await.unwrap(), expected);
        }
    });
}

#[test]
fn a_writer_waits_for_room_without_a_call() {
    run(|| async {
        let (here, mut there) = pair();
        let calls = Rc::new(Calls::default());
        let chunk = vec![7; 1 << 20];
        let written = Rc::new(Cell::new(0));
        let writer = spawn_local({
            let (calls, written) = (calls.clone(), written.clone());
            async move {
                for _ in 0..4 {
                    let bytes = here.write_with(|_| {
                        let sent = calls.counted((&mut here.descriptor()).write(&chunk))?;
                        Ok(Transfer::of(sent, chunk.len()))
                    });
                    written.set(written.get() + bytes.await.unwrap());
                }
                here.into_inner()
            }
        });
        // A stream takes less than the chunk: the call after it waits for room.
        softclock::sleep(SHORT).await;
        assert_eq!((calls.all.get(), calls.would_block.get()), (1, 0));
        there.set_nonblocking(true).unwrap();
        let (mut read, mut buffer) = (0, vec![0; 1 << 16]);
        while !writer.is_finished() {
            match there.read(&mut buffer) {
                Ok(bytes) => read += bytes,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            softclock::yield_now().await;
        }
        let here = writer.await;
        drop(here);
        while let bytes @ 1.. = there.read(&mut buffer).unwrap() {
            read += bytes;
        }
        assert_eq!(read, written.get());
        // Each of the four writes was cut short by the size of the buffer.
        assert!(calls.all.get() <= 4 + calls.would_block.get());
    });
}

#[test]
fn one_call_is_made_at_once_and_tells_the_readiness() {
    run(|| async {
        let (here, mut there) = pair();
        let read = |buffer: &mut [u8]| {
            let offered = buffer.len();
            here.try_io(Direction::Read, |_| {
                let read = (&mut here.descriptor()).read(buffer)?;
                Ok(Transfer::of(read, offered))
            })
        };
        let mut buffer = [0; 100];
        // Of unknown state, it counts as ready.
        here.readable().await;
        assert_eq!(read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(timeout(SHORT, here.readable()).await.is_err());
        there.write_all(b"hello").unwrap();
        here.readable().await;
        assert_eq!(read(&mut buffer[..2]).unwrap(), 2);
        // The buffer was filled, so that there may be more.
        here.readable().await;
        assert_eq!(read(&mut buffer).unwrap(), 3);
        assert!(timeout(SHORT, here.readable()).await.is_err());
        here.writable().await;
        let write = |fd: BorrowedFd<'_>| {
            let sent = rustix::io::write(fd, b"answer")?;
            Ok(Transfer::of(sent, 6))
        };
        assert_eq!(here.try_io(Direction::Write, write).unwrap(), 6);
        there.read_exact(&mut buffer[..6]).unwrap();
    });
}

/// The times that the thread blocks while another thread takes the datagrams that it sends.
async fn blocks_while_sending(rounds: u64, send: impl AsyncFn(&[u8]), there: &StdUdp) -> u64 {
    let before = softclock::statistics().blocks;
    for _ in 0..rounds {
        send(b"x").await;
        let there = there.try_clone().unwrap();
        let received = softclock::spawn_blocking(move || {
            std::thread::sleep(SHORT);
            there.recv(&mut [0; 10]).unwrap()
        });
        assert_eq!(received.await, 1);
    }
    softclock::statistics().blocks - before
}

#[test]
fn a_datagram_that_has_left_does_not_wake_the_thread() {
    const ROUNDS: u64 = 30;
    run(|| async {
        let there = StdUdp::bind("127.0.0.1:0").unwrap();
        let socket = StdUdp::bind("127.0.0.1:0").unwrap();
        socket.connect(there.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let descriptor = Descriptor::new(OwnedFd::from(socket)).unwrap();
        let send = async |bytes: &[u8]| {
            let sent = descriptor.write_with(|fd| {
                let sent = rustix::io::write(fd, bytes)?;
                Ok(Transfer::full(sent))
            });
            sent.await.unwrap();
        };
        let blocks = blocks_while_sending(ROUNDS, send, &there).await;
        assert!(blocks < ROUNDS * 3 / 2, "{blocks}");

        let socket = UdpSocket::bind(([127, 0, 0, 1], 0)).unwrap();
        let to = there.local_addr().unwrap();
        let send = async |bytes: &[u8]| {
            socket.send_to(bytes, to).await.unwrap();
        };
        let blocks = blocks_while_sending(ROUNDS, send, &there).await;
        assert!(blocks < ROUNDS * 3 / 2, "{blocks}");
    });
}

#[test]
fn a_duplicate_of_a_dropped_socket_does_not_wake_the_thread() {
    const ROUNDS: u64 = 30;
    run(|| async {
        let socket = UdpSocket::bind(([127, 0, 0, 1], 0)).unwrap();
        let here = socket.local_addr().unwrap();
        let fd = socket.as_kernel_fd().unwrap();
        let duplicate = fd.try_clone_to_owned().unwrap();
        drop(socket);
        let before = softclock::statistics().blocks;
        let sent = softclock::spawn_blocking(move || {
            let there = StdUdp::bind("127.0.0.1:0").unwrap();
            for _ in 0..ROUNDS {
                there.send_to(b"x", here).unwrap();
                std::thread::sleep(SHORT);
            }
        });
        sent.await;
        let blocks = softclock::statistics().blocks - before;
        assert!(blocks < ROUNDS / 2, "{blocks}");
        assert!(rustix::io::read(duplicate.as_fd(), &mut [0; 10]).is_ok());
    });
}
