//! A thread that is away while data arrives: afterwards, the data ends the waits for it, and their timeouts do not.

use std::env;
use std::future::pending;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{self, Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use softclock::net::TcpStream;
use softclock::net::stack::{self, Architecture, Prefix, StackOptions};
use softclock::{JoinHandle, Runtime};
use softclock_linux::readiness::Poller;
use softclock_testing::lab::Namespace;

/// The timeouts in these tests. Threads are away three times as long.
const LIMIT: Duration = Duration::from_millis(400);

/// More streams than one look at the kernel returns.
const STREAMS: usize = 150;

/// The ways of waiting that [`wait`] implements.
const WAYS: [&str; 4] = ["exact", "slack", "late", "handed"];

/// Environment variable with the address of the other process. It is set only in a child process of
/// [`a_process_that_was_stopped_reads_before_it_gives_up`].
const ADDRESS: &str = "SOFTCLOCK_TEST_ADDRESS";

/// Waits for a byte in one of the [`WAYS`], and returns whether it arrived in time.
async fn wait(way: usize, stream: Rc<TcpStream>) -> bool {
    let read = async {
        let mut byte = [0];
        stream.read(&mut byte).await.is_ok_and(|n| n == 1)
    };
    match WAYS[way % WAYS.len()] {
        "exact" => softclock::timeout(LIMIT, read).await,
        "slack" => softclock::timeout(LIMIT, read).with_slack(LIMIT / 8).await,
        // A sleep that the task compares with the read itself, since its timer has already fired.
        "late" => {
            let limit = softclock::sleep(LIMIT).with_slack(LIMIT / 8);
            let late = async {
                limit.await;
                false
            };
            Ok(futures_lite::future::or(read, late).await)
        }
        // Another task reads the byte.
        _ => {
            let reader = Rc::clone(&stream);
            let reader = softclock::spawn_local(async move { reader.read(&mut [0]).await });
            let read = softclock::timeout(LIMIT, reader).await;
            read.map(|read| read.is_ok_and(|n| n == 1))
        }
    }
    .unwrap_or(false)
}

/// Spawns a task for each stream.
fn wait_for_all(streams: &[Rc<TcpStream>]) -> Vec<JoinHandle<bool>> {
    let tasks = (0..).zip(streams);
    tasks
        .map(|(way, stream)| softclock::spawn_local(wait(way, Rc::clone(stream))))
        .collect()
}

/// Returns whether each task got its byte in time.
async fn results(tasks: Vec<JoinHandle<bool>>) -> Vec<bool> {
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await);
    }
    all
}

async fn connect(address: SocketAddr, count: usize) -> Vec<Rc<TcpStream>> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect(address).await.expect("a connection");
        streams.push(Rc::new(stream));
    }
    streams
}

fn accept_all(listener: &TcpListener) -> Vec<net::TcpStream> {
    let accept = || listener.accept().unwrap().0;
    (0..=STREAMS).map(|_| accept()).collect()
}

/// Lets each spawned task begin its wait.
async fn begin_waits() {
    for _ in 0..8 {
        softclock::yield_now().await;
    }
}

#[test]
fn a_task_that_computes_does_not_end_the_timeouts_of_others() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Runtime::new().unwrap().block_on(others_wait(listener));
}

/// Frames wait in the device of a stack, more than a turn takes.
#[test]
fn nor_does_it_where_frames_wait_in_a_device() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let each = [
        Architecture::SoftLrp,
        Architecture::EarlyDemux,
        Architecture::Bsd,
    ];
    for architecture in each {
        let inside = namespace.inside(|| {
            Runtime::new().unwrap().block_on(async {
                let mut options = StackOptions::new("tap:away");
                options.architecture = architecture;
                let address = Ipv4Addr::new(192, 0, 2, 7).into();
                options.addresses.push(Prefix { address, bits: 24 });
                let _stack = stack::open(&options).expect("a TAP device");
                for words in ["addr add 192.0.2.1/24 dev away", "link set away up"] {
                    let done = Command::new("ip").args(words.split(' ')).status();
                    assert!(done.expect("ip is installed").success(), "{words}");
                }
                others_wait(TcpListener::bind("192.0.2.1:0").unwrap()).await;
            });
        });
        inside.expect("the namespace is there");
    }
}

