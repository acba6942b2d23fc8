//! How a thread learns of frames: by interrupts, by looks, or by both in turn. Here over a TAP device; `xdp` has the
//! completions and queues of AF_XDP.

mod xdp;

use std::fs;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as Host};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use softclock::Runtime;
use softclock::net::UdpSocket;
use softclock::net::stack::{self, Stack, StackOptions};
use softclock::signalling::{LatencyBound, Period, Policy, Quota, SignallingCounts, Wakeups};
use softclock_testing::lab::Namespace;

fn period(time: Duration) -> Policy {
    Policy::Clocked(Period::new(time).unwrap())
}

fn soft_poll(packets: u32) -> Policy {
    Policy::SoftPoll {
        quota: Quota::packets(packets).unwrap(),
        bound: LatencyBound::default(),
    }
}

fn automatic(wakeups: Wakeups) -> Policy {
    Policy::Automatic {
        bound: LatencyBound::default(),
        wakeups,
    }
}

/// The policies by which a waiting thread is woken by an arrival.
fn with_interrupts() -> [Policy; 5] {
    [
        Policy::Interrupt,
        Policy::Hybrid,
        soft_poll(1),
        soft_poll(15),
        automatic(Wakeups::AtOnce),
    ]
}

fn all() -> Vec<Policy> {
    let others = [
        Policy::Poll,
        period(Period::LONGEST),
        period(Duration::from_micros(50)),
        automatic(Wakeups::ByTimer),
        automatic(Wakeups::Deferred),
    ];
    [&with_interrupts()[..], &others].concat()
}

/// Runs a test with a stack. The kernel is at the other end of the device.
fn with_stack<R: Send>(
    namespace: &Namespace,
    set: impl FnOnce(&mut StackOptions),
    test: impl AsyncFnOnce(&Stack) -> R + Send,
) -> R {
    let name = format!("scsig{:x}", std::process::id());
    let mut options = StackOptions::new(format!("tap:{name}"));
    options.addresses.push("192.0.2.7/24".parse().unwrap());
    set(&mut options);
    let run = || {
        Runtime::new().unwrap().block_on(async {
            let stack = stack::open(&options).unwrap();
            let commands = format!("link set {name} up\naddr add 192.0.2.1/24 dev {name}\n");
            namespace.batch("ip", &commands).unwrap();
            let limited = softclock::timeout(Duration::from_secs(30), test(&stack)).await;
            limited.unwrap_or_else(|_| panic!("{:?}: the test hangs", options.signalling))
        })
    };
    namespace.inside(run).unwrap()
}

/// Runs a test with a stack of this policy that echoes datagrams at port 7.
fn with_echo<R: Send>(
    namespace: &Namespace,
    policy: Policy,
    test: impl AsyncFnOnce(&Stack) -> R + Send,
) -> R {
    let set = |options: &mut StackOptions| options.signalling = policy;
    with_stack(namespace, set, async |stack| {
        let socket = UdpSocket::bind(STACK).unwrap();
        drop(softclock::spawn_local(async move {
            let mut buffer = [0; 1500];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                socket.send_to(&buffer[..length], from).await.unwrap();
            }
        }));
        test(stack).await
    })
}

const STACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), 7);

/// Runs a function of the other host in a thread of the same namespace, while the stack runs. Sets no timer, so only
/// arrivals, looks and the end of the call wake the stack's thread.
async fn on_the_host<R: Send + 'static>(call: impl FnOnce(Host) -> R + Send + 'static) -> R {
    let host = Host::bind("192.0.2.1:0").unwrap();
    host.connect(STACK).unwrap();
    host.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    in_a_thread(move || call(host)).await
}

/// Runs a function in a thread, while this one serves.
async fn in_a_thread<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
    let done = Arc::new(Mutex::new((None, None::<Waker>)));
    let of_thread = done.clone();
    let thread = thread::spawn(move || {
        let result = call();
        let (to, waker) = &mut *of_thread.lock().unwrap();
        *to = Some(result);
        waker.take().into_iter().for_each(Waker::wake);
    });
    let result = poll_fn(|cx| {
        let (result, waker) = &mut *done.lock().unwrap();
        *waker = Some(cx.waker().clone());
        result.take().map_or(Poll::Pending, Poll::Ready)
    });
    let result = result.await;
    thread.join().unwrap();
    result
}

fn counts(stack: &Stack) -> SignallingCounts {
    stack.report().signalling.unwrap().counts
}

/// Exchanges this number of datagrams at a time; returns the longest time of an exchange.
fn exchange(host: &Host, rounds: u32, at_a_time: u32) -> Duration {
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let begun = Instant::now();
        for number in 0..at_a_time {
            let datagram = (round * at_a_time + number).to_be_bytes();
            host.send(&datagram).unwrap();
        }
        for _ in 0..at_a_time {
            host.recv(&mut [0; 16]).expect("an answer");
        }
        longest = longest.max(begun.elapsed());
    }
    longest
}

