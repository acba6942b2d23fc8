//! The kernel's sockets: the other end of each transfer, and a subject.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
use rustix::time::Timespec;

use super::plan::{Buffers, Direction, LOOK_UP, Plan, RECEIVE_PORT, Ready, SEND_PORT, SUBJECT};
use crate::lab::lrp::Stop;

/// Transfers once from or to the subject.
pub(super) fn transfer(direction: Direction, bytes: u64, buffers: Buffers) -> io::Result<()> {
    let port = match direction {
        Direction::Sends => SEND_PORT,
        Direction::Receives => RECEIVE_PORT,
    };
    let socket = open(buffers.bytes())?;
    connect(&socket, &SocketAddr::from((SUBJECT, port)))?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let got = match direction {
        Direction::Sends => drain(&mut stream)?,
        Direction::Receives => {
            fill(&mut stream, bytes)?;
            stream.shutdown(Shutdown::Write)?;
            // The subject closes when it has read all.
            drain(&mut stream)? + bytes
        }
    };
    match got == bytes {
        true => Ok(()),
        false => Err(io::Error::other(format!("{got} of {bytes} bytes arrived"))),
    }
}

/// Serves transfers until `stop`.
pub(super) fn run(plan: Plan, stop: &Stop, ready: Ready<'_>) -> io::Result<()> {
    let listeners = [SEND_PORT, RECEIVE_PORT].map(|port| -> io::Result<TcpListener> {
        // Accepted sockets inherit the buffers.
        let socket = open(plan.buffers.bytes())?;
        bind(&socket, &SocketAddr::from((SUBJECT, port)))?;
        listen(&socket, 16)?;
        Ok(socket.into())
    });
    let [send, receive] = listeners;
    let listeners = [send?, receive?];
    ready();
    let wait = Timespec::try_from(LOOK_UP).map_err(io::Error::other)?;
    while stop.goes_on() {
        let mut ready = listeners
            .each_ref()
            .map(|of| PollFd::new(of, PollFlags::IN));
        poll(&mut ready, Some(&wait))?;
        let [sends, receives] = ready.map(|of| of.revents().contains(PollFlags::IN));
        // A client that leaves early is not an error of this end.
        if sends {
            let (mut stream, _) = listeners[0].accept()?;
            let _ = fill(&mut stream, plan.bytes);
        }
        if receives {
            let (mut stream, _) = listeners[1].accept()?;
            let _ = drain(&mut stream);
        }
    }
    Ok(())
}

/// Opens a socket with send and receive buffers of this many bytes, if it is not to have the default.
pub(in crate::lab) fn open(buffer: Option<usize>) -> io::Result<std::os::fd::OwnedFd> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    if let Some(bytes) = buffer {
        set_socket_recv_buffer_size(socket.as_fd(), bytes)?;
        set_socket_send_buffer_size(socket.as_fd(), bytes)?;
    }
    Ok(socket)
}

fn fill(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let block = [0; BLOCK];
    let mut left = bytes;
    while left > 0 {
        let some = left.min(BLOCK as u64);
        stream.write_all(&block[..some as usize])?;
        left -= some;
    }
    Ok(())
}

fn drain(stream: &mut TcpStream) -> io::Result<u64> {
    let mut block = vec![0; BLOCK];
    let mut all = 0;
    loop {
        match stream.read(&mut block)? {
            0 => return Ok(all),
            some => all += some as u64,
        }
    }
}

/// The bytes of a call.
const BLOCK: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(20);
