//! The namespaces of the server, of the clients, and of the reference, and the links between them.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use softclock_linux::priority::set_slice;
use softclock_net::link::LinkAddress;
use softclock_testing::lab::{Namespace, connect};

use super::autogroup::Autogroup;
use super::slice::SHORT;
use crate::measure::processors::Processors;

/// Three namespaces: clients with a link to the server, and another to the reference, which has no server.
#[derive(Debug)]
pub struct Network {
    /// The namespace of the server.
    pub server: Namespace,
    /// The namespace of clients and flood.
    pub clients: Namespace,
    _reference: Namespace,
    tag: String,
    _autogroup: Autogroup,
    /// The processors of the server and of the clients.
    pub processors: Processors,
}

impl Network {
    /// Creates the namespaces and their links. Nothing is sent on them by the kernel: neighbors are set, and there is
    /// no IPv6.
    ///
    /// # Errors
    /// Why the system refuses.
    pub fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed) % 1000;
        let namespace = || Namespace::new().map_err(io::Error::other);
        let network = Self {
            server: namespace()?,
            clients: namespace()?,
            _reference: namespace()?,
            // The names of NAPI's threads, which contain that of the link, must differ between concurrent labs.
            tag: format!("{}x{number}", process::id()),
            _autogroup: Autogroup::raise(),
            processors: Processors::detect(),
        };
        network.link(&network.server, [Link::Server, Link::Clients])?;
        network.link(&network._reference, [Link::Reference, Link::ToReference])?;
        Ok(network)
    }

    fn link(&self, far: &Namespace, [there, here]: [Link; 2]) -> io::Result<()> {
        far.disable_ipv6()?;
        self.clients.disable_ipv6()?;
        let (here_name, there_name) = (self.name(here), self.name(there));
        connect((&self.clients, &here_name), (far, &there_name))?;
        for (host, link, name, peer) in [
            (&self.clients, here, &here_name, there),
            (far, there, &there_name, here),
        ] {
            // Segmentation on the link would keep veth from using NAPI for single datagrams.
            host.run(&format!("ethtool -K {name} tso off gso off"))?;
            let commands = format!(
                "link set lo up\nlink set {name} address {}\naddr add {}/24 dev {name}\n\
                 neigh replace {} lladdr {} dev {name} nud permanent\n",
                link.link_address(),
                link.address(),
                peer.address(),
                peer.link_address(),
            );
            host.batch("ip", &commands)?;
        }
        Ok(())
    }

    /// The name of an end of a link.
    pub fn name(&self, link: Link) -> String {
        format!("{}{}", link.letter(), self.tag)
    }

    /// Makes a kernel thread of NAPI do the receive work of a link, on this processor, at this level. Call it after an
    /// XDP program was attached, if there is to be one.
    ///
    /// # Errors
    /// The kernel has no threaded NAPI, or the link does not use NAPI.
    pub fn thread_napi(
        &self,
        link: Link,
        processor: Option<usize>,
        level: Level,
    ) -> io::Result<()> {
        let file = self.file(link, "threaded");
        fs::write(&file, "0")?;
        fs::write(&file, "1")?;
        let id = self.napi_thread(link)?;
        if let (Some(processor), Some(id)) = (processor, Pid::from_raw(id)) {
            let mut set = CpuSet::new();
            set.set(processor);
            sched_setaffinity(Some(id), &set)?;
        }
        let (program, arguments) = match level {
            Level::RealTime(priority) => ("chrt", format!("-f -p {priority} {id}")),
            Level::Nice(nice) => ("renice", format!("-n {nice} -p {id}")),
        };
        let output = Command::new(program).args(arguments.split(' ')).output()?;
        if !output.status.success() {
            let error = format!("{program} cannot set NAPI's priority");
            return Err(io::Error::other(error));
        }
        match level {
            Level::RealTime(_) => Ok(()),
            // Else it would wait for the end of a slice of the threads that compute.
            Level::Nice(_) => set_slice(Pid::from_raw(id), SHORT),
        }
    }

    fn napi_thread(&self, link: Link) -> io::Result<i32> {
        let wanted = format!("napi/{}-", self.name(link));
        let begun = Instant::now();
        loop {
            for entry in fs::read_dir("/proc")?.flatten() {
                let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                // Threads of the kernel show up to 64 bytes of their name; older kernels 15.
                if name.trim_end().starts_with(&wanted)
                    && let Some(Ok(id)) = entry.file_name().to_str().map(str::parse)
                {
                    return Ok(id);
                }
            }
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("the link has no thread of NAPI"));
            }
            thread::sleep(NAPI_RETRY);
        }
    }

    /// Makes the kernel's stack process what arrives at a link on this processor (receive packet steering).
    ///
    /// # Errors
    /// The kernel lacks it.
    pub fn steer(&self, link: Link, processor: Option<usize>) -> io::Result<()> {
        let mask = processor.map_or(0, |processor| 1u64 << processor);
        fs::write(self.file(link, "queues/rx-0/rps_cpus"), format!("{mask:x}"))
    }

    /// Makes NAPI of a link look once a period, beginning with the next frame, without being woken by frames.
    ///
    /// # Errors
    /// The kernel lacks `napi_defer_hard_irqs` (Linux 5.8).
    pub fn clock_napi(&self, link: Link, period: Duration) -> io::Result<()> {
        let period_ns = period.as_nanos().to_string();
        fs::write(self.file(link, "gro_flush_timeout"), period_ns)?;
        // The looks in vain after which frames wake it again.
        fs::write(
            self.file(link, "napi_defer_hard_irqs"),
            i32::MAX.to_string(),
        )
    }

    /// The losses on the links to the server so far.
    ///
    /// # Errors
    /// A counter cannot be read.
    pub fn losses(&self) -> io::Result<Losses> {
        let read = |link, name: &str| -> io::Result<u64> {
            let text = fs::read_to_string(self.counter(link, name))?;
            text.trim().parse().map_err(io::Error::other)
        };
        Ok(Losses {
            passed: read(Link::Clients, "tx_packets")?,
            ring: read(Link::Clients, "tx_dropped")?,
            server: read(Link::Server, "rx_dropped")?,
        })
    }

    /// The file of a counter of a link, such as `rx_bytes`.
    pub fn counter(&self, link: Link, name: &str) -> PathBuf {
        self.file(link, &format!("statistics/{name}"))
    }

    /// A file of the link in `/sys`, as its namespace shows it.
    fn file(&self, link: Link, name: &str) -> PathBuf {
        let namespace = match link {
            Link::Server => &self.server,
            Link::Clients | Link::ToReference => &self.clients,
            Link::Reference => &self._reference,
        };
        let link = self.name(link);
        PathBuf::from(format!(
            "/proc/{}/root/sys/class/net/{link}/{name}",
            namespace.id()
        ))
    }
}

