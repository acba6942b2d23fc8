//! Threads of a stack: the queues that they receive from, and their connections when one of them ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use softclock::Runtime;
use softclock::net::stack::{
    self, DropReason, LinkAddress, Stack, StackError, StackMechanism, StackOptions, StackShare,
    ThreadFrames,
};
use softclock::net::{self, TcpListener, UdpSocket};
use softclock_testing::lab::{Namespace, VethPair};

const SERVER: ([u8; 4], u16) = ([192, 0, 2, 7], 80);

/// The errors of a connection whose thread has ended: it has sent its end before, or not.
const ENDS: [ErrorKind; 3] = [
    ErrorKind::UnexpectedEof,
    ErrorKind::ConnectionReset,
    ErrorKind::BrokenPipe,
];

/// The time after which a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The timeout of a read for which the byte comes in time.
const LIMIT: Duration = Duration::from_millis(100);

/// Accepts connections, and answers all that arrives by the number of the thread.
async fn serve(listener: TcpListener, number: u8) {
    while let Ok((stream, _)) = listener.accept().await {
        drop(softclock::spawn_local(async move {
            while let Ok(1) = stream.read(&mut [0; 1]).await {
                let _ = stream.write_all(&[number]).await;
            }
        }));
    }
}

/// Another thread of a server.
struct Worker {
    thread: JoinHandle<()>,
    is_ending: Arc<AtomicBool>,
}

impl Worker {
    /// Starts a thread that joins the stack and serves.
    fn start(share: StackShare, number: u8) -> Self {
        let is_ending = Arc::new(AtomicBool::new(false));
        let ends = is_ending.clone();
        let (listens, listening) = mpsc::channel();
        let run = async move || {
            share.join().unwrap();
            let listener = TcpListener::bind(SERVER).unwrap();
            drop(softclock::spawn_local(serve(listener, number)));
            listens.send(()).unwrap();
            while !ends.load(Ordering::Relaxed) {
                softclock::sleep(Duration::from_millis(1)).await;
            }
        };
        let thread = thread::spawn(move || Runtime::new().unwrap().block_on(run()));
        listening.recv().expect("it listens");
        Self { thread, is_ending }
    }

    fn end(self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Runs a client's blocking calls in a thread of its own.
async fn as_client<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
    let client = thread::spawn(call);
    while !client.is_finished() {
        softclock::sleep(Duration::from_millis(1)).await;
    }
    client.join().unwrap()
}

/// Connects to the server; returns the connection and the number of its thread.
fn connect() -> std::io::Result<(TcpStream, u8)> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(SERVER), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let number = ask(&mut stream)?;
    Ok((stream, number))
}

/// The number of the thread that answers.
fn ask(stream: &mut TcpStream) -> std::io::Result<u8> {
    let mut number = [0];
    stream.write_all(b"?")?;
    stream.read_exact(&mut number)?;
    Ok(number[0])
}

fn connect_all(count: usize) -> Vec<(TcpStream, u8)> {
    (0..count).map(|_| connect().unwrap()).collect()
}

fn count(of: &[(TcpStream, u8)], number: u8) -> usize {
    of.iter().filter(|(_, other)| *other == number).count()
}

/// Opens a stack on a new TAP device, whose other end has the address 192.0.2.1.
fn open(namespace: &Namespace, name: &str, threads: usize) -> Stack {
    let mut options = StackOptions::new(format!("tap:{name}"));
    options.addresses.push("192.0.2.7/24".parse().unwrap());
    options.threads = threads;
    let stack = stack::open(&options).unwrap();
    let commands = format!("link set {name} up\naddr add 192.0.2.1/24 dev {name}\n");
    namespace.batch("ip", &commands).unwrap();
    stack
}

