//! Sends 200 datagrams of 1200 bytes at 10 Mbit/s, evenly, and prints the gaps with which they arrived.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use softclock::net::{Pacing, UdpSocket};
use softclock::{Rate, Runtime};

const DATAGRAMS: usize = 200;
const BYTES: u16 = 1200;

fn main() -> io::Result<()> {
    let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    receiver.set_read_timeout(Some(Duration::from_secs(2)))?;
    let peer = receiver.local_addr()?;
    let receiver = thread::spawn(move || arrivals(&receiver));

    Runtime::new()?.block_on(async {
        let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let rate = Rate::from_bps(10_000_000).expect("a rate above 0");
        socket.set_pacing(Some(Pacing::of_rate(rate)));
        // The train is cut into datagrams; a soft event sends each when it is due.
        let train = vec![0; DATAGRAMS * usize::from(BYTES)];
        socket.send_train(&train, BYTES, Some(peer)).await
    })?;

    let mut gaps = receiver.join().expect("the receiver does not panic")?;
    gaps.sort_unstable();
    println!("{} of {DATAGRAMS} datagrams arrived", gaps.len() + 1);
    println!(
        "gaps: 960 us at 10 Mbit/s; here p10 {:?}, p50 {:?}, p90 {:?}",
        gaps[gaps.len() / 10],
        gaps[gaps.len() / 2],
        gaps[gaps.len() * 9 / 10]
    );
    Ok(())
}

fn arrivals(socket: &std::net::UdpSocket) -> io::Result<Vec<Duration>> {
    let mut buffer = [0; BYTES as usize];
    socket.recv(&mut buffer)?;
    let mut last = Instant::now();
    let mut gaps = Vec::with_capacity(DATAGRAMS);
    while gaps.len() + 1 < DATAGRAMS {
        socket.recv(&mut buffer)?;
        gaps.push(last.elapsed());
        last = Instant::now();
    }
    Ok(gaps)
}
