//! A closed loop of messages that a server sends back.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use softclock::net::TcpStream;
use softclock::{Runtime, sleep, spawn_local};

/// Messages to a server of echo.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    /// The server's address.
    pub address: SocketAddr,
    /// Connections, each with one message outstanding.
    pub connections: usize,
    /// The bytes of a message.
    pub bytes: usize,
}

/// The result of an exchange of messages.
#[derive(Clone, Copy, Debug)]
pub struct Echoed<T> {
    /// Messages that came back.
    pub messages: u64,
    /// The time that it took.
    pub elapsed: Duration,
    /// The values that the caller read before and after.
    pub read: [T; 2],
}

impl Messages {
    /// Exchanges messages for the time `slice`, after a tenth of it to warm up. Calls `read` at its beginning and end.
    /// This thread makes the load.
    ///
    /// # Errors
    /// The first error of a connection, of `read`, or a server that sends back other bytes.
    pub fn exchange<T>(
        &self,
        slice: Duration,
        read: impl Fn() -> io::Result<T>,
    ) -> io::Result<Echoed<T>> {
        let count = Rc::new(Cell::new(0));
        Runtime::new()?.block_on(async {
            let mut clients = Vec::new();
            for _ in 0..self.connections {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                clients.push(spawn_local(client(stream, self.bytes, count.clone())));
            }
            sleep(slice / 10).await;
            let (began, messages, before) = (Instant::now(), count.get(), read()?);
            sleep(slice).await;
            let (elapsed, messages, after) = (began.elapsed(), count.get() - messages, read()?);
            for client in clients {
                if client.is_finished() {
                    client.await?;
                } else {
                    client.abort();
                }
            }
            Ok(Echoed {
                messages,
                elapsed,
                read: [before, after],
            })
        })
    }
}

/// Sends messages until an error.
async fn client(stream: TcpStream, bytes: usize, count: Rc<Cell<u64>>) -> io::Result<()> {
    let message: Vec<u8> = (0..bytes).map(|place| place as u8).collect();
    let mut answer = vec![0; bytes];
    loop {
        stream.write_all(&message).await?;
        stream.read_exact(&mut answer).await?;
        if answer != message {
            return Err(io::Error::other("the server sent back other bytes"));
        }
        count.set(count.get() + 1);
    }
}