/// Frames on the links between clients and server, since these were created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Losses {
    /// Frames that the clients' end has passed to the server's.
    pub passed: u64,
    /// Frames lost at the clients' end: the ring of the server's end was full.
    pub ring: u64,
    /// Frames lost at the server's end, by the XDP program or behind it.
    pub server: u64,
}

/// The priority of a thread of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// SCHED_FIFO with this priority.
    RealTime(u8),
    /// An ordinary one with this nice value, and a short slice.
    Nice(i8),
}

/// The ends of the links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// The server's.
    Server,
    /// The clients' end of the link to the server.
    Clients,
    /// The reference's.
    Reference,
    /// The clients' end of the link to the reference.
    ToReference,
}

impl Link {
    const fn letter(self) -> char {
        match self {
            Self::Server => 's',
            Self::Clients => 'c',
            Self::Reference => 'r',
            Self::ToReference => 't',
        }
    }

    /// The IP address.
    pub const fn address(self) -> Ipv4Addr {
        match self {
            Self::Server => Ipv4Addr::new(10, 79, 0, 2),
            Self::Clients => Ipv4Addr::new(10, 79, 0, 1),
            Self::Reference => Ipv4Addr::new(10, 79, 1, 2),
            Self::ToReference => Ipv4Addr::new(10, 79, 1, 1),
        }
    }

    /// The address of a port.
    pub fn port(self, port: u16) -> SocketAddr {
        (self.address(), port).into()
    }

    /// The link address.
    pub const fn link_address(self) -> LinkAddress {
        let [_, _, net, host] = self.address().octets();
        LinkAddress([2, 0, 0, 79, net, host])
    }
}

const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks for the thread of NAPI.
const NAPI_RETRY: Duration = Duration::from_millis(1);
