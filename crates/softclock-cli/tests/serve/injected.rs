//! Faults injected by the client, at random, and no wrong byte ever.
//!
//! Each session makes some requests on one connection in one of several ways and does one of several things wrong, or
//! none. Whatever arrives must be the start of what the requests ask for, byte for byte; where nothing is wrong that
//! excuses it, all of it.
//!
//! `SOFTCLOCK_FAULT_REQUESTS` is the number of requests; `SOFTCLOCK_FAULT_SEED` repeats a run.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::net::sockopt::set_socket_linger;

use crate::server::{Server, directory, noise};

/// A random number generator with a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A request and its expected response, except for the date.
struct Exchange {
    request: Vec<u8>,
    response: Vec<u8>,
    /// Position of the date in the response.
    date: usize,
}

impl Exchange {
    /// Sends the request once without a fault, and records the response.
    fn learn(address: SocketAddr, method: &str, target: &str, more: &str) -> Self {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: t\r\n{more}\r\n").into_bytes();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        let date = response.windows(8).position(|bytes| bytes == b"\r\ndate: ");
        let date = date.expect("a dated response") + 8;
        assert_eq!(&response[date + DATE_LEN - 4..date + DATE_LEN], b" GMT");
        Self {
            request,
            response,
            date,
        }
    }

    /// Whether `bytes` match the response at `place`.
    fn agrees(&self, place: usize, bytes: &[u8]) -> bool {
        let expected = &self.response[place..place + bytes.len()];
        if expected == bytes {
            return true;
        }
        let in_date = |at: usize| (self.date..self.date + DATE_LEN).contains(&(place + at));
        let mut pairs = expected.iter().zip(bytes).enumerate();
        pairs.all(|(at, (expected, byte))| expected == byte || in_date(at))
    }
}

const DATE_LEN: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();

/// The fault of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Half closed after the last request.
    HalfClose,
    /// Garbage after the last request.
    Garbage,
    /// A reset inside a request.
    ResetSending,
    /// A reset or a close inside the responses.
    Leave,
    ResetReading,
    /// The last request is never completed, and its side closed.
    Unfinished,
}

impl Fault {
    fn choose(random: &mut Random) -> Self {
        match random.below(16) {
            0 => Self::HalfClose,
            1 => Self::Garbage,
            2 => Self::ResetSending,
            3 => Self::Leave,
            4 => Self::ResetReading,
            5 => Self::Unfinished,
            _ => Self::None,
        }
    }
}

/// The state that all sessions share.
struct Campaign {
    address: SocketAddr,
    exchanges: Vec<Exchange>,
    /// Requests still to be made.
    left: AtomicU64,
    complete: AtomicU64,
    bytes: AtomicU64,
    sessions: AtomicU64,
    faulty: AtomicU64,
}

impl Campaign {
    /// One connection's requests; returns their number.
    fn session(&self, random: &mut Random) -> io::Result<usize> {
        let fault = Fault::choose(random);
        let count = match random.below(4) {
            0 => 1,
            _ => 1 + random.below(30),
        };
        let chosen: Vec<_> = (0..count)
            .map(|_| &self.exchanges[random.below(self.exchanges.len())])
            .collect();
        self.sessions.fetch_add(1, Ordering::Relaxed);
        self.faulty
            .fetch_add(u64::from(fault != Fault::None), Ordering::Relaxed);
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_nodelay(true)?;
        let pipelined = random.below(2) == 0;
        // Without pipelining, all requests but the last are exchanged without a fault.
        let (peaceful, last) = match pipelined {
            true => chosen.split_at(0),
            false => chosen.split_at(count - 1),
        };
        for exchange in peaceful {
            send(&mut stream, &exchange.request, random)?;
            self.receive(&mut stream, &[exchange], usize::MAX)?;
        }
        self.end(stream, last, fault, random)?;
        Ok(count)
    }

    /// Sends the last requests, injects the fault, and judges the responses.
    fn end(
        &self,
        mut stream: TcpStream,
        last: &[&Exchange],
        fault: Fault,
        random: &mut Random,
    ) -> io::Result<()> {
        let mut requests: Vec<u8> = last.iter().flat_map(|it| it.request.clone()).collect();
        let all: usize = last.iter().map(|exchange| exchange.response.len()).sum();
        match fault {
            Fault::ResetSending => {
                requests.truncate(random.below(requests.len()));
                send(&mut stream, &requests, random)?;
                return set_socket_linger(&stream, Some(Duration::ZERO)).map_err(Into::into);
            }
            Fault::Garbage => requests.extend_from_slice(GARBAGE[random.below(GARBAGE.len())]),
            Fault::Unfinished => requests.extend_from_slice(b"GET / HTTP/1.1\r\nHo"),
            _ => {}
        }
        let sent = send(&mut stream, &requests, random);
        if fault != Fault::Garbage {
            sent?;
        }
        match fault {
            Fault::HalfClose | Fault::Unfinished => stream.shutdown(Shutdown::Write)?,
            Fault::Leave | Fault::ResetReading => {
                self.receive(&mut stream, last, random.below(all))?;
                if fault == Fault::ResetReading {
                    set_socket_linger(&stream, Some(Duration::ZERO))?;
                }
                return Ok(());
            }
            _ => {}
        }
        self.receive(&mut stream, last, usize::MAX)?;
        let mut rest = Vec::new();
        match fault {
            Fault::None => return Ok(()),
            _ => stream.read_to_end(&mut rest)?,
        };
        let rest = String::from_utf8_lossy(&rest);
        match fault {
            Fault::Garbage => assert!(rest.starts_with("HTTP/1.1 400 "), "{rest}"),
            _ => assert_eq!(rest, "", "more than was asked for"),
        }
        Ok(())
    }

