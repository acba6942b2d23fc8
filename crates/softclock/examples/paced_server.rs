//! A TCP server that sends 2 MB to each connection at 40 Mbit/s, and a client that measures the rate.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Instant;

use softclock::net::{Pacer, Pacing, TcpListener, all_paced_sent};
use softclock::{Rate, Runtime, spawn_local};

const BYTES: usize = 2_000_000;

fn main() -> io::Result<()> {
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let client = thread::spawn(move || receive(address));

        // One pacer for all connections: a change of its rate applies to those in use, too.
        let pacer = Pacer::new(Rate::from_bps(40_000_000).map(Pacing::of_rate));
        let (stream, _) = listener.accept().await?;
        let stream = stream.paced(&pacer);
        spawn_local(async move { stream.write_all(&vec![0; BYTES]).await }).await?;
        // A paced write returns when the stream has taken the bytes; soft events send the last of them later.
        all_paced_sent().await;

        let mbit = client.join().expect("the client does not panic")?;
        println!("{BYTES} bytes arrived at {mbit:.1} Mbit/s");
        Ok(())
    })
}

fn receive(address: SocketAddr) -> io::Result<f64> {
    let mut stream = std::net::TcpStream::connect(address)?;
    let begun = Instant::now();
    let received = stream.read_to_end(&mut Vec::with_capacity(BYTES))?;
    Ok(received as f64 * 8e-6 / begun.elapsed().as_secs_f64())
}