/// Connections of a thread that has ended are reset, and later ones go to another, or are refused if no other listens.
#[test]
fn a_thread_that_has_ended_is_replaced_by_others() {
    let namespace = softclock_testing::namespace_for_taps!();
    let name = format!("scthr{:x}", std::process::id());
    let test = async || {
        let stack = open(&namespace, &name, 3);
        let workers = [1, 2].map(|number| Worker::start(stack.share(), number));
        let listener = TcpListener::bind(SERVER).unwrap();
        let serving = softclock::spawn_local(serve(listener, 0));

        let mut before = as_client(|| connect_all(60)).await;
        let of_thread = [0, 1, 2].map(|number| count(&before, number));
        assert!(of_thread.iter().all(|&count| count > 5), "{of_thread:?}");
        let [first, second] = workers;
        first.end();
        let after = as_client(|| connect_all(60)).await;
        let of_thread = [0, 1, 2].map(|number| count(&after, number));
        assert!(of_thread[0] > 5 && of_thread[1] == 0, "{of_thread:?}");
        // The others go on, as do those that another thread has taken.
        before.extend(after);
        let before = as_client(move || {
            before.retain_mut(|(stream, number)| match ask(stream) {
                Ok(answered) => {
                    assert!(answered == *number && answered != 1, "{answered}");
                    true
                }
                Err(error) => {
                    let is_end = ENDS.contains(&error.kind());
                    assert!(is_end, "{error}");
                    assert_eq!(*number, 1);
                    false
                }
            });
            before
        });
        let before = before.await;
        assert!(before.len() > 60, "{}", before.len());

        // Without another listener.
        second.end();
        serving.abort();
        let refusals = as_client(|| {
            let refusal = |_| connect().err().map(|error| error.kind());
            (0..30).map(refusal).collect::<Vec<_>>()
        });
        for refusal in refusals.await {
            assert_eq!(refusal, Some(ErrorKind::ConnectionRefused));
        }
        // Of a thread that takes the place of one that has ended.
        let again = Worker::start(stack.share(), 1);
        let late = as_client(|| (0..30).filter_map(|_| connect().ok()).collect::<Vec<_>>());
        let late = late.await;
        assert!(
            late.len() > 3 && late.len() == count(&late, 1),
            "{}",
            late.len()
        );
        again.end();
    };
    let run = || Runtime::new().unwrap().block_on(test());
    namespace.inside(run).unwrap();
}

/// Opens a stack for two threads on a TAP device. The first one has the device, and runs `first` with a client's end of
/// a connection; the second one accepts the connection, and runs `second` with it.
fn on_two_threads<R: Send + 'static>(
    namespace: &Namespace,
    first: impl AsyncFnOnce(TcpStream) + Send,
    second: impl AsyncFnOnce(net::TcpStream) -> R + Send + 'static,
) -> R {
    let name = "scaway";
    let run = async || {
        let stack = open(namespace, name, 2);
        let share = stack.share();
        let second = async move || {
            share.join().unwrap();
            let listener = TcpListener::bind(SERVER).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            second(stream).await
        };
        let second = thread::spawn(move || Runtime::new().unwrap().block_on(second()));
        // Connections of the first thread are refused, as it does not listen.
        let stream = as_client(|| {
            let connect = || TcpStream::connect_timeout(&SocketAddr::from(SERVER), PATIENCE);
            (0..200).find_map(|_| connect().ok()).expect("a listener")
        });
        first(stream.await).await;
        as_client(|| second.join().unwrap()).await
    };
    let run = || Runtime::new().unwrap().block_on(run());
    namespace.inside(run).unwrap()
}

/// Whether a byte arrives within a time.
async fn arrives_within(limit: Duration, stream: &net::TcpStream) -> bool {
    let mut byte = [0];
    let read = softclock::timeout(limit, stream.read(&mut byte)).await;
    read.is_ok_and(|read| read.unwrap() == 1)
}

/// Both threads are away while a byte arrives for a connection of the second one, and the timeout of its read passes.
/// The second one goes on first.
#[test]
fn a_timeout_waits_for_what_another_thread_has_not_read() {
    let namespace = softclock_testing::namespace_for_taps!();
    let (begins, begun) = mpsc::channel();
    let (goes_on, going_on) = mpsc::channel::<()>();
    let first = async move |mut stream: TcpStream| {
        while begun.try_recv().is_err() {
            softclock::sleep(Duration::from_millis(1)).await;
        }
        stream.write_all(b"!").unwrap();
        thread::sleep(3 * LIMIT);
        goes_on.send(()).unwrap();
        thread::sleep(LIMIT / 10);
    };
    let second = async move |stream: net::TcpStream| {
        let reading = softclock::spawn_local(async move { arrives_within(LIMIT, &stream).await });
        // The read begins.
        softclock::yield_now().await;
        begins.send(()).unwrap();
        going_on.recv().unwrap();
        reading.await
    };
    assert!(on_two_threads(&namespace, first, second), "read in time");
}

