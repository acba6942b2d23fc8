//! The end of a stack, by the end of its interface or of its runtime: whoever waits for it learns of it.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use softclock::Runtime;
use softclock::net::stack::{self, StackError, StackShare};
use softclock::net::{TcpStream, UdpSocket};
use softclock_linux::link::Link;

use crate::{open, options};

const OWN: [u8; 4] = [192, 0, 2, 7];

/// The time after which a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Deletes a device, while the current task goes on.
fn delete(name: &str) -> bool {
    let deleted = Command::new("ip").args(["link", "del", name]).status();
    deleted.is_ok_and(|status| status.success())
}

/// The result of a future that must not wait for ever.
async fn soon<R>(what: &str, future: impl Future<Output = R>) -> R {
    let limited = softclock::timeout(PATIENCE, future).await;
    limited.unwrap_or_else(|_| panic!("{what} still waits"))
}

/// The errors of the calls that wait in another thread when a stack ends, and of a new socket.
struct Member(JoinHandle<[ErrorKind; 3]>);

impl Member {
    /// Starts a thread that joins the stack, and waits for datagrams and for room. Returns when it receives.
    fn start(share: StackShare) -> Self {
        let (waits, waiting) = mpsc::channel();
        let run = async move || {
            share.join().unwrap();
            let receiver = UdpSocket::bind((OWN, 9)).unwrap();
            let receive = async {
                waits.send(()).unwrap();
                receiver.recv_from(&mut [0; 16]).await
            };
            let received = soon("the receiver", receive).await.unwrap_err();
            let sender = UdpSocket::bind((OWN, 0));
            let sending = async {
                loop {
                    // To a group without members, so that nothing comes back.
                    if let Err(error) = receiver.send_to(b"one", ([239, 1, 2, 3], 9)).await {
                        return error;
                    }
                }
            };
            let sent = soon("the sender", sending).await;
            [received, sent, sender.unwrap_err()].map(|error| error.kind())
        };
        let thread = thread::spawn(move || Runtime::new().unwrap().block_on(run()));
        waiting.recv().unwrap();
        Self(thread)
    }

    fn errors(self) -> [ErrorKind; 3] {
        self.0.join().unwrap()
    }
}

#[test]
fn a_stack_ends_with_its_runtime() {
    let (name, options) = options("scend");
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        drop(open!(&options));
        let _socket = UdpSocket::bind(([192, 0, 2, 7], 0)).unwrap();
        assert!(Link::named(&name).is_ok());
    });
    drop(runtime);
    // A child that another test has just forked has the descriptor, too, until it executes its program.
    let begun = Instant::now();
    while Link::named(&name).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the TAP device is still there");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Threads that share a stack learn of the end of its runtime, also if a handle of the stack lives on.
#[test]
fn the_end_of_the_runtime_ends_the_sockets_of_other_threads() {
    let (_, options) = options("scrun");
    let runtime = Runtime::new().unwrap();
    let stack = match runtime.block_on(async { stack::open(&options) }) {
        Ok(stack) => stack,
        Err(error) => softclock_testing::skip!("{error}"),
    };
    let member = Member::start(stack.share());
    // The stack gets to know its socket.
    runtime.block_on(async { softclock::sleep(Duration::from_millis(5)).await });
    drop(runtime);
    assert_eq!(member.errors(), [ErrorKind::NetworkDown; 3]);
    drop(stack);
}

#[test]
fn a_deleted_interface_ends_the_stack() {
    let (name, options) = options("scdel");
    Runtime::new().unwrap().block_on(async {
        let stack = open!(&options);
        let deleted = std::process::Command::new("ip")
            .args(["link", "del", &name])
            .status();
        if !deleted.is_ok_and(|status| status.success()) {
            softclock_testing::skip!("ip cannot delete {name}");
        }
        let ended = softclock::timeout(Duration::from_secs(10), stack.ended()).await;
        assert!(matches!(ended, Ok(StackError::Gone(gone)) if gone == name));
    });
}

