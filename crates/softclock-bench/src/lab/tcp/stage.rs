//! A server with its network, and slices of a load on it.

use std::cell::OnceCell;
use std::fs;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use softclock_linux::priority::Priority;

use super::files::File;
use super::subject::{PORT, SILENT_PORT, Subject};
use crate::lab::frames::Ends;
use crate::lab::lrp::{Link, Network};
use crate::load::closed_loop::{self, Outcome, Target, response_bytes};
use crate::load::open_loop::{self, Answered};
use crate::measure::busy::IdleTime;
use crate::measure::processors::pin;
use crate::servers::Server;

/// A running server. All ends when this is dropped.
#[derive(Debug)]
pub struct Stage {
    /// The server's processes.
    pub server: Server,
    /// The sockets that the server on the kernel does not have itself.
    _silent: Option<(TcpListener, UdpSocket)>,
    subject: Subject,
    /// The namespaces.
    pub network: Arc<Network>,
}

/// Memory at one time, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident memory of the server's processes.
    pub resident: u64,
    /// The kernel's objects, if the connections are the kernel's; otherwise 0.
    pub kernel: u64,
}

impl Memory {
    /// Returns the growth of both since `before`.
    pub fn growth_since(&self, before: &Self) -> f64 {
        self.resident_since(before) + self.kernel as f64 - before.kernel as f64
    }

    /// Returns the growth of the resident memory since `before`.
    pub fn resident_since(&self, before: &Self) -> f64 {
        self.resident as f64 - before.resident as f64
    }
}

/// Requests of clients.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The requested file.
    pub file: File,
    /// Requests outstanding at a time.
    pub connections: usize,
    /// Whether connections carry request after request.
    pub keep_alive: bool,
    /// The time for which requests are sent.
    pub slice: Duration,
}

/// The results of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Responses; the last ones count in part.
    pub requests: f64,
    /// The time for which the server's processor was busy.
    pub busy: Duration,
    /// The clients' results.
    pub outcome: Outcome,
}

impl Stage {
    /// Builds a network, and starts the server with the files of `root`, so that it can hold this number of
    /// connections.
    ///
    /// # Errors
    /// The server does not start, or does not answer.
    pub fn new(subject: Subject, root: &Path, connections: usize) -> io::Result<Self> {
        let network = Arc::new(Network::new()?);
        subject.prepare(&network)?;
        let address = SocketAddr::from((subject.address(), PORT));
        let accepts = || {
            let connect = || TcpStream::connect_timeout(&address, PATIENCE);
            matches!(network.clients.inside(connect), Ok(Ok(_)))
        };
        let command = |directory: &Path| subject.command(&network, root, connections, directory);
        let start = || Server::start_in(&network.server, address, command, accepts);
        let server = network.processors.on(network.processors.server, start)?;
        subject.place(&network)?;
        network.steer(Link::Clients, network.processors.clients)?;
        let silent = subject
            .uses_descriptors()
            .then(|| network.server.inside(|| silent_sockets(subject)))
            .transpose()?
            .transpose()?;
        Ok(Self {
            server,
            _silent: silent,
            subject,
            network,
        })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.subject.address(), PORT)
    }

    /// Returns the link addresses of frames from the clients to the server.
    pub fn ends(&self) -> Ends {
        Ends {
            source: Link::Clients.link_address(),
            destination: self.subject.link_address(),
        }
    }

    /// Reads the memory that the server takes.
    ///
    /// # Errors
    /// The server has ended.
    pub fn memory(&self) -> io::Result<Memory> {
        let kernel = match self.subject.uses_descriptors() {
            true => slab_bytes()?,
            false => 0,
        };
        Ok(Memory {
            resident: self.server.resident_bytes()?,
            kernel,
        })
    }

    /// Sends requests from the clients' processor.
    ///
    /// # Errors
    /// Those of the load, or no request was answered.
    pub fn load(&self, load: &Load) -> io::Result<Sample> {
        self.load_with(load, None)
    }

    /// Like [`load`](Self::load), with clients of this priority.
    ///
    /// # Errors
    /// Those of the load.
    pub fn load_with(&self, load: &Load, priority: Option<Priority>) -> io::Result<Sample> {
        let measured = self.network.clients.inside(|| {
            pin(self.network.processors.clients);
            if let Some(priority) = priority {
                priority.apply()?;
            }
            self.measure(load)
        });
        measured?
    }

    /// Sends `rate` requests a second at random times, from the clients' processor, which they keep busy.
    ///
    /// # Errors
    /// Those of the load.
    pub fn offer(&self, load: &Load, rate: f64, seed: u64) -> io::Result<Offered> {
        let offered = || {
            pin(self.network.processors.clients);
            let target = self.target(load);
            let processor = self.network.processors.server.unwrap_or_default();
            let mut idle = None;
            let begin = || {
                idle = Some(IdleTime::now(processor)?);
                Ok(())
            };
            let answered = open_loop::run(&target, rate, load.slice, seed, begin)?;
            let busy = idle.map_or(Ok(Duration::ZERO), |idle| idle.busy())?;
            Ok(Offered { answered, busy })
        };
        self.network.clients.inside(offered)?
    }

    fn target<'a>(&self, load: &Load) -> Target<'a> {
        Target {
            address: self.address().into(),
            path: load.file.path,
            connections: load.connections,
            keep_alive: load.keep_alive,
        }
    }

    fn measure(&self, load: &Load) -> io::Result<Sample> {
        let target = self.target(load);
        let response = response_bytes(&target)?;
        let processor = self.network.processors.server.unwrap_or_default();
        let (idle, begun) = (IdleTime::now(processor)?, OnceCell::new());
        // The slice begins when the clients are connected, which takes seconds if SYNs are lost.
        let over = || begun.get_or_init(Instant::now).elapsed() >= load.slice;
        let outcome = closed_loop::Load::detect().run(&target, over)?;
        Ok(Sample {
            requests: outcome.bytes as f64 / response as f64,
            busy: idle.busy()?,
            outcome,
        })
    }
}

/// The results of requests at a given rate.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The clients' results.
    pub answered: Answered,
    /// The time for which the server's processor was busy.
    pub busy: Duration,
}

impl Offered {
    /// Returns the processor time of a request, in seconds.
    pub fn busy_per_request(&self) -> f64 {
        self.busy.as_secs_f64() / self.answered.responses.max(1) as f64
    }
}

impl Sample {
    /// Returns the requests per second in which the server's processor was busy.
    pub fn requests_per_busy_second(&self) -> Option<f64> {
        let seconds = self.busy.as_secs_f64();
        (seconds > 0.0 && self.requests > 0.0).then(|| self.requests / seconds)
    }

    /// Returns the requests per second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests / self.outcome.elapsed.as_secs_f64()
    }

    /// Returns the part of the time in which the server's processor was busy.
    pub fn busy_share(&self) -> f64 {
        self.busy.as_secs_f64() / self.outcome.elapsed.as_secs_f64()
    }
}

/// The memory of the kernel's objects, in bytes.
fn slab_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Slab:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.ok_or(io::ErrorKind::InvalidData)? << 10)
}

fn silent_sockets(subject: Subject) -> io::Result<(TcpListener, UdpSocket)> {
    let address = (subject.address(), SILENT_PORT);
    Ok((TcpListener::bind(address)?, UdpSocket::bind(address)?))
}

/// For the answer to one attempt to connect.
const PATIENCE: Duration = Duration::from_millis(300);
