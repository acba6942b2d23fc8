//! Sends 50 streams of 200 packets a second each from one thread, the streams evenly spaced, and prints the gaps
//! between packets as they arrived.
//!
//! The packets have the header of RTP (RFC 3550). Streams that begin together would send 50 packets every 5 ms, which
//! wait for each other at every queue on their way; spaced, a packet leaves every 100 us.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use softclock::net::UdpSocket;
use softclock::{Runtime, interval, sleep_until, spawn_local};

const STREAMS: u32 = 50;
const PACKETS: u16 = 200;
const PERIOD: Duration = Duration::from_millis(5);
const HEADER: usize = 12;
const PAYLOAD: usize = 160;

fn main() -> io::Result<()> {
    let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    receiver.set_read_timeout(Some(Duration::from_secs(2)))?;
    let peer = receiver.local_addr()?;
    let receiver = thread::spawn(move || arrivals(&receiver));

    let lost = Rc::new(Cell::new(0));
    Runtime::new()?.block_on(async {
        let socket = Rc::new(UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?);
        let begin = softclock::now() + Duration::from_millis(1);
        let streams: Vec<_> = (0..STREAMS)
            .map(|id| {
                let (socket, lost) = (socket.clone(), lost.clone());
                spawn_local(async move {
                    sleep_until(begin + PERIOD * id / STREAMS).await;
                    let mut ticks = interval(PERIOD);
                    for sequence in 0..PACKETS {
                        ticks.tick().await;
                        // A live stream has no use for a packet that is late: it goes on with the next.
                        if socket.send_to(&packet(id, sequence), peer).await.is_err() {
                            lost.set(lost.get() + 1);
                        }
                    }
                })
            })
            .collect();
        for stream in streams {
            stream.await;
        }
        io::Result::Ok(())
    })?;

    let (of_streams, mut gaps) = receiver.join().expect("the receiver does not panic")?;
    gaps.sort_unstable();
    println!(
        "{STREAMS} streams: {} to {} packets of each arrived, {} were not sent",
        of_streams.iter().min().unwrap_or(&0),
        of_streams.iter().max().unwrap_or(&0),
        lost.get(),
    );
    println!(
        "gaps: {:?} between evenly spaced packets; here p10 {:?}, p50 {:?}, p90 {:?}",
        PERIOD / STREAMS,
        gaps[gaps.len() / 10],
        gaps[gaps.len() / 2],
        gaps[gaps.len() * 9 / 10]
    );
    Ok(())
}

/// A packet of RTP: version 2, payload type 0 (PCMU), 8 samples a millisecond.
fn packet(stream: u32, sequence: u16) -> [u8; HEADER + PAYLOAD] {
    let mut packet = [0xff; HEADER + PAYLOAD];
    packet[..2].copy_from_slice(&[0x80, 0]);
    packet[2..4].copy_from_slice(&sequence.to_be_bytes());
    let time = u32::from(sequence) * PERIOD.as_millis() as u32 * 8;
    packet[4..8].copy_from_slice(&time.to_be_bytes());
    packet[8..12].copy_from_slice(&stream.to_be_bytes());
    packet
}

/// Counts the packets of each stream, and measures the gaps between all.
fn arrivals(socket: &std::net::UdpSocket) -> io::Result<(Vec<u32>, Vec<Duration>)> {
    let mut buffer = [0; HEADER + PAYLOAD];
    let mut of_streams = vec![0; STREAMS as usize];
    let mut times = Vec::new();
    while times.len() < STREAMS as usize * usize::from(PACKETS) {
        socket.recv(&mut buffer)?;
        times.push(Instant::now());
        let stream = u32::from_be_bytes([buffer[8], buffer[9], buffer[10], buffer[11]]);
        of_streams[stream as usize] += 1;
    }
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    Ok((of_streams, gaps))
}
