//! The setup of the experiments of *Event Delivery*, section 7.3: a proxy on one processor; its upstream, hot and cold
//! clients on the other.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use softclock::fs::raise_descriptor_limit;

use super::at_end::AtEnd;
use crate::load::closed_loop::{Load, Target};
use crate::load::{self, Cold, ColdOptions, HotOptions, HotResult, cold::PER_PROCESS};
use crate::measure::processors::Processors;
use crate::measure::slice::Slice;
use crate::servers::{Kind, ProxyKind, Server, readable_by_all};

/// An upstream that serves one small file, and the means to start proxies in front of it.
#[derive(Debug)]
pub struct Stage {
    /// The processors of the proxies and of everything else.
    pub processors: Processors,
    load: Load,
    upstream: Server,
    site: tempfile::TempDir,
}

impl Stage {
    /// Starts the upstream.
    ///
    /// # Errors
    /// The upstream does not start.
    pub fn build() -> io::Result<Self> {
        // Child processes inherit the limit.
        raise_descriptor_limit();
        let site = tempfile::tempdir()?;
        readable_by_all(site.path())?;
        let file = site.path().join(PATH.trim_start_matches('/'));
        fs::write(file, [b'x'; FILE_BYTES])?;
        let processors = Processors::detect();
        let start = || Kind::Softclock.start(site.path());
        let upstream = processors.on(processors.clients, start)?;
        Ok(Self {
            upstream,
            load: Load::detect(),
            processors,
            site,
        })
    }

    /// Returns the proxies of `kinds` that can run here; adds to `notes` their versions, and the reason for each that
    /// cannot.
    ///
    /// # Errors
    /// An installed proxy does not start. softclock with io_uring is only noted then, because many systems forbid
    /// io_uring.
    pub fn proxies(
        &self,
        kinds: &[ProxyKind],
        notes: &mut Vec<String>,
    ) -> io::Result<Vec<ProxyKind>> {
        let mut running = Vec::new();
        for &kind in kinds {
            let name = kind.name();
            match (kind.version(), kind.package()) {
                (None, package) => {
                    let package = package.unwrap_or(name);
                    notes.push(format!(
                        "{name} is not installed (Debian's package {package}): not measured"
                    ));
                    continue;
                }
                (Some(version), Some(_)) => notes.push(format!("{name} {version}")),
                (Some(_), None) => {}
            }
            // Start each once, so that a missing permission shows before the measurement.
            match self.start(kind) {
                Ok(_) => running.push(kind),
                Err(error) if kind.needs_io_uring() => {
                    notes.push(format!("{name} is left out: {error}"));
                }
                Err(error) => return Err(io::Error::other(format!("{name}: {error}"))),
            }
        }
        Ok(running)
    }

    /// Starts the proxies of `kinds` that can run here, each with `cold` cold connections. Each runs only while it is
    /// measured, since the others, of which some never sleep, share its processor.
    ///
    /// # Errors
    /// As [`proxies`](Self::proxies), and those of the connections.
    pub fn crowds(
        &self,
        kinds: &[ProxyKind],
        cold: usize,
        notes: &mut Vec<String>,
    ) -> io::Result<Vec<(ProxyKind, Crowd<'_>)>> {
        let mut crowds = Vec::new();
        for kind in self.proxies(kinds, notes)? {
            let mut crowd = self.start(kind)?;
            crowd.grow_to(cold)?;
            crowds.push((kind, crowd));
        }
        Ok(crowds)
    }

    /// Starts a proxy on its processor.
    ///
    /// # Errors
    /// The proxy does not start.
    pub fn start(&self, kind: ProxyKind) -> io::Result<Crowd<'_>> {
        self.crowd(|| kind.start(self.upstream.address()))
    }

    /// Starts the server alone, without a proxy, on the processor of the proxies.
    ///
    /// # Errors
    /// The server does not start.
    pub fn serve(&self) -> io::Result<Crowd<'_>> {
        self.crowd(|| Kind::Softclock.start(self.site.path()))
    }

    fn crowd(&self, start: impl FnOnce() -> io::Result<Server>) -> io::Result<Crowd<'_>> {
        let server = self.processors.on(self.processors.server, start)?;
        let ids: Vec<String> = server.processes().iter().map(u32::to_string).collect();
        // Else it would not end with this process.
        let continues = AtEnd::run(&format!("kill -CONT {}", ids.join(" ")))?;
        server.signal(Signal::STOP)?;
        Ok(Crowd {
            server,
            _continues: continues,
            cold: Vec::new(),
            connections: 0,
            stage: self,
        })
    }

    /// Returns the notes of a report: the experiment's own, then those that hold for all measurements here.
    pub fn notes(&self, own: &[&str]) -> Vec<String> {
        let all = own.iter().chain(&NOTES);
        let mut notes: Vec<String> = all.map(ToString::to_string).collect();
        if !self.processors.are_two() {
            notes.push("proxy and clients share a processor, as there is only one".to_owned());
        }
        notes
    }

    /// Returns the note on the generator of closed-loop load.
    pub fn load_note(&self) -> String {
        self.load.note().to_owned()
    }
}