/// All that waits for a stack ends with its interface: receivers and senders of this thread and of others, and the wait
/// until connections are closed.
#[test]
fn a_deleted_interface_ends_what_waits_for_the_stack() {
    let namespace = softclock_testing::namespace_for_taps!();
    let (name, options) = options("scall");
    let test = async || {
        let stack = stack::open(&options).unwrap();
        let commands = format!("link set {name} up\naddr add 192.0.2.1/24 dev {name}\n");
        namespace.batch("ip", &commands).unwrap();
        let host = std::net::TcpListener::bind("192.0.2.1:80").unwrap();
        let connection = soon("a connection", TcpStream::connect(([192, 0, 2, 1], 80))).await;
        let member = Member::start(stack.share());
        let receiver = UdpSocket::bind((OWN, 7)).unwrap();
        let receiving = softclock::spawn_local(async move {
            let received = receiver.recv_from(&mut [0; 16]).await;
            (receiver, received.unwrap_err().kind())
        });
        softclock::sleep(Duration::from_millis(5)).await;

        assert!(delete(&name));
        // Its peer is gone with the interface, so that nobody acknowledges its end.
        drop(connection);
        assert_eq!(stack::unflushed(), 1);
        soon("the end", stack.ended()).await;
        soon("a closed connection", stack::flushed()).await;
        let (receiver, received) = soon("the receiver", receiving).await;
        let mut buffer = [0; 16];
        let again = receiver.recv_from(&mut buffer);
        let again = soon("a second call", again).await.unwrap_err().kind();
        let sent = receiver.send_to(b"one", ([192, 0, 2, 1], 9));
        let sent = soon("the sender", sent).await.unwrap_err().kind();
        assert_eq!([received, again, sent], [ErrorKind::NetworkDown; 3]);
        assert_eq!(
            UdpSocket::bind((OWN, 8)).unwrap_err().kind(),
            ErrorKind::NetworkDown
        );
        while !member.0.is_finished() {
            softclock::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(member.errors(), [ErrorKind::NetworkDown; 3]);
        drop(host);
    };
    let run = || Runtime::new().unwrap().block_on(test());
    namespace.inside(run).unwrap();
}

/// A stack that is shared only after its end lets nobody join.
#[test]
fn a_stack_that_has_ended_cannot_be_joined() {
    let (name, options) = options("sclat");
    Runtime::new().unwrap().block_on(async {
        let stack = open!(&options);
        if !delete(&name) {
            softclock_testing::skip!("ip cannot delete {name}");
        }
        soon("the end", stack.ended()).await;
        let share = stack.share();
        let join = move || Runtime::new().unwrap().block_on(async { share.join() });
        let joined = thread::spawn(join).join().unwrap();
        assert!(matches!(joined, Err(StackError::Gone(gone)) if gone == name));
    });
}

/// A future that waited for the end keeps nothing of its task once it is dropped.
#[test]
fn a_dropped_wait_for_the_end_leaves_no_waker() {
    struct Counted;
    impl Wake for Counted {
        fn wake(self: Arc<Self>) {}
    }
    let (_, options) = options("scwak");
    Runtime::new().unwrap().block_on(async {
        let stack = open!(&options);
        let counted = Arc::new(Counted);
        let waker = Waker::from(counted.clone());
        {
            let mut ended = pin!(stack.ended());
            let polled = ended.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            assert_eq!(Arc::strong_count(&counted), 3);
        }
        assert_eq!(Arc::strong_count(&counted), 2);
    });
}

/// An address that a socket of another thread has given back is free at once in the thread with the device.
#[test]
fn an_address_that_another_thread_gives_back_is_free_at_once() {
    let (_, options) = options("scfre");
    Runtime::new().unwrap().block_on(async {
        let stack = open!(&options);
        let share = stack.share();
        let (bound, is_bound) = mpsc::channel();
        let (close, is_closing) = mpsc::channel();
        let member = async move || {
            share.join().unwrap();
            let socket = UdpSocket::bind((OWN, 4000)).unwrap();
            bound.send(()).unwrap();
            is_closing.recv().unwrap();
            drop(socket);
        };
        let member = thread::spawn(move || Runtime::new().unwrap().block_on(member()));
        is_bound.recv().unwrap();
        // The device's thread gets to know the socket.
        softclock::sleep(Duration::from_millis(5)).await;
        assert!(UdpSocket::bind((OWN, 4000)).is_err());
        close.send(()).unwrap();
        member.join().unwrap();
        UdpSocket::bind((OWN, 4000)).unwrap();
    });
}
