//! Hosts that use the kernel's sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;

use rustix::net::{bind, listen};
use rustix::process::Pid;
use rustix::thread::gettid;
use softclock_linux::socket::tcp::set_max_pacing_rate;

use super::{DEVICE, KernelSignal, MESSAGE_BYTES, PORT, STOP_CHECK, Transfer};
use crate::lab::lrp::{Link, Network, Stop, Threads};
use crate::lab::tcp::bulk::open_kernel_socket;
use crate::measure::processors::pin;

/// Starts a receiver with buffers of this many bytes; returns its thread.
pub(super) fn start_receiver(
    threads: &mut Threads,
    network: &Network,
    buffer: u32,
    count: &Arc<AtomicU64>,
) -> io::Result<Pid> {
    let listen = || -> io::Result<TcpListener> {
        let socket = open_kernel_socket(Some(buffer as usize))?;
        bind(&socket, &receiver())?;
        listen(&socket, 1)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let listener = network.server.inside(listen)??;
    let (count, processor) = (count.clone(), network.processors.server);
    let (started, result) = mpsc::channel();
    threads.start("receiver", move |stop| {
        pin(processor);
        let _ = started.send(gettid());
        while stop.goes_on() {
            if let Ok((stream, _)) = listener.accept() {
                // A sender that has ended is not an error of this end.
                let _ = drain(stream, &count, &stop);
            }
            thread::sleep(STOP_CHECK);
        }
    })?;
    result.recv().map_err(io::Error::other)
}

/// Starts a sender, which begins once the flag is set.
pub(super) fn start_sender(
    threads: &mut Threads,
    network: &Network,
    transfer: Transfer,
    begins: &Arc<AtomicBool>,
) -> io::Result<()> {
    let open = || open_kernel_socket(Some(transfer.buffer as usize));
    let socket = network.clients.inside(open)??;
    let bytes_per_second = transfer.rate.map(|rate| rate.bps() / 8);
    set_max_pacing_rate(socket.as_fd(), bytes_per_second)?;
    let (begins, processor) = (begins.clone(), network.processors.clients);
    threads.start("sender", move |stop| {
        pin(processor);
        while stop.goes_on() && !begins.load(Relaxed) {
            thread::sleep(STOP_CHECK);
        }
        if stop.goes_on() && rustix::net::connect(&socket, &receiver()).is_ok() {
            // The receiver may end first.
            let _ = fill(socket.into(), &stop);
        }
    })
}

/// Makes the kernel learn of frames on an end of the link in this way. Both ends must have the same kind of segments.
pub(super) fn place(network: &Network, link: Link, signal: KernelSignal) -> io::Result<()> {
    let (host, processor) = match link {
        Link::Server => (&network.server, network.processors.server),
        _ => (&network.clients, network.processors.clients),
    };
    let name = network.name(link);
    match signal {
        KernelSignal::Joined => {
            host.run(&format!("ethtool -K {name} tso on gso on"))?;
            network.steer(link, processor)
        }
        KernelSignal::Napi => {
            host.run(&format!("ethtool -K {name} gro on"))?;
            network.thread_napi(link, processor, DEVICE)
        }
        KernelSignal::Clocked(period) => {
            network.clock_napi(link, period)?;
            place(network, link, KernelSignal::Napi)
        }
    }
}

fn receiver() -> SocketAddr {
    Link::Server.port(PORT)
}

fn drain(mut stream: TcpStream, count: &AtomicU64, stop: &Stop) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(STOP_CHECK))?;
    let mut message = [0; MESSAGE_BYTES];
    while stop.goes_on() {
        match stream.read(&mut message) {
            Ok(0) => break,
            Ok(bytes) => {
                count.fetch_add(bytes as u64, Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn fill(mut stream: TcpStream, stop: &Stop) -> io::Result<()> {
    stream.set_write_timeout(Some(STOP_CHECK))?;
    while stop.goes_on() {
        match stream.write(&[0; MESSAGE_BYTES]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