/// Returns the capacity of softclock with epoll in requests per second: the median over some slices of a closed loop.
///
/// # Errors
/// Those of [`Crowd::measure`], or softclock with epoll is not among the proxies.
pub fn saturation(
    crowds: &[(ProxyKind, Crowd<'_>)],
    connections: usize,
    slice: Duration,
) -> io::Result<f64> {
    let ours = crowds.iter().find(|(kind, _)| *kind == ProxyKind::OURS);
    let (_, ours) =
        ours.ok_or_else(|| io::Error::other("the proxy of softclock with epoll is missing"))?;
    let rate = |_| Ok(ours.measure(connections, slice)?.requests_per_second());
    let mut rates = (0..SLICES).map(rate).collect::<io::Result<Vec<f64>>>()?;
    rates.sort_by(f64::total_cmp);
    Ok(rates[SLICES / 2])
}

/// A server and its cold connections. The server is stopped (SIGSTOP) but in calls. It is dropped first, so that its
/// side of the connections is left in TIME_WAIT and the clients' ports are free again.
#[derive(Debug)]
pub struct Crowd<'a> {
    /// The proxy, or the server alone.
    pub server: Server,
    _continues: AtEnd,
    cold: Vec<Cold>,
    connections: usize,
    stage: &'a Stage,
}

impl Crowd<'_> {
    /// Opens cold connections up to this number, and waits until the server has accepted them.
    ///
    /// # Errors
    /// Connections cannot be opened, or the server does not accept them in time.
    pub fn grow_to(&mut self, connections: usize) -> io::Result<()> {
        let options = ColdOptions {
            address: self.server.address(),
            connections: connections.saturating_sub(self.connections),
            dribble: None,
            per_process: PER_PROCESS,
        };
        let Stage { processors, .. } = self.stage;
        let cold = self.running(|| processors.on(processors.clients, || Cold::open(&options)))?;
        self.cold.push(cold);
        self.connections = connections;
        self.running(|| {
            let start = Instant::now();
            while let Err(error) = self.check() {
                if start.elapsed() > PATIENCE {
                    return Err(error);
                }
                thread::sleep(LOOK_UP);
            }
            Ok(())
        })
    }

    /// Measures a slice with `connections` outstanding requests.
    ///
    /// # Errors
    /// The server answers no requests, or closed cold connections.
    pub fn measure(&self, connections: usize, slice: Duration) -> io::Result<Slice> {
        let Stage {
            processors, load, ..
        } = self.stage;
        let target = Target {
            address: self.server.address(),
            path: PATH,
            connections,
            keep_alive: true,
        };
        self.running(|| {
            let slice = Slice::measure(&self.server, &target, *load, processors, slice)?;
            self.check()?;
            Ok(slice)
        })
    }

    /// Sends requests at `rate` per second for `duration`, in an open loop on `connections` connections: a request for
    /// which all are busy is lost. Those of the warm-up before do not count.
    ///
    /// # Errors
    /// The clients cannot run, or the server closed cold connections.
    pub fn hot(
        &self,
        rate: f64,
        warm_up: Duration,
        duration: Duration,
        connections: usize,
    ) -> io::Result<HotResult> {
        let target = load::Target::new(self.server.address(), PATH);
        let options = HotOptions {
            duration,
            warm_up,
            most_outstanding: connections,
            connections,
            ..HotOptions::new(target, rate)
        };
        let Stage { processors, .. } = self.stage;
        let run = || load::hot::run(&options, |_, _| {});
        self.running(|| {
            let result = processors.on(processors.clients, run)?;
            self.check()?;
            Ok(result)
        })
    }

    /// Lets the server run during a call, and for a moment before and after, so that it handles what has happened
    /// outside of the measurement.
    fn running<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.server.signal(Signal::CONT)?;
        thread::sleep(SETTLING);
        let result = call();
        thread::sleep(SETTLING);
        self.server.signal(Signal::STOP)?;
        result
    }

    /// Checks that the server has at least as many descriptors as there are cold connections.
    ///
    /// # Errors
    /// The server has closed some.
    pub fn check(&self) -> io::Result<()> {
        let descriptors = self.server.descriptors()?;
        if descriptors >= self.connections {
            return Ok(());
        }
        let connections = self.connections;
        Err(io::Error::other(format!(
            "the server has {descriptors} descriptors, but {connections} cold connections are open"
        )))
    }
}

/// The path of the file that clients request.
const PATH: &str = "/file.html";

/// The file size, as in the paper.
const FILE_BYTES: usize = 1 << 10;

/// Slices of the closed loop that finds the saturation.
const SLICES: usize = 3;

/// The time within which the server must have accepted all cold connections.
const PATIENCE: Duration = Duration::from_secs(20);

const LOOK_UP: Duration = Duration::from_millis(5);

/// The time in which a server handles what happened while it was stopped.
const SETTLING: Duration = Duration::from_millis(20);

const NOTES: [&str; 3] = [
    "the proxy has one processor and one thread, and the other proxies are stopped meanwhile; upstream, hot and cold clients \
     share another; a file of 1 KB; connections are kept on both sides; no logs",
    "each proxy has its defaults but for connections that may carry any number of requests, and patience with clients that \
     send nothing, and keeps more connections to the upstream than there are requests at a time; nginx has keepalive 1024, \
     HTTP/1.1 to the upstream, multi_accept, and as in Debian's nginx.conf sendfile and tcp_nopush; HAProxy has \
     http-reuse always, and keeps connections however many descriptors are in use (tune.pool-low-fd-ratio and \
     tune.pool-high-fd-ratio 100)",
    "softclock has --signalling automatic, its default; woken by events: --signalling interrupt; deferred: --signalling \
     automatic=deferred",
];
