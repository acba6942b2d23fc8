//! A web server that is kept busy, and what runs beside it switched on and off in turn.
//!
//! The workload of *Soft Timers* (section 5): the server answers requests for one 6 KB file as fast as it can, and
//! the cost of events is what they take from it. Server and clients are on the same
//! machine, each with a processor of its own if there are two; who the clients are, [`Load`] tells.
//!
//! - [`intervals`]: the trigger states of the server in their sequence, and statistics of the intervals.
//! - [`compare`]: slices of time with and without something, in pairs.
//! - [`paced`]: the same server with responses in pieces, and what lets these go.
//! - [`synthetic`]: the paper's synthetic handler as a soft event, a signal and a timer descriptor.
//! - [`toggles`]: what is switched on and off: soft events, signals, timer descriptors.

pub mod compare;
pub mod intervals;
pub mod paced;
pub mod synthetic;
pub mod timerfd;
pub mod toggles;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use softclock::Runtime;
use softclock::net::TcpListener;
use softclock_http::{Site, WorkerOptions};

use crate::load::closed_loop::{Load, Target};
use crate::measure::processors::{Processors, pin};

/// The size of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Requests outstanding at a time, each on a connection of its own.
    pub connections: usize,
    /// Whether a connection carries request after request; else each has one of its own.
    pub keep_alive: bool,
    /// Whether a thread that only computes competes for the server's processor, as equals.
    pub neighbour: bool,
    /// Who asks.
    pub load: Load,
    /// How long server and clients run before `control` does.
    pub warm_up: Duration,
}

impl Workload {
    /// Enough connections that the server always finds a request waiting, even if others use the clients' processor for
    /// some milliseconds.
    pub fn of(smoke: bool) -> Self {
        Self {
            connections: 256,
            keep_alive: true,
            neighbour: false,
            load: Load::Own,
            warm_up: Duration::from_millis(if smoke { 100 } else { 500 }),
        }
    }
}

/// Runs `control` as a task of a busy server's thread, until it ends.
///
/// # Errors
/// `control`'s, those of the sockets, and whatever ends a client early.
pub fn run<R, F>(workload: &Workload, control: impl FnOnce() -> F + Send) -> io::Result<R>
where
    F: Future<Output = io::Result<R>>,
    R: Send,
{
    run_server(workload, |listening, stop| {
        serve(workload, listening, stop, control)
    })
}

/// Keeps the server busy that `serve` runs, until it ends.
fn run_server<R: Send>(
    workload: &Workload,
    serve: impl FnOnce(Sender<SocketAddr>, &AtomicBool) -> io::Result<R> + Send,
) -> io::Result<R> {
    let processors = Processors::detect();
    let stop = AtomicBool::new(false);
    let (listening, address) = mpsc::channel();
    thread::scope(|scope| {
        // Named, so that a profiler tells it from the clients.
        let named = thread::Builder::new().name("server".into());
        let server = named.spawn_scoped(scope, || {
            pin(processors.server);
            // Also if it fails before it gets that far.
            let _stop = StopOnDrop(&stop);
            serve(listening, &stop)
        })?;
        if workload.neighbour {
            scope.spawn(|| {
                pin(processors.server);
                compute(&stop);
            });
        }
        let clients = match address.recv() {
            Ok(address) => {
                pin(processors.clients);
                let target = Target {
                    address,
                    path: PATH,
                    connections: workload.connections,
                    keep_alive: workload.keep_alive,
                };
                let over = || stop.load(Ordering::Relaxed);
                workload.load.run(&target, over).map(drop)
            }
            // The server has ended, and says why.
            Err(_) => Ok(()),
        };
        processors.unpin();
        let result = server.join().expect("the server does not panic");
        result.and_then(|result| clients.map(|()| result))
    })
}

fn serve<R, F: Future<Output = io::Result<R>>>(
    workload: &Workload,
    listening: Sender<SocketAddr>,
    stop: &AtomicBool,
    control: impl FnOnce() -> F,
) -> io::Result<R> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join(FILE), vec![b'x'; FILE_BYTES])?;
    let site = Site::directory(directory.path()).map_err(io::Error::other)?;
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let options = WorkerOptions {
            drain: Duration::from_secs(1),
            ..WorkerOptions::default()
        };
        let (end, ended) = end_channel();
        let server = softclock::spawn_local(async move {
            softclock_http::serve(vec![listener], Rc::new(site), options, ended).await
        });
        // Clients that are gone already tell why themselves.
        let _ = listening.send(address);
        softclock::sleep(workload.warm_up).await;
        let result = control().await;
        // The clients first, who would complain of closed connections.
        stop.store(true, Ordering::Relaxed);
        end();
        server.await;
        result
    })
}

/// Makes no system call.
fn compute(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Tells the clients that it is over.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A future that is ready when the function is called or dropped.
fn end_channel() -> (impl FnOnce(), impl Future<Output = ()>) {
    let (sender, receiver) = async_channel::bounded::<()>(1);
    let ended = async move {
        // An error is what closing the channel gives.
        let _ = receiver.recv().await;
    };
    (move || drop(sender), ended)
}

const FILE: &str = "file.html";
const PATH: &str = "/file.html";

/// The paper's.
const FILE_BYTES: usize = 6 << 10;
