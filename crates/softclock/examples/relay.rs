//! Relays the TCP connections and UDP datagrams of a port to a server elsewhere.
//!
//! ```text
//! relay --listen 127.0.0.1:8080 --upstream 198.51.100.1:80
//! relay --dev tap:sc0 --address 192.0.2.7/24 --listen 192.0.2.7:5201 --upstream 127.0.0.1:5201
//! ```
//!
//! With `--dev`, clients connect to a network stack of this process, and the server is reached by that stack if it has
//! a route there, else by the kernel: a server on the kernel's sockets becomes one on the stack.
//!
//! At most [`MOST_CONNECTIONS`] connections are relayed at a time; others wait to be accepted. Datagrams of at most
//! [`MOST_FLOWS`] clients are: a further one takes the place of the one that has not sent for the longest time.

mod common;

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use futures_lite::future::try_zip;
use softclock::net::{RecvBatch, TcpListener, TcpStream, UdpSocket};
use softclock::{JoinHandle, Runtime, spawn_local};

use common::StackArguments;

#[derive(Parser)]
#[command(about = "Relays the TCP connections and UDP datagrams of a port")]
struct Arguments {
    #[command(flatten)]
    stack: StackArguments,

    /// Address and port for clients
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,

    /// Address and port of the server
    #[arg(long, value_name = "ADDR:PORT")]
    upstream: SocketAddr,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    Runtime::new()?.block_on(async {
        let _stack = arguments.stack.open()?;
        let listener = Rc::new(TcpListener::bind(arguments.listen)?);
        let socket = Rc::new(UdpSocket::bind(listener.local_addr()?)?);
        println!("serving at {}", listener.local_addr()?);
        // Each of these tasks has one connection at a time, and accepts the next when it has ended.
        for _ in 0..MOST_CONNECTIONS {
            let listener = Rc::clone(&listener);
            drop(spawn_local(relay_connections(listener, arguments.upstream)));
        }
        relay_datagrams(socket, arguments.upstream).await;
        Ok(())
    })
}

async fn relay_connections(listener: Rc<TcpListener>, upstream: SocketAddr) {
    loop {
        match listener.accept().await {
            // An error is that of one connection, which has ended.
            Ok((client, _)) => drop(relay_connection(client, upstream).await),
            Err(error) => {
                eprintln!("relay: cannot accept a connection: {error}");
                softclock::sleep(PAUSE).await;
            }
        }
    }
}

/// Copies both directions until both have ended. Each ends by itself, as some clients end theirs before they read.
async fn relay_connection(client: TcpStream, upstream: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    try_zip(copy(&client, &server), copy(&server, &client)).await?;
    Ok(())
}

async fn copy(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer).await? {
            0 => return to.shutdown(Shutdown::Write),
            length => to.write_all(&buffer[..length]).await?,
        }
    }
}

/// The datagrams of one client, behind a socket of their own by which the server tells clients apart.
struct Flow {
    socket: Rc<UdpSocket>,
    /// The number of the batch that had its latest datagram.
    used: u64,
    answers: JoinHandle<()>,
}

async fn relay_datagrams(listening: Rc<UdpSocket>, upstream: SocketAddr) {
    let mut flows: BTreeMap<SocketAddr, Flow> = BTreeMap::new();
    let mut batch = RecvBatch::new(BATCH, MOST_DATAGRAM);
    let mut now = 0;
    loop {
        now += 1;
        // An error is about an earlier answer, whose receiver is gone.
        if listening.recv_batch(&mut batch).await.is_err() {
            continue;
        }
        for datagram in batch.datagrams() {
            let client = datagram.source;
            if !flows.contains_key(&client) {
                make_room(&mut flows);
                match Flow::open(&listening, client, upstream) {
                    Ok(flow) => drop(flows.insert(client, flow)),
                    Err(error) => eprintln!("relay: cannot reach {upstream}: {error}"),
                }
            }
            if let Some(flow) = flows.get_mut(&client) {
                flow.used = now;
                // What the server does not take is lost, as in any network.
                let _ = flow.socket.send(datagram.payload).await;
            }
        }
    }
}

/// Ends the flow that has not been used for the longest time, if there are as many as there may be.
fn make_room(flows: &mut BTreeMap<SocketAddr, Flow>) {
    if flows.len() < MOST_FLOWS {
        return;
    }
    let oldest = flows.iter().min_by_key(|(_, flow)| flow.used);
    if let Some(flow) = oldest
        .map(|(client, _)| *client)
        .and_then(|client| flows.remove(&client))
    {
        flow.answers.abort();
    }
}

impl Flow {
    fn open(
        listening: &Rc<UdpSocket>,
        client: SocketAddr,
        upstream: SocketAddr,
    ) -> io::Result<Self> {
        let socket = Rc::new(connected(upstream)?);
        let answers = answers(Rc::clone(&socket), Rc::clone(listening), client);
        Ok(Self {
            socket,
            used: 0,
            answers: spawn_local(answers),
        })
    }
}

/// A socket that is connected to the server, by the kernel. An unspecified address would be the stack's, so the kernel
/// is asked for the one from which it reaches the server.
fn connected(upstream: SocketAddr) -> io::Result<UdpSocket> {
    let unspecified = match upstream {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let asked = std::net::UdpSocket::bind(unspecified)?;
    asked.connect(upstream)?;
    let socket = UdpSocket::bind((asked.local_addr()?.ip(), 0))?;
    socket.connect(upstream)?;
    Ok(socket)
}

/// Relays the server's datagrams to a client.
async fn answers(socket: Rc<UdpSocket>, listening: Rc<UdpSocket>, client: SocketAddr) {
    let mut batch = RecvBatch::new(BATCH, MOST_DATAGRAM);
    loop {
        // An error is about an earlier datagram, which found no server.
        if socket.recv_batch(&mut batch).await.is_err() {
            continue;
        }
        for datagram in batch.datagrams() {
            let _ = listening.send_to(datagram.payload, client).await;
        }
    }
}

const MOST_CONNECTIONS: usize = 64;
const MOST_FLOWS: usize = 64;

/// The buffer of each direction of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// The datagrams of a batch, and the longest that is relayed whole: half a MiB for each flow's batch.
const BATCH: usize = 8;
const MOST_DATAGRAM: usize = 64 << 10;

/// When no connection can be accepted, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(10);
