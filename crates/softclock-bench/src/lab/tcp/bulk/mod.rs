//! Bulk transfers between one TCP and the kernel's, over a TAP device.
//!
//! ```text
//! processor 1                          processor 0
//! subject 10.82.0.2 ------- tap0 ------ kernel 10.82.0.1
//! ```
//!
//! The subject listens at two ports: at one it sends the whole transfer and closes, at the other it reads until the end
//! and closes. The kernel as subject is in another namespace, and veth stands for the TAP device.
//!
//! - `own`: this project's stack. `smoltcp`, `gvisor`: peers. `kernel`: the kernel's sockets, at either end.

mod gvisor;
mod kernel;
mod own;
mod plan;
mod smoltcp;

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use softclock_testing::KilledOnDrop;
use softclock_testing::lab::{Namespace, connect};

use crate::lab::lrp::Stop;
use crate::measure::processors::{Processors, pin};

pub use gvisor::Gvisor;
pub(in crate::lab) use kernel::open as open_kernel_socket;
pub use plan::{Buffers, Direction};

use plan::{KERNEL, Plan, Ready, SUBJECT, TAP};

/// A TCP that is compared.
#[derive(Clone, Copy, Debug)]
pub enum BulkPeer<'a> {
    /// This project's stack.
    Own,
    /// The same without segmentation by the device: each frame has one segment.
    OwnSingle,
    /// The kernel's, over veth.
    Kernel,
    /// smoltcp.
    Smoltcp,
    /// gVisor's netstack.
    Gvisor(&'a Gvisor),
}

impl BulkPeer<'_> {
    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "softclock's stack",
            Self::OwnSingle => "softclock's stack, single segments",
            Self::Kernel => "kernel, veth",
            Self::Smoltcp => "smoltcp",
            Self::Gvisor(_) => "gVisor",
        }
    }
}

/// A running subject, and the kernel at the other end. All ends when this is dropped.
#[derive(Debug)]
pub struct Bulk {
    subject: Subject,
    near: Namespace,
    /// That of the kernel as subject.
    _far: Option<Namespace>,
    processors: Processors,
    buffers: Buffers,
}

#[derive(Debug)]
enum Subject {
    Thread(Stop, Option<JoinHandle<()>>),
    Process { _process: KilledOnDrop },
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Self::Thread(stop, thread) = self {
            stop.stop();
            // A thread that has panicked has written its message to standard error.
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

impl Bulk {
    /// Starts a subject that sends transfers of `bytes`, and waits until it listens.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn start(peer: BulkPeer<'_>, buffers: Buffers, bytes: u64) -> io::Result<Self> {
        let near = Namespace::new().map_err(io::Error::other)?;
        near.disable_ipv6()?;
        let processors = Processors::detect();
        let plan = Plan {
            bytes,
            buffers,
            joins: matches!(peer, BulkPeer::Own),
        };
        let mut far = None;
        let subject = match peer {
            BulkPeer::Own | BulkPeer::OwnSingle => {
                in_thread(&near, processors.server, plan, own::run)?
            }
            BulkPeer::Smoltcp => in_thread(&near, processors.server, plan, smoltcp::run)?,
            BulkPeer::Kernel => {
                let other = Namespace::new().map_err(io::Error::other)?;
                connect((&near, TAP), (&other, "eth0"))?;
                other.run(&format!("ip addr add {SUBJECT}/24 dev eth0"))?;
                let subject = in_thread(&other, processors.server, plan, kernel::run)?;
                far = Some(other);
                subject
            }
            BulkPeer::Gvisor(gvisor) => {
                let start = || gvisor.start(&near, plan);
                Subject::Process {
                    _process: processors.on(processors.server, start)?,
                }
            }
        };
        if matches!(peer, BulkPeer::OwnSingle) {
            near.run(&format!("ethtool -K {TAP} tso off gso off tx off"))?;
        }
        let ours = format!("link set {TAP} up\naddr add {KERNEL}/24 dev {TAP}\n");
        near.batch("ip", &ours)?;
        Ok(Self {
            subject,
            near,
            _far: far,
            processors,
            buffers,
        })
    }

    /// Transfers once; returns the bytes a second, from the connection on to the end at the receiver.
    ///
    /// # Errors
    /// The subject does not answer, or the transfer has another length.
    pub fn transfer(&self, direction: Direction, bytes: u64) -> io::Result<f64> {
        if let Subject::Thread(_, Some(thread)) = &self.subject
            && thread.is_finished()
        {
            return Err(io::Error::other("the subject has ended"));
        }
        let transferred = self.near.inside(|| {
            pin(self.processors.clients);
            let begun = Instant::now();
            kernel::transfer(direction, bytes, self.buffers)?;
            Ok(bytes as f64 / begun.elapsed().as_secs_f64())
        });
        transferred?
    }
}

/// Runs a subject in a thread in a namespace, and waits until it listens.
fn in_thread(
    namespace: &Namespace,
    processor: Option<usize>,
    plan: Plan,
    run: fn(Plan, &Stop, Ready<'_>) -> io::Result<()>,
) -> io::Result<Subject> {
    let stop = Stop::default();
    let (started, result) = mpsc::channel();
    let of_thread = stop.clone();
    let entered = namespace.entry()?;
    let thread = thread::Builder::new()
        .name("subject".into())
        .spawn(move || {
            pin(processor);
            let ready = || {
                let _ = started.send(Ok(()));
            };
            if let Err(error) = entered.enter().and_then(|()| run(plan, &of_thread, &ready)) {
                // The starter listens until the subject is ready; later the transfer fails.
                let _ = started.send(Err(error));
            }
        })?;
    let subject = Subject::Thread(stop, Some(thread));
    result.recv().map_err(io::Error::other)??;
    Ok(subject)
}