#[test]
fn every_policy_answers_all() {
    let namespace = softclock_testing::namespace_for_taps!();
    for policy in all() {
        with_echo(&namespace, policy, async |stack| {
            for at_a_time in [1, 20] {
                let longest = on_the_host(move |host| exchange(&host, 50, at_a_time)).await;
                // A lost wake-up would last until the kernel's next message of neighbors, or for ever.
                assert!(longest < Duration::from_secs(2), "{policy:?}: {longest:?}");
            }
            let report = stack.report();
            let signalling = report.signalling.unwrap();
            assert_eq!(signalling.policy, policy);
            let counts = signalling.counts;
            let received = report.counts.frames_received;
            assert_eq!(counts.packets, received, "{policy:?}");
            assert!(received >= 1050, "{policy:?}: {counts:?}");
        });
    }
}

/// A thread without work is not woken to look.
#[test]
fn idle_threads_do_not_look() {
    let namespace = softclock_testing::namespace_for_taps!();
    for policy in with_interrupts() {
        with_echo(&namespace, policy, async |stack| {
            on_the_host(|host| exchange(&host, 20, 1)).await;
            // The kernel's messages of neighbors wake any thread, so this is tried a few times.
            let mut more = Vec::new();
            for _ in 0..10 {
                let before = counts(stack);
                softclock::sleep(Duration::from_millis(300)).await;
                let looks = counts(stack).looks - before.looks;
                // The sleep ends a wait, and before the next one the thread may look.
                if looks <= 4 {
                    return;
                }
                more.push(looks);
            }
            panic!("{policy:?}: looks while idle: {more:?}");
        });
    }
}

/// With a period of 2 ms, an arrival each 60 us or so ends none of the waits: a look finds many.
#[test]
fn arrivals_do_not_end_waits_without_interrupts() {
    let namespace = softclock_testing::namespace_for_taps!();
    with_echo(&namespace, period(Period::LONGEST), async |stack| {
        on_the_host(|host| exchange(&host, 5, 1)).await;
        let (before, slept_before) = (counts(stack), sleeps());
        on_the_host(|host| {
            for _ in 0..2_000 {
                host.send(b"x").unwrap();
                thread::sleep(Duration::from_micros(50));
            }
        })
        .await;
        let (after, slept) = (counts(stack), sleeps() - slept_before);
        let packets = after.packets - before.packets;
        assert_eq!(after.interrupts, 0);
        assert!(packets >= 1_000, "{after:?}");
        assert!(
            slept * 4 < packets,
            "slept {slept} times for {packets} packets"
        );
    });
}

/// Soft polls of a thread that always has work find several packets at a time, of those that arrive one by one.
#[test]
fn a_busy_thread_looks_by_soft_events() {
    let namespace = softclock_testing::namespace_for_taps!();
    let packets_a_look = |policy| {
        with_echo(&namespace, policy, async |stack| {
            drop(softclock::spawn_local(async {
                loop {
                    spin(Duration::from_micros(5));
                    softclock::yield_now().await;
                }
            }));
            let before = counts(stack);
            on_the_host(|host| {
                for _ in 0..4_000 {
                    host.send(b"x").unwrap();
                    spin(Duration::from_micros(20));
                }
            })
            .await;
            let after = counts(stack);
            let packets = after.packets - before.packets;
            assert!(packets >= 1_000, "{after:?}");
            packets as f64 / (after.found - before.found) as f64
        })
    };
    // Where threads wait for a processor, packets come in bursts with any policy.
    let mut compared = Vec::new();
    for _ in 0..5 {
        let pair = [Policy::Interrupt, soft_poll(10)].map(packets_a_look);
        if pair[1] > 1.3 * pair[0] {
            return;
        }
        compared.push(pair);
    }
    panic!("packets a look that found some, by interrupts and by soft polls: {compared:?}");
}

