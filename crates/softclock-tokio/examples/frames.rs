//! Sends 50 frames of 10 datagrams, one every 5 ms, and prints the gaps between the datagrams that arrive.

use std::time::{Duration, Instant};

use softclock_tokio::{Pacing, UdpSocket, interval};

const FRAMES: usize = 50;
const DATAGRAMS: usize = 10;
const QUIET: Duration = Duration::from_millis(500); // Some may be lost.

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let receiver = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
    let peer = receiver.local_addr()?;
    let arrivals = tokio::spawn(async move {
        let (mut times, mut buffer) = (Vec::new(), [0; 1500]);
        while let Ok(Ok(_)) = tokio::time::timeout(QUIET, receiver.recv(&mut buffer)).await {
            times.push(Instant::now());
        }
        times
    });

    // A frame takes 4 of the 5 ms.
    let pacing = Pacing::of_rate("24560kbit".parse().expect("a rate"));
    let socket = UdpSocket::bind("127.0.0.1:0", pacing).await?;
    let mut frames = interval(Duration::from_millis(5));
    for _ in 0..FRAMES {
        frames.tick().await;
        for _ in 0..DATAGRAMS {
            socket.send_to(&[0; 1200], peer).await?;
        }
    }
    let times = arrivals.await.expect("no panic");
    let mut gaps: Vec<_> = times.windows(2).map(|two| two[1] - two[0]).collect();
    gaps.sort_unstable();
    let (count, p50) = (times.len(), gaps[gaps.len() / 2]);
    println!("{count} datagrams, gaps {p50:?} at p50");
    Ok(())
}