/// The thread with the device is away until some timeouts of the second one have ended.
#[test]
fn a_timeout_does_not_wait_for_a_thread_that_stays_away() {
    let namespace = softclock_testing::namespace_for_taps!();
    let (begins, begun) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let first = async move |_: TcpStream| {
        while begun.try_recv().is_err() {
            softclock::sleep(Duration::from_millis(1)).await;
        }
        ended.recv_timeout(PATIENCE).expect("an end of timeouts");
    };
    let second = async move |stream: net::TcpStream| {
        begins.send(()).unwrap();
        for _ in 0..10 {
            assert!(!arrives_within(LIMIT / 10, &stream).await);
        }
        ends.send(()).unwrap();
    };
    on_two_threads(&namespace, first, second);
}

/// A link with two queues: the server has its first end, and the client, in a namespace of its own, the other.
struct Queues {
    link: VethPair,
    client: Arc<Namespace>,
}

impl Queues {
    fn new() -> Result<Self, String> {
        let link = VethPair::with_queues(2)?;
        let client = Namespace::new()?;
        let [_, other] = link.names();
        link.set(1, &format!("netns {}", client.id()));
        let commands = format!("link set {other} up\naddr add 192.0.2.1/24 dev {other}\n");
        let set_up = client.batch("ip", &commands);
        set_up.map_err(|error| error.to_string())?;
        Ok(Self {
            link,
            client: Arc::new(client),
        })
    }

    /// Opens the stack of two threads.
    fn open(&self) -> Result<Stack, String> {
        let [here, _] = self.link.names();
        let mut options = StackOptions::new(here);
        options.addresses.push("192.0.2.7/24".parse().unwrap());
        // The client remembers it when the stack is opened again.
        options.link_address = Some(LinkAddress([2, 0, 0, 0, 0, 7]));
        options.mechanism = StackMechanism::Xdp;
        options.threads = 2;
        for _ in 0..100 {
            match stack::open(&options) {
                // A child of another test has the claim of an earlier stack until it runs its own program.
                Err(StackError::Claim(..)) => thread::sleep(Duration::from_millis(10)),
                opened => return opened.map_err(|error| error.to_string()),
            }
        }
        panic!("the interface remains claimed");
    }

    /// Runs blocking calls of the client.
    async fn at_client<R: Send + 'static>(&self, call: impl FnOnce() -> R + Send + 'static) -> R {
        let client = self.client.clone();
        as_client(move || client.inside(call).unwrap()).await
    }

    /// Opens connections, and asks each of them some times; returns how many each thread has.
    async fn connect_all(&self, count: usize) -> [usize; 2] {
        let connections = move || {
            let mut all = connect_all(count);
            for _ in 0..3 {
                for (stream, number) in &mut all {
                    assert_eq!(ask(stream).unwrap(), *number);
                }
            }
            [0, 1].map(|number| self::count(&all, number))
        };
        self.at_client(connections).await
    }
}

/// Answers datagrams.
async fn echo(socket: UdpSocket) {
    let mut buffer = [0; 2048];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
        let _ = socket.send_to(&buffer[..length], peer).await;
    }
}

/// Sends datagrams of one frame and of several from some ports, and waits for the answers.
fn exchange_datagrams() {
    for length in [10, 10, 10, 1800].repeat(15) {
        let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&vec![7; length], "192.0.2.7:7").unwrap();
        assert_eq!(socket.recv(&mut [0; 2048]).unwrap(), length);
    }
}

/// The frames that each thread has received since `before`.
fn received(stack: &Stack, before: &mut Vec<ThreadFrames>) -> [u64; 2] {
    let now = stack.report().threads;
    let frames =
        |all: &[ThreadFrames], number: usize| all.get(number).map_or(0, |one| one.received);
    let since = [0, 1].map(|number| frames(&now, number) - frames(before, number));
    *before = now;
    since
}

