//! Requests at random times of a given rate, from a thread that never sleeps.
//!
//! The arrivals are a Poisson process, as of many independent clients, which does not depend on the answers: a slow
//! server has more requests outstanding. A latency counts from the time at which its request was due. The thread needs
//! a processor of its own. A client that slept would wake up late, and send what had become due meanwhile at once.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use softclock_linux::readiness::{Poller, Timeout, Token};

use super::closed_loop::{Target, request, response_bytes};
use crate::random::Random;

/// The results of a load.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Complete responses.
    pub responses: u64,
    /// The time from the first request to the last response.
    pub elapsed: Duration,
    /// Latencies in nanoseconds.
    pub latency: Histogram<u64>,
}

/// Sends `rate` requests a second for `during`, on as many connections as the target has, and waits for all answers.
/// Calls `on_begin` when the connections are open.
///
/// # Errors
/// A connection is refused or closed, or the answers do not come within 5 s of the last request.
pub fn run(
    target: &Target<'_>,
    rate: f64,
    during: Duration,
    seed: u64,
    on_begin: impl FnOnce() -> io::Result<()>,
) -> io::Result<Answered> {
    let mut clients = Clients::connect(target)?;
    let mut random = Random(seed);
    on_begin()?;
    let begun = Instant::now();
    let mut due = begun + gap(&mut random, rate);
    let end = begun + during;
    let mut waiting = VecDeque::new();
    let mut last = begun;
    while due < end || !waiting.is_empty() || clients.outstanding > 0 {
        let now = Instant::now();
        while due <= now && due < end {
            waiting.push_back(due);
            due += gap(&mut random, rate);
        }
        while let Some(&due) = waiting.front()
            && clients.ask(due)?
        {
            waiting.pop_front();
        }
        if clients.collect()? > 0 {
            last = Instant::now();
        } else if now > end + PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(Answered {
        responses: clients.latency.len(),
        elapsed: last.max(end) - begun,
        latency: clients.latency,
    })
}

/// The time between two requests.
fn gap(random: &mut Random, rate: f64) -> Duration {
    // In (0, 1], of which the logarithm is finite.
    let uniform = ((random.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    Duration::from_secs_f64(-uniform.ln() / rate)
}

struct Clients {
    poller: Poller,
    connections: Vec<Connection>,
    /// Connections without a request outstanding.
    idle: VecDeque<usize>,
    outstanding: usize,
    request: Vec<u8>,
    response_bytes: usize,
    latency: Histogram<u64>,
    events: Vec<softclock_linux::readiness::ReadyEvent>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    due: Instant,
    /// Bytes of the response that have not arrived; 0 without a request.
    missing: usize,
}

impl Clients {
    fn connect(target: &Target<'_>) -> io::Result<Self> {
        let mut poller = Poller::new()?;
        let connect = |number: usize| {
            let stream = TcpStream::connect(target.address)?;
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            poller.add(stream.as_fd(), Token(number as u64))?;
            Ok(Connection {
                stream,
                due: Instant::now(),
                missing: 0,
            })
        };
        let connections = (0..target.connections).map(connect);
        let connections = connections.collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            poller,
            idle: (0..connections.len()).collect(),
            connections,
            outstanding: 0,
            request: request(target),
            response_bytes: response_bytes(target)?,
            // From 100 ns to ten seconds.
            latency: Histogram::new_with_bounds(100, 10_000_000_000, 3).expect("constant bounds"),
            events: Vec::new(),
            buffer: vec![0; 64 << 10],
        })
    }

    /// Sends a request that was due at this time, on the connection that has been idle for longest. Returns false if
    /// none is idle.
    fn ask(&mut self, due: Instant) -> io::Result<bool> {
        let Some(number) = self.idle.pop_front() else {
            return Ok(false);
        };
        let connection = &mut self.connections[number];
        // A few bytes, for which a connection without a request outstanding has room.
        connection.stream.write_all(&self.request)?;
        connection.due = due;
        connection.missing = self.response_bytes;
        self.outstanding += 1;
        Ok(true)
    }

    /// Reads what has arrived; returns the number of responses that are complete.
    fn collect(&mut self) -> io::Result<usize> {
        self.poller.wait(Timeout::Now, &mut self.events)?;
        let mut complete = 0;
        for event in &self.events {
            let number = event.token.0 as usize;
            let connection = &mut self.connections[number];
            while connection.missing > 0 {
                match connection.stream.read(&mut self.buffer) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(read) => connection.missing = connection.missing.saturating_sub(read),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
                if connection.missing == 0 {
                    let ns = connection.due.elapsed().as_nanos();
                    self.latency.saturating_record(ns as u64);
                    self.idle.push_back(number);
                    self.outstanding -= 1;
                    complete += 1;
                }
            }
        }
        Ok(complete)
    }
}

/// The longest time for which answers may be missing after the last request.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        let mut random = Random(7);
        let gaps: Vec<f64> = (0..100_000)
            .map(|_| gap(&mut random, 1e4).as_secs_f64() * 1e4)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.98..1.02).contains(&mean), "{mean}");
        assert!((0.95..1.05).contains(&variance), "{variance}");
    }
}