/// The times that this thread has waited in the kernel.
fn sleeps() -> u64 {
    softclock_testing::waits_of_thread("/proc/thread-self").unwrap()
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A datagram that has come before the end of a timeout is received, although no look is due and nothing is reported.
#[test]
fn a_timeout_takes_what_has_arrived() {
    let namespace = softclock_testing::namespace_for_taps!();
    with_echo(&namespace, period(Period::LONGEST), async |_| {
        // The hosts learn each other's link addresses.
        on_the_host(|host| exchange(&host, 5, 1)).await;
        let socket = UdpSocket::bind(([192, 0, 2, 7], 8)).unwrap();
        let host = Host::bind("192.0.2.1:0").unwrap();
        for _ in 0..50 {
            // Between two looks.
            softclock::sleep(Duration::from_micros(2_700)).await;
            host.send_to(b"in time", "192.0.2.7:8").unwrap();
            let mut buffer = [0; 16];
            let received = socket.recv_from(&mut buffer);
            let received = softclock::timeout(Duration::from_micros(100), received).await;
            assert_eq!(received.expect("in time").unwrap().0, 7);
        }
    });
}

/// Sockets are opened while looks are due at each trigger state.
#[test]
fn looks_within_calls_of_the_stack() {
    let namespace = softclock_testing::namespace_for_taps!();
    for policy in [Policy::Poll, period(Period::SHORTEST), soft_poll(1)] {
        with_echo(&namespace, policy, async |stack| {
            let sender = on_the_host(|host| {
                for _ in 0..5_000 {
                    host.send(b"x").unwrap();
                }
            });
            let opens = async {
                for _ in 0..500 {
                    drop(UdpSocket::bind(([192, 0, 2, 7], 9)).unwrap());
                    drop(softclock::net::TcpListener::bind(([192, 0, 2, 7], 80)).unwrap());
                    softclock::yield_now().await;
                }
            };
            futures_lite::future::zip(sender, opens).await;
            // Packets that still wait in the device are found, too.
            while counts(stack).packets < 100 {
                softclock::sleep(Duration::from_millis(1)).await;
            }
        });
    }
}

/// The kernel's sockets by the same policies: nothing is lost, whether the thread waits or sleeps.
#[test]
fn every_policy_serves_sockets_of_the_kernel() {
    for policy in all() {
        let runtime = Runtime::builder().signalling(policy).build().unwrap();
        runtime.block_on(async {
            let socket = UdpSocket::bind(([127, 0, 0, 1], 0)).unwrap();
            let there = socket.local_addr().unwrap();
            drop(softclock::spawn_local(async move {
                let mut buffer = [0; 1500];
                loop {
                    let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                    socket.send_to(&buffer[..length], from).await.unwrap();
                }
            }));
            for at_a_time in [1, 20] {
                let host = Host::bind("127.0.0.1:0").unwrap();
                host.connect(there).unwrap();
                host.set_read_timeout(Some(Duration::from_secs(10)))
                    .unwrap();
                let longest = in_a_thread(move || exchange(&host, 200, at_a_time)).await;
                assert!(longest < Duration::from_secs(2), "{policy:?}: {longest:?}");
            }
        });
    }
}

/// A thread that sleeps until its next timer, instead of waiting, takes little processor time.
#[test]
fn waits_for_timers_take_no_time_of_the_processor() {
    for wakeups in [Wakeups::ByTimer, Wakeups::Deferred] {
        let mut builder = Runtime::builder();
        builder = builder.spin_cap(0.0).signalling(automatic(wakeups));
        let (ran, elapsed) = builder.build().unwrap().block_on(async {
            let (begun, ran) = (Instant::now(), run_ns());
            while begun.elapsed() < Duration::from_millis(200) {
                softclock::sleep(Duration::from_micros(80)).await;
            }
            (run_ns() - ran, begun.elapsed())
        });
        let elapsed = elapsed.as_nanos() as u64;
        assert!(
            ran < elapsed * 3 / 4,
            "{wakeups:?}: ran {ran} of {elapsed} ns"
        );
    }
}

/// A thread that gets its frames from another thread has no device to look at, with any policy.
#[test]
fn threads_without_a_device_do_not_look() {
    let namespace = softclock_testing::namespace_for_taps!();
    for policy in [
        Policy::Poll,
        period(Duration::from_micros(50)),
        soft_poll(1),
    ] {
        let set = |options: &mut StackOptions| {
            options.signalling = policy;
            options.threads = 2;
        };
        let (slept, ran, elapsed) = with_stack(&namespace, set, async |stack| {
            let share = stack.share();
            in_a_thread(move || {
                Runtime::new().unwrap().block_on(async {
                    share.join().unwrap();
                    softclock::sleep(Duration::from_millis(50)).await;
                    let (begun, slept, ran) = (Instant::now(), sleeps(), run_ns());
                    softclock::sleep(Duration::from_millis(200)).await;
                    (sleeps() - slept, run_ns() - ran, begun.elapsed())
                })
            })
            .await
        });
        assert!(slept < 100, "{policy:?}: slept {slept} times");
        let elapsed = elapsed.as_nanos() as u64;
        assert!(ran < elapsed / 4, "{policy:?}: ran {ran} of {elapsed} ns");
    }
}

/// The time for which this thread has run, in nanoseconds.
fn run_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}
