//! Many connections that are opened, kept and hardly used.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::link::{Against, open};

/// What is done with connections.
#[derive(Clone, Debug)]
pub struct Hold {
    /// How many are open at a time: one that the server ends is replaced.
    pub connections: usize,
    /// What each begins with, as far as the server takes it at once.
    pub opening: Vec<u8>,
    /// What is sent on each after each pause; nothing if it is empty.
    pub drip: &'static [u8],
    /// Bytes that are read from each after each pause.
    pub sip: usize,
    /// The receive buffer of each, unless it is to be the kernel's choice.
    pub buffer: Option<usize>,
    /// Between two turns.
    pub pause: Duration,
}

impl Hold {
    /// Holds connections to this address until the attack is over.
    pub fn run(&self, against: &Against<'_>, address: SocketAddr) {
        let mut streams: Vec<TcpStream> = Vec::with_capacity(self.connections);
        while against.tally.goes_on() {
            streams.retain(|stream| {
                let kept = self.use_a_little(stream, against).is_ok();
                against.tally.ended.add(usize::from(!kept));
                kept
            });
            while streams.len() < self.connections && against.tally.goes_on() {
                match self.begin(against, address) {
                    Ok(stream) => streams.push(stream),
                    Err(_) => {
                        against.tally.ended.add(1);
                        break;
                    }
                }
            }
            thread::sleep(self.pause);
        }
    }

    fn begin(&self, against: &Against<'_>, address: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = open(address, self.buffer)?;
        against.tally.units.add(1);
        if !self.opening.is_empty() {
            against
                .tally
                .bytes
                .add(unless_blocked(stream.write(&self.opening))?);
        }
        Ok(stream)
    }

    /// # Errors
    /// The server has ended the connection.
    fn use_a_little(&self, mut stream: &TcpStream, against: &Against<'_>) -> io::Result<()> {
        let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
        if poll(&mut fds, Some(&Timespec::default()))? > 0 {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !self.drip.is_empty() {
            against
                .tally
                .bytes
                .add(unless_blocked(stream.write(self.drip))?);
        }
        if self.sip > 0 {
            unless_blocked(stream.read(&mut vec![0; self.sip]))?;
        }
        Ok(())
    }
}

/// What would block has done nothing.
fn unless_blocked(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}
