//! Threads of a stack: their connections when one of them ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use softclock::Runtime;
use softclock::net::TcpListener;
use softclock::net::stack::{self, StackOptions, StackShare};
use softclock_testing::lab::Namespace;

const SERVER: ([u8; 4], u16) = ([192, 0, 2, 7], 80);

/// The errors of a connection whose thread has ended: it has sent its end before, or not.
const ENDS: [ErrorKind; 3] = [
    ErrorKind::UnexpectedEof,
    ErrorKind::ConnectionReset,
    ErrorKind::BrokenPipe,
];

/// The time after which a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// Connections of a thread that has ended are reset, and later ones go to another, or are refused if no other listens.
#[test]
fn a_thread_that_has_ended_is_replaced_by_others() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    if !std::path::Path::new("/dev/net/tun").exists() {
        softclock_testing::skip!("there are no TAP devices here");
    }
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let name = format!("scthr{:x}", std::process::id());
    let mut options = StackOptions::new(format!("tap:{name}"));
    options.addresses.push("192.0.2.7/24".parse().unwrap());
    options.threads = 3;
    let test = async || {
        let stack = stack::open(&options).unwrap();
        let commands = format!("link set {name} up\naddr add 192.0.2.1/24 dev {name}\n");
        namespace.batch("ip", &commands).unwrap();
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