/// Connects to a listener of the kernel, and is away while the bytes come from there.
async fn others_wait(listener: TcpListener) {
    let address = listener.local_addr().unwrap();
    let accepting = thread::spawn(move || accept_all(&listener));
    let streams = connect(address, STREAMS + 1).await;
    let mut peers = accepting.join().unwrap();
    let silent = peers.pop();
    let tasks = wait_for_all(&streams);
    begin_waits().await;
    // This thread is away, and all bytes arrive meanwhile.
    let away = thread::spawn(move || {
        thread::sleep(LIMIT);
        peers
            .iter_mut()
            .for_each(|peer| peer.write_all(b"x").unwrap());
        peers
    });
    thread::sleep(3 * LIMIT);
    let peers = away.join().unwrap();
    let mut answered = results(tasks).await;
    assert_eq!(answered.pop(), Some(false), "nothing came there");
    let late = answered.iter().position(|answered| !answered);
    assert_eq!(late.map(|way| WAYS[way % WAYS.len()]), None);
    drop((silent, peers));
}

#[test]
fn the_main_future_s_timeout_waits_for_a_look_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        thread::sleep(2 * LIMIT);
        peer.write_all(b"x").unwrap();
        peer
    });
    Runtime::new().unwrap().block_on(async {
        let stream = TcpStream::connect(address).await.unwrap();
        softclock::spawn_local(async { thread::sleep(3 * LIMIT) });
        let mut byte = [0];
        let read = softclock::timeout(LIMIT, stream.read(&mut byte)).await;
        assert_eq!(read.expect("in time").unwrap(), 1);
        assert!(softclock::timeout(LIMIT, pending::<()>()).await.is_err());
    });
    drop(peer.join().unwrap());
}

/// Timeouts end soon after their deadlines even though some task is always ready.
#[test]
fn timeouts_end_in_a_thread_that_is_never_idle() {
    Runtime::new().unwrap().block_on(async {
        let busy: Vec<_> = (0..200)
            .map(|_| {
                softclock::spawn_local(async {
                    loop {
                        softclock::yield_now().await;
                    }
                })
            })
            .collect();
        let mut turns = 0;
        let counting = async {
            loop {
                turns += 1;
                softclock::yield_now().await;
            }
        };
        let nothing = softclock::timeout(LIMIT / 10, counting).await;
        assert!(nothing.is_err() && turns > 10, "{turns}");
        busy.into_iter().for_each(JoinHandle::abort);
    });
}

/// Stops a process (SIGSTOP), sends the answers, and continues the process (SIGCONT).
#[test]
fn a_process_that_was_stopped_reads_before_it_gives_up() {
    for mechanism in ["epoll", "io_uring", "poll", "select"] {
        if Poller::with_mechanism(mechanism.parse().unwrap()).is_err() {
            softclock_testing::in_part!("no {mechanism}");
            continue;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut child, mut output) = start_child(&listener, mechanism);
        let mut peers = accept_all(&listener);
        read_until(&mut output, "waiting");
        // Only the process is away.
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(stopped.is_some_and(|(_, status)| status.stopped()));
        thread::sleep(2 * LIMIT);
        let silent = peers.pop();
        peers
            .iter_mut()
            .for_each(|peer| peer.write_all(b"x").unwrap());
        thread::sleep(LIMIT);
        kill_process(pid, Signal::CONT).unwrap();
        let told = read_until(&mut output, "answered");
        assert_eq!(
            told,
            format!("answered {STREAMS} of {}\n", STREAMS + 1),
            "{mechanism}"
        );
        assert!(child.wait().unwrap().success());
        drop((silent, peers));
    }
}

fn start_child(listener: &TcpListener, mechanism: &str) -> (Child, BufReader<impl Read>) {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "the_child", "--nocapture"])
        .env(ADDRESS, listener.local_addr().unwrap().to_string())
        .env("SOFTCLOCK_EVENTS", mechanism)
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let output = child.stdout.take().unwrap();
    (child, BufReader::new(output))
}

/// Returns the first line that contains `word`.
fn read_until(output: &mut impl BufRead, word: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "no {word}");
        if let Some(start) = line.find(word) {
            return line.split_off(start);
        }
    }
}

/// The child process of [`a_process_that_was_stopped_reads_before_it_gives_up`], which is stopped.
#[test]
fn the_child() {
    let Ok(address) = env::var(ADDRESS) else {
        return;
    };
    let address: SocketAddr = address.parse().unwrap();
    Runtime::new().unwrap().block_on(async {
        let streams = connect(address, STREAMS + 1).await;
        let tasks = wait_for_all(&streams);
        begin_waits().await;
        println!("waiting");
        let answered = results(tasks).await;
        let count = answered.iter().filter(|&&answered| answered).count();
        println!("answered {count} of {}", answered.len());
    });
}