#[test]
fn each_thread_receives_from_its_own_queue() {
    softclock_testing::require!("ip", "unshare", "nsenter", "ping");
    let lab = match Queues::new() {
        Ok(lab) => lab,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let test = async || {
        let stack = lab.open()?;
        let worker = Worker::start(stack.share(), 1);
        let listener = TcpListener::bind(SERVER).unwrap();
        drop(softclock::spawn_local(serve(listener, 0)));
        let socket = UdpSocket::bind(([192, 0, 2, 7], 7)).unwrap();
        drop(softclock::spawn_local(echo(socket)));
        let mut before = Vec::new();

        let of_thread = lab.connect_all(60).await;
        assert!(of_thread.iter().all(|&count| count > 10), "{of_thread:?}");
        let frames = received(&stack, &mut before);
        assert!(frames.iter().all(|&frames| frames > 100), "{frames:?}");
        // What is for the stack itself, or for a socket of the first thread, arrives on both queues.
        lab.at_client(exchange_datagrams).await;
        let frames = received(&stack, &mut before);
        assert!(frames.iter().all(|&frames| frames > 3), "{frames:?}");
        let pings = lab.client.clone();
        as_client(move || {
            for _ in 0..6 {
                pings.run("ping -c 1 -W 10 192.0.2.7").unwrap();
            }
        })
        .await;
        assert_eq!(stack.report().counts.echoes_answered, 6);

        // The first thread takes the queue of one that ends, and gives it to another in its place.
        worker.end();
        assert_eq!(lab.connect_all(30).await, [30, 0]);
        let frames = received(&stack, &mut before);
        assert!(frames[0] > 100 && frames[1] < 20, "{frames:?}");
        let worker = Worker::start(stack.share(), 1);
        let of_thread = lab.connect_all(60).await;
        assert!(of_thread.iter().all(|&count| count > 10), "{of_thread:?}");
        let frames = received(&stack, &mut before);
        assert!(frames.iter().all(|&frames| frames > 100), "{frames:?}");

        lab.link.set(0, "down");
        lab.link.set(0, "up");
        let of_thread = lab.connect_all(60).await;
        assert!(of_thread.iter().all(|&count| count > 10), "{of_thread:?}");
        let frames = received(&stack, &mut before);
        assert!(frames.iter().all(|&frames| frames > 100), "{frames:?}");

        let report = stack.report();
        let counts = &report.counts;
        let verdicts: u64 = counts.verdicts().iter().map(|(_, frames)| frames).sum();
        let received = report.threads.iter().map(|thread| thread.received);
        assert_eq!(counts.frames_received, received.sum::<u64>());
        let sent: Vec<_> = report.threads.iter().map(|thread| thread.sent).collect();
        assert_eq!(counts.frames_sent, sent.iter().sum::<u64>());
        assert!(sent.iter().all(|&sent| sent > 200), "{sent:?}");
        assert!(verdicts <= counts.frames_received, "{report:?}");
        assert_eq!(report.drops.of(DropReason::HandoverFull), 0, "{report:?}");
        assert_eq!(report.lost, Some(0));

        // Both threads notice that the interface is gone.
        let [_, other] = lab.link.names();
        lab.client.run(&format!("ip link delete {other}")).unwrap();
        stack.ended().await;
        worker.end();
        Ok::<_, String>(())
    };
    let run = || Runtime::new().unwrap().block_on(test());
    if let Err(reason) = run() {
        softclock_testing::skip!("{reason}");
    }
}

/// The queues are free when the stack ends, while another thread goes on.
#[test]
fn a_stack_that_ends_leaves_the_queues_of_all_threads() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    let lab = match Queues::new() {
        Ok(lab) => lab,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let run = || {
        let mut workers = Vec::new();
        for _ in 0..3 {
            let runtime = Runtime::new().unwrap();
            runtime.block_on(async {
                let stack = lab.open()?;
                workers.push(Worker::start(stack.share(), 1));
                let listener = TcpListener::bind(SERVER).unwrap();
                drop(softclock::spawn_local(serve(listener, 0)));
                let of_thread = lab.connect_all(30).await;
                assert!(of_thread.iter().all(|&count| count > 3), "{of_thread:?}");
                Ok::<_, String>(())
            })?;
        }
        workers.into_iter().for_each(Worker::end);
        Ok::<_, String>(())
    };
    if let Err(reason) = run() {
        softclock_testing::skip!("{reason}");
    }
}
