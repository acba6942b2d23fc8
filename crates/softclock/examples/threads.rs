//! Two threads, each with a runtime, share a port. A third thread runs a closure on each of them through their
//! mailboxes.
//!
//! The kernel distributes connections over the listeners of a port. Tasks and sockets stay on the thread that created
//! them.

use std::cell::Cell;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;

use softclock::net::{ListenOptions, TcpListener, bind_tcp};
use softclock::{Remote, Runtime, spawn_local};

const CONNECTIONS: usize = 20;

fn main() -> io::Result<()> {
    let options = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let first = bind_tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &options)?;
    let address = first.local_addr()?;
    let second = bind_tcp(address, &options)?;

    let (give, take) = mpsc::channel();
    let servers: Vec<_> = [(1, first), (2, second)]
        .into_iter()
        .map(|(number, listener)| {
            let give = give.clone();
            thread::spawn(move || serve(number, listener, &give))
        })
        .collect();
    let remotes: Vec<Remote> = take.iter().take(servers.len()).collect();

    for _ in 0..CONNECTIONS {
        let mut answer = String::new();
        std::net::TcpStream::connect(address)?.read_to_string(&mut answer)?;
        print!("{answer} ");
    }
    println!();
    let (count, counts) = mpsc::channel();
    for remote in remotes {
        let count = count.clone();
        // The closure runs on the server's thread, in one of the next turns of its loop.
        let posted = remote.post(move || count.send(SERVED.get()).unwrap_or_default());
        posted.map_err(io::Error::other)?;
    }
    let served: Vec<usize> = counts.iter().take(servers.len()).collect();
    println!("connections by thread: {served:?}");
    Ok(())
}

thread_local! {
    static SERVED: Cell<usize> = const { Cell::new(0) };
}

fn serve(
    number: usize,
    listener: std::net::TcpListener,
    give: &mpsc::Sender<Remote>,
) -> io::Result<()> {
    let runtime = Runtime::new()?;
    give.send(runtime.remote()).map_err(io::Error::other)?;
    runtime.block_on(async move {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            spawn_local(async move {
                let answer = format!("thread {number}");
                if stream.write_all(answer.as_bytes()).await.is_ok() {
                    SERVED.set(SERVED.get() + 1);
                }
            });
        }
    })
}
