//! `event-delivery/wake-one`: the distribution of a listener's events among several threads (*Event Delivery*, section
//! 4: `SO_WAKEUP_ONE`).

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use softclock::events::{Delivery, EventQueue, Mechanism, Readiness, SourceEvent};

use crate::output::report::{Context, Experiment, Report, Row, Takes};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "event-delivery/wake-one",
    about: "fairness and wake-ups of threads that share a listener: all told, one told, a listener each",
    takes: Takes::Nothing,
    run,
};

/// A way in which the threads share the port.
#[derive(Clone, Copy)]
enum Sharing {
    /// One listener; the kernel wakes all threads.
    All,
    /// One listener; the kernel wakes one thread (`EPOLLEXCLUSIVE`).
    One,
    /// One listener per thread (`SO_REUSEPORT`).
    Own,
}

impl Sharing {
    const ALL: [Self; 3] = [Self::All, Self::One, Self::Own];

    const fn name(self) -> &'static str {
        match self {
            Self::All => "one listener, all told",
            Self::One => "one listener, EPOLLEXCLUSIVE",
            Self::Own => "a listener each, SO_REUSEPORT",
        }
    }
}

/// Counts of one thread.
#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    woken: AtomicUsize,
}

fn run(context: &Context) -> Result<Report, Box<dyn Error>> {
    let (connections, rounds) = if context.smoke { (20, 1) } else { (1_000, 9) };
    let loads = [("one at a time", 1), ("32 at a time", 32)];
    let mut samples = vec![[const { Vec::new() }; 2]; loads.len() * Sharing::ALL.len()];
    for round in 0..rounds {
        let of_round = context.round(round, rounds, "", || {
            let cases = loads
                .iter()
                .flat_map(|(_, burst)| Sharing::ALL.map(|sharing| (sharing, *burst)));
            let measured = cases.map(|(sharing, burst)| measure(sharing, connections, burst));
            measured.collect::<io::Result<Vec<_>>>()
        })?;
        for ([share, wakes], (busiest, woken)) in samples.iter_mut().zip(of_round) {
            share.push(busiest);
            wakes.push(woken);
        }
    }
    context.progress(rounds, rounds, "");
    let mut rows = Vec::new();
    let mut place = samples.iter();
    for (load, _) in loads {
        for sharing in Sharing::ALL {
            let [share, wakes] = place.next().expect("one for each");
            let metric = |what: &str| format!("{what}, {load}");
            rows.push(Row::of_samples(sharing.name(), metric(SHARE), "%", share));
            rows.push(Row::of_samples(
                sharing.name(),
                metric(WAKES),
                "wake-ups",
                wakes,
            ));
        }
    }
    Ok(Report {
        title: "a listener of several threads",
        notes: vec![format!(
            "{THREADS} threads; {connections} connections, each accepted before the next or the next 32 are made; an even share is {} %",
            100 / THREADS
        )],
        rows,
        charts: Vec::new(),
    })
}

/// Returns the share of connections that the busiest thread accepted, in percent, and the wake-ups per connection.
fn measure(sharing: Sharing, connections: usize, burst: usize) -> io::Result<(f64, f64)> {
    // Whole bursts, so that the last one is as large as the others.
    let connections = connections.next_multiple_of(burst);
    // The kernel assigns the port; the other listeners bind the same one.
    let first = listener(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    while listeners.len() < THREADS {
        listeners.push(match sharing {
            Sharing::Own => listener(address)?,
            Sharing::All | Sharing::One => listeners[0].try_clone()?,
        });
    }
    let counts: [Counts; THREADS] = Default::default();
    let total = || -> usize {
        counts
            .iter()
            .map(|counts| counts.accepted.load(SeqCst))
            .sum()
    };
    // A lost wake-up must end in an error, not in an endless measurement.
    let give_up = Instant::now() + PATIENCE;
    let over = || total() >= connections || Instant::now() > give_up;
    thread::scope(|scope| {
        let threads: Vec<_> = listeners
            .into_iter()
            .zip(&counts)
            .map(|(listener, counts)| scope.spawn(move || accept(sharing, listener, counts, over)))
            .collect();
        let mut made = 0;
        while made < connections && Instant::now() < give_up {
            let clients: io::Result<Vec<_>> =
                (0..burst).map(|_| TcpStream::connect(address)).collect();
            made += clients?.len();
            // The next burst waits until this one is accepted, so that the load is always of this size.
            while total() < made && Instant::now() < give_up {
                thread::yield_now();
            }
        }
        for thread in threads {
            thread.join().expect("accepting does not panic")?;
        }
        Ok::<_, io::Error>(())
    })?;
    let accepted = total();
    if accepted < connections {
        return Err(io::Error::other(format!(
            "only {accepted} connections were accepted"
        )));
    }
    let accepted_by = counts.iter().map(|counts| counts.accepted.load(SeqCst));
    let busiest = accepted_by.max().unwrap_or(0);
    let woken: usize = counts.iter().map(|counts| counts.woken.load(SeqCst)).sum();
    let share = |part: usize| part as f64 / accepted as f64;
    Ok((100.0 * share(busiest), share(woken)))
}

fn accept(
    sharing: Sharing,
    listener: TcpListener,
    counts: &Counts,
    over: impl Fn() -> bool,
) -> io::Result<()> {
    let queue = EventQueue::with_mechanism(Mechanism::Epoll)?;
    let source = match sharing {
        Sharing::One => queue.add_for(listener, Delivery::One),
        Sharing::All | Sharing::Own => queue.add(listener),
    };
    queue.declare_interest(&source, Readiness::READABLE, None)?;
    let mut events = [SourceEvent::NONE; 4];
    while !over() {
        // The timeout lets a thread without events notice the end.
        let found = queue.get_next_event(&mut events, Some(Duration::from_millis(20)))?;
        // Several events of one wait are one wake-up.
        counts.woken.fetch_add(found.min(1), SeqCst);
        while source.accept().is_ok() {
            counts.accepted.fetch_add(1, SeqCst);
        }
        source.consumed(Readiness::READABLE);
    }
    Ok(())
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, 1024)?;
    Ok(socket.into())
}

const THREADS: usize = 4;
const SHARE: &str = "share of the busiest thread";
const WAKES: &str = "wake-ups a connection";

/// The longest time for all connections of one measurement.
const PATIENCE: Duration = Duration::from_secs(20);
