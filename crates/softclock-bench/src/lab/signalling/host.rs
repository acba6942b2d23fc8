//! A host with this project's stack: a thread with a runtime and a stack of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::gettid;
use softclock::net::stack::{self, StackMechanism, StackOptions};
use softclock::net::{Pacing, TcpListener, TcpStream, UdpSocket};
use softclock::signalling::Policy;
use softclock::{Rate, Runtime, sleep, spawn_local};
use softclock_testing::lab::Namespace;

use super::{
    MESSAGE_BYTES, PORT, RECEIVER, RECEIVER_LINK_ADDRESS, SENDER, SENDER_LINK_ADDRESS, STOP_CHECK,
};
use crate::lab::lrp::{Link, Network, Threads, work};
use crate::measure::processors::pin;

/// What a host does.
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// Reads what arrives on TCP connections.
    Receiver,
    /// Sends without end over one connection, once the flag is set, at this rate if there is one.
    Sender(Arc<AtomicBool>, Option<Rate>),
    /// Computes for this long for each datagram.
    Sink(Duration),
}

/// Starts a host in `threads`; returns its thread. `count` counts the bytes read, or the datagrams of a sink. `buffer`
/// is the size of the send and receive buffers of its connections, if it is not the default.
pub(super) fn start(
    threads: &mut Threads,
    network: &Network,
    (role, policy): (Role, Policy),
    buffer: Option<u32>,
    count: &Arc<AtomicU64>,
) -> io::Result<Pid> {
    let (namespace, processor) = role.place(network);
    let options = options(network, &role, policy, buffer)?;
    let (entry, count) = (namespace.entry()?, count.clone());
    let (opened, result) = mpsc::channel();
    threads.start("host", move |stop| {
        pin(processor);
        let run = || -> io::Result<()> {
            entry.enter()?;
            Runtime::new()?.block_on(async {
                stack::open(&options).map_err(io::Error::other)?;
                let serving = spawn_local(async move { role.serve(&count).await });
                let _ = opened.send(Ok(gettid()));
                while stop.goes_on() && !serving.is_finished() {
                    sleep(STOP_CHECK).with_slack(STOP_CHECK).await;
                }
                match serving.is_finished() {
                    true => serving.await,
                    false => Ok(()),
                }
            })
        };
        // The starter waits for the first message only; later the host is silent, which the results show.
        if let Err(error) = run() {
            let _ = opened.send(Err(error));
        }
    })?;
    result.recv().map_err(io::Error::other)?
}

fn options(
    network: &Network,
    role: &Role,
    policy: Policy,
    buffer: Option<u32>,
) -> io::Result<StackOptions> {
    let (link, address, link_address) = match role {
        Role::Receiver | Role::Sink(_) => (Link::Server, RECEIVER, RECEIVER_LINK_ADDRESS),
        Role::Sender(..) => (Link::Clients, SENDER, SENDER_LINK_ADDRESS),
    };
    let mut options = StackOptions::new(network.name(link));
    options.mechanism = StackMechanism::Xdp;
    let prefix = format!("{address}/24").parse().map_err(io::Error::other)?;
    options.addresses.push(prefix);
    options.link_address = Some(link_address);
    options.signalling = policy;
    if let Some(bytes) = buffer {
        let of = &mut options.tcp.connection;
        (of.receive.buffer_bytes, of.receive.most_buffer_bytes) = (bytes, bytes);
        (of.send.buffer, of.send.most_buffer) = (bytes, bytes);
    }
    Ok(options)
}

impl Role {
    fn place<'a>(&self, network: &'a Network) -> (&'a Namespace, Option<usize>) {
        let processors = &network.processors;
        match self {
            Self::Receiver | Self::Sink(_) => (&network.server, processors.server),
            Self::Sender(..) => (&network.clients, processors.clients),
        }
    }

    /// Runs until an error.
    async fn serve(self, count: &Arc<AtomicU64>) -> io::Result<()> {
        let receiver = SocketAddr::from((RECEIVER, PORT));
        match self {
            Self::Receiver => {
                let listener = TcpListener::bind(receiver)?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    let count = count.clone();
                    spawn_local(async move { drain(&stream, &count).await });
                }
            }
            Self::Sender(begins, rate) => {
                while !begins.load(Relaxed) {
                    sleep(STOP_CHECK).with_slack(STOP_CHECK).await;
                }
                let stream = TcpStream::connect(receiver).await?;
                stream.set_pacing(rate.map(Pacing::of_rate));
                loop {
                    stream.write_all(&[0; MESSAGE_BYTES]).await?;
                }
            }
            Self::Sink(time) => {
                let socket = UdpSocket::bind(receiver)?;
                let mut datagram = [0; 2048];
                loop {
                    socket.recv_from(&mut datagram).await?;
                    work::compute(time);
                    count.fetch_add(1, Relaxed);
                }
            }
        }
    }
}

async fn drain(stream: &TcpStream, count: &AtomicU64) {
    let mut message = [0; MESSAGE_BYTES];
    // A sender that has ended is not an error of this end.
    while let Ok(bytes @ 1..) = stream.read(&mut message).await {
        count.fetch_add(bytes as u64, Relaxed);
    }
}
