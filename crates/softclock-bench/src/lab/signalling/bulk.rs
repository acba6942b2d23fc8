//! A bulk transfer from one host to another.

use std::hint::spin_loop;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::gettid;
use softclock::Rate;

use super::host::{self, Role};
use super::{DEVICE, RECEIVER, RECEIVER_LINK_ADDRESS, Signal, kernel};
use crate::lab::lrp::{Link, Network, Threads};
use crate::measure::accounts::Accounts;
use crate::measure::busy::IdleTime;
use crate::measure::processors::pin;

/// The signalling of both hosts: both with this project's stack, or both with the kernel's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// That of the host that sends.
    pub sender: Signal,
    /// That of the host that receives.
    pub receiver: Signal,
}

/// What the sender sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The bytes of the send and the receive buffers of both hosts.
    pub buffer: u32,
    /// The rate of the sender, if it is limited.
    pub rate: Option<Rate>,
}

/// Two hosts, and the connection between them. All ends when this is dropped.
#[derive(Debug)]
pub struct Bulk {
    threads: Threads,
    receiver: Pid,
    computing: Option<Pid>,
    address: Ipv4Addr,
    received: Arc<AtomicU64>,
    begins: Arc<AtomicBool>,
    network: Network,
}

/// What a slice of a transfer has moved, and at which cost.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Bytes that the receiver has read.
    pub bytes: u64,
    /// The length of the slice.
    pub elapsed: Duration,
    /// The times of the receiver's thread.
    pub receiver: Accounts,
    /// Those of the thread that computes, if there is one.
    pub computing: Option<Accounts>,
    /// The time for which the receiver's processor was not idle, counted in steps of mostly 10 ms.
    pub busy: Duration,
}

impl Bulk {
    /// Starts two hosts. The sender waits for [`begin`](Self::begin).
    ///
    /// # Errors
    /// What the system refuses; `InvalidInput` if only one end uses the kernel's sockets.
    pub fn start(ends: Ends, transfer: Transfer) -> io::Result<Self> {
        let buffer = transfer.buffer;
        let network = Network::new()?;
        let mut threads = Threads::default();
        let (received, begins) = (Arc::default(), Arc::default());
        let receiver = match (ends.sender, ends.receiver) {
            (Signal::Stack(sends), Signal::Stack(receives)) => {
                let receiver = (Role::Receiver, receives);
                let sender = (Role::Sender(Arc::clone(&begins), transfer.rate), sends);
                let buffer = Some(buffer);
                let receiver = host::start(&mut threads, &network, receiver, buffer, &received)?;
                host::start(&mut threads, &network, sender, buffer, &received)?;
                // The programs of AF_XDP are attached now, which ends the threads of NAPI.
                network.thread_napi(Link::Server, network.processors.server, DEVICE)?;
                network.thread_napi(Link::Clients, network.processors.clients, DEVICE)?;
                let clients = network.name(Link::Clients);
                let neighbor = format!(
                    "neigh replace {RECEIVER} lladdr {RECEIVER_LINK_ADDRESS} dev {clients} nud permanent\n"
                );
                network.clients.batch("ip", &neighbor)?;
                receiver
            }
            (Signal::Kernel(sends), Signal::Kernel(receives)) => {
                kernel::place(&network, Link::Server, receives)?;
                kernel::place(&network, Link::Clients, sends)?;
                kernel::start_sender(&mut threads, &network, transfer, &begins)?;
                kernel::start_receiver(&mut threads, &network, buffer, &received)?
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let address = match ends.receiver {
            Signal::Stack(_) => RECEIVER,
            Signal::Kernel(_) => Link::Server.address(),
        };
        Ok(Self {
            threads,
            receiver,
            computing: None,
            address,
            received,
            begins,
            network,
        })
    }

    /// Lets the sender begin, and waits until bytes arrive: a SYN may be lost while a kernel thread of the link starts.
    ///
    /// # Errors
    /// Nothing arrives within 5 s.
    pub fn begin(&self) -> io::Result<()> {
        self.begins.store(true, Relaxed);
        self.wait_for_bytes(self.received.load(Relaxed))
    }

    /// Waits until the receiver has more than this many bytes.
    fn wait_for_bytes(&self, before: u64) -> io::Result<()> {
        let begun = Instant::now();
        while self.received.load(Relaxed) == before {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("the receiver gets nothing"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Starts a thread that computes without end on the receiver's processor, with the receiver's priority.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn compute(&mut self) -> io::Result<()> {
        let processor = self.network.processors.server;
        let (started, result) = mpsc::channel();
        self.threads.start("computes", move |stop| {
            pin(processor);
            let _ = started.send(gettid());
            while stop.goes_on() {
                spin_loop();
            }
        })?;
        self.computing = Some(result.recv().map_err(io::Error::other)?);
        Ok(())
    }

    /// Measures a slice of the transfer, which goes on. The slice is longer if nothing arrives in it.
    ///
    /// # Errors
    /// The receiver has ended, or nothing arrives within 5 s.
    pub fn flow(&self, slice: Duration) -> io::Result<Flow> {
        let idle = IdleTime::now(self.network.processors.server.unwrap_or_default())?;
        let (begun, before) = (Instant::now(), self.received.load(Relaxed));
        let computing = || self.computing.map(Accounts::of).transpose();
        let (receiver, computed) = (Accounts::of(self.receiver)?, computing()?);
        thread::sleep(slice);
        self.wait_for_bytes(before)?;
        let receiver = Accounts::of(self.receiver)? - receiver;
        let computing = computing()?.zip(computed);
        Ok(Flow {
            bytes: self.received.load(Relaxed) - before,
            elapsed: begun.elapsed(),
            receiver,
            computing: computing.map(|(after, before)| after - before),
            busy: idle.busy()?,
        })
    }

    /// Returns the address of the receiver, for pings.
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the hosts' network.
    pub const fn network(&self) -> &Network {
        &self.network
    }
}

impl Flow {
    /// Returns the throughput in Mbit/s.
    pub fn mbit_per_second(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.elapsed.as_secs_f64()
    }

    /// Returns the busy time of the receiver's processor for each megabyte.
    pub fn busy_per_megabyte(&self) -> Duration {
        self.busy.div_f64(self.bytes as f64 / 1e6)
    }

    /// Returns the receiver's share of its processor.
    pub fn share(&self) -> f64 {
        self.receiver.ran.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    /// Returns the share of the thread that computes, if there is one.
    pub fn computing_share(&self) -> Option<f64> {
        Some(self.computing?.ran.as_secs_f64() / self.elapsed.as_secs_f64())
    }

    /// Returns the times a second that the receiver was given the processor.
    pub fn runs_per_second(&self) -> f64 {
        self.receiver.runs as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the mean time that the ready receiver waited for the processor, each time.
    pub fn wait_per_run(&self) -> Duration {
        self.receiver.waited / self.receiver.runs.max(1) as u32
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