    /// Reads the responses to `expected`, or the first `max` bytes of them.
    fn receive(
        &self,
        stream: &mut TcpStream,
        expected: &[&Exchange],
        max: usize,
    ) -> io::Result<()> {
        let mut buffer = [0; 64 << 10];
        let mut left = max;
        for exchange in expected {
            let mut place = 0;
            while place < exchange.response.len() {
                let wanted = (exchange.response.len() - place)
                    .min(buffer.len())
                    .min(left);
                if wanted == 0 {
                    return Ok(());
                }
                let read = stream.read(&mut buffer[..wanted])?;
                assert!(read > 0, "cut at {place} of {}", exchange.response.len());
                assert!(
                    exchange.agrees(place, &buffer[..read]),
                    "wrong bytes at {place}: {:?}",
                    String::from_utf8_lossy(&buffer[..read.min(500)])
                );
                place += read;
                left -= read;
                self.bytes.fetch_add(read as u64, Ordering::Relaxed);
            }
            self.complete.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn work(&self, seed: u64) {
        let mut random = Random(seed);
        while self.left.load(Ordering::Relaxed) > 0 {
            let made = self.session(&mut random);
            let made =
                made.unwrap_or_else(|error| panic!("an innocent connection failed: {error}"));
            let _ = self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    Some(left.saturating_sub(made as u64))
                });
        }
    }
}

/// Sends the bytes whole, or in pieces with occasional pauses.
fn send(stream: &mut TcpStream, mut bytes: &[u8], random: &mut Random) -> io::Result<()> {
    if random.below(4) > 0 {
        return stream.write_all(bytes);
    }
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(1 + random.below(bytes.len().min(200)));
        stream.write_all(piece)?;
        bytes = rest;
        if random.below(64) == 0 {
            thread::sleep(Duration::from_micros(random.below(3_000) as u64));
        }
    }
    Ok(())
}

const GARBAGE: &[&[u8]] = &[
    b"\0",
    b"\n\n\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\nHost: t\r\nX: a\rb\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n",
];

fn number(variable: &str, otherwise: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn no_wrong_byte_whatever_clients_do() {
    let requests = number("SOFTCLOCK_FAULT_REQUESTS", 20_000);
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = number("SOFTCLOCK_FAULT_SEED", clock.unwrap().as_nanos() as u64);
    println!("{requests} requests, SOFTCLOCK_FAULT_SEED={seed}");
    let sizes = [0, 1, 100, 1_000, 6_000, 30_000, 70_000, 300_000];
    let names = sizes.map(|size: usize| format!("f{size}"));
    let contents = sizes.map(noise);
    let files: Vec<_> = (names
        .iter()
        .map(String::as_str)
        .zip(contents.iter().map(Vec::as_slice)))
    .collect();
    let directory = directory(&files);
    let server = Server::start(Some(directory.path()), &["--threads", "2"]);
    let learn = |method: &str, target: &str, more: &str| {
        Exchange::learn(server.address(), method, target, more)
    };
    let mut exchanges: Vec<_> = names
        .iter()
        .map(|name| learn("GET", &format!("/{name}"), ""))
        .collect();
    exchanges.extend([
        learn("HEAD", "/f6000", ""),
        learn("GET", "/none", ""),
        learn("GET", "/f30000", "Range: bytes=100-20000\r\n"),
        learn("GET", "/f70000", "Range: bytes=-65537\r\n"),
        learn("GET", "/f1000", "If-None-Match: *\r\n"),
        learn("OPTIONS", "/f1", ""),
    ]);
    let campaign = Campaign {
        address: server.address(),
        exchanges,
        left: AtomicU64::new(requests),
        complete: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        sessions: AtomicU64::new(0),
        faulty: AtomicU64::new(0),
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        for worker in 0..4 {
            let campaign = &campaign;
            scope.spawn(move || campaign.work(seed.wrapping_add(worker)));
        }
    });
    println!(
        "{} complete responses, {} sessions of which {} faulty, {} MB, all as they should be, in {:.1?}",
        campaign.complete.into_inner(),
        campaign.sessions.into_inner(),
        campaign.faulty.into_inner(),
        campaign.bytes.into_inner() >> 20,
        begun.elapsed()
    );
}
