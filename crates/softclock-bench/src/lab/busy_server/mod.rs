//! A web server that is kept busy, and toggles that switch load beside it on and off.
//!
//! This is the workload of *Soft Timers* (section 5): the server answers requests for one 6 KB file as fast as it can,
//! and the cost of events is the throughput or processor time that they take from it. Server and clients run on the
//! same machine, each on its own processor if there are two; [`Load`] selects the clients.
//!
//! - [`intervals`]: the sequence of the server's trigger states, and statistics of the intervals.
//! - [`compare`]: pairs of slices of time with and without a toggle.
//! - [`paced`]: the same server with responses in pieces, and the events that release these.
//! - [`synthetic`]: the paper's synthetic handler as a soft event, a signal and a timer descriptor.
//! - [`toggles`]: the toggles: soft events, signals, timer descriptors.

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

/// The parameters of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Requests outstanding at a time, each on a separate connection.
    pub connections: usize,
    /// Whether a connection carries request after request; otherwise each request opens one.
    pub keep_alive: bool,
    /// Whether a computing thread competes for the server's processor, at equal priority.
    pub neighbour: bool,
    /// The generator of requests.
    pub load: Load,
    /// The time that server and clients run before `control` starts.
    pub warm_up: Duration,
}

impl Workload {
    /// Returns the usual workload. It has enough connections that the server always finds a request waiting, even if
    /// other programs use the clients' processor for some milliseconds.
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

/// Runs `control` as a task on a busy server's thread; returns its result when it ends.
///
/// # Errors
/// Those of `control` and the sockets, and a failure of the clients.
pub fn run<R, F>(workload: &Workload, control: impl FnOnce() -> F + Send) -> io::Result<R>
where
    F: Future<Output = io::Result<R>>,
    R: Send,
{
    run_server(workload, |listening, stop| {
        serve(workload, listening, stop, control)
    })
}

/// Runs clients against the server that `serve` runs, until it returns.
fn run_server<R: Send>(
    workload: &Workload,
    serve: impl FnOnce(Sender<SocketAddr>, &AtomicBool) -> io::Result<R> + Send,
) -> io::Result<R> {
    let processors = Processors::detect();
    let stop = AtomicBool::new(false);
    let (listening, address) = mpsc::channel();
    thread::scope(|scope| {
        // The name distinguishes the thread from the clients in a profile.
        let named = thread::Builder::new().name("server".into());
        let server = named.spawn_scoped(scope, || {
            pin(processors.server);
            // Stops the clients also if the server fails early.
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
            // The server has failed; its result has the reason.
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
        // If the clients have ended already, they report the reason themselves.
        let _ = listening.send(address);
        softclock::sleep(workload.warm_up).await;
        let result = control().await;
        // Stop the clients first: they treat a connection that the server closes as an error.
        stop.store(true, Ordering::Relaxed);
        end();
        server.await;
        result
    })
}

/// Computes, without system calls.
fn compute(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Stops the clients when it is dropped.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns a function and a future; the future completes when the function is called or dropped.
fn end_channel() -> (impl FnOnce(), impl Future<Output = ()>) {
    let (sender, receiver) = async_channel::bounded::<()>(1);
    let ended = async move {
        // Closing the channel is the signal, and arrives as an error.
        let _ = receiver.recv().await;
    };
    (move || drop(sender), ended)
}

const FILE: &str = "file.html";
const PATH: &str = "/file.html";

/// The paper's file size.
const FILE_BYTES: usize = 6 << 10;
