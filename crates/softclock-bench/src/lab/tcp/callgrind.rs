//! The instructions that the server of `softclock serve` executes for a request, counted by callgrind.
//!
//! They are the program's own: those of the kernel are not among them, so that a server on the kernel has fewer than
//! one that brings its own TCP. Starting and ending cancel out in the difference between many requests and few.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use softclock_testing::lab::Namespace;

use crate::servers::{Server, StackArguments, readable_by_all, softclock_command, version};

/// The stack of the counted server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// Its own, on a TAP device: callgrind does not know all calls of AF_XDP.
    Own,
    /// The kernel's.
    Kernel,
}

/// Checks that callgrind is installed.
///
/// # Errors
/// The missing program, as the end of a sentence.
pub fn check() -> Result<(), String> {
    match version("valgrind", "--version") {
        Some(_) => Ok(()),
        None => Err("valgrind is not installed (Debian's package valgrind)".to_owned()),
    }
}

impl Counted {
    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "softclock, own stack, TAP",
            Self::Kernel => "softclock, kernel",
        }
    }

    /// Returns the instructions for a request of the bundled page on one connection, by the difference between `many`
    /// and `few` requests.
    ///
    /// # Errors
    /// The server does not start or answer.
    pub fn instructions(self, few: u32, many: u32) -> io::Result<f64> {
        let (few_total, many_total) = (self.total(few)?, self.total(many)?);
        Ok((many_total as f64 - few_total as f64) / f64::from(many - few))
    }

    /// The instructions of a whole process that answers so many requests.
    fn total(self, requests: u32) -> io::Result<u64> {
        let namespace = Namespace::new().map_err(io::Error::other)?;
        namespace.run("ip link set lo up")?;
        let directory = tempfile::tempdir()?;
        readable_by_all(directory.path())?;
        let counts = directory.path().join("callgrind.out");
        let address = self.address();
        let connects = || {
            if self == Self::Own {
                // Fails until the server has created the device, and when it has the address already.
                let _ = namespace.run(&format!("ip addr add {CLIENT}/24 dev {TAP}"));
            }
            let connect = || TcpStream::connect_timeout(&address, PATIENCE);
            matches!(namespace.inside(connect), Ok(Ok(_)))
        };
        let command = |_: &Path| self.command(&counts);
        let server = Server::start_in(&namespace, address, command, connects)?;
        namespace.inside(|| request(address, requests))??;
        // Writes the counts at its end.
        drop(server);
        let text = fs::read_to_string(&counts)?;
        total_of(&text).ok_or_else(|| io::Error::other("callgrind's output has no total"))
    }

    fn address(self) -> SocketAddr {
        match self {
            Self::Own => (OWN, 80).into(),
            Self::Kernel => (Ipv4Addr::LOCALHOST, 80).into(),
        }
    }

    fn command(self, counts: &Path) -> io::Result<Command> {
        let served = softclock_command(None, self.address())?;
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", counts.display()))
            .arg(served.get_program())
            .args(served.get_args());
        if self == Self::Own {
            let stack = StackArguments {
                dev: Some(format!("tap:{TAP}")),
                stack_address: format!("{OWN}/24").parse().ok(),
                link_address: None,
                gateway: None,
                packet: false,
                architecture: None,
                send_buffer: None,
                signalling: None,
                signalling_latency: None,
            };
            command.args(stack.to_words());
        }
        Ok(command)
    }
}

/// Makes so many requests, each a moment after the response to the one before, so that the server waits for it.
fn request(server: SocketAddr, requests: u32) -> io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let head = format!("GET {PATH} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..requests {
        thread::sleep(PAUSE);
        stream.write_all(head.as_bytes())?;
        let mut response = Vec::new();
        while !is_whole(&response)? {
            match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                some => response.extend_from_slice(&buffer[..some]),
            }
        }
    }
    Ok(())
}

fn is_whole(response: &[u8]) -> io::Result<bool> {
    let Some(head) = response.windows(4).position(|end| end == b"\r\n\r\n") else {
        return Ok(false);
    };
    let text = String::from_utf8_lossy(&response[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    match length.and_then(|length| length.trim().parse::<usize>().ok()) {
        Some(length) if text.starts_with("http/1.1 200 ") => {
            Ok(response.len() >= head + 4 + length)
        }
        _ => Err(io::Error::other(format!("unexpected response: {text}"))),
    }
}

/// The total of callgrind's output.
fn total_of(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.strip_prefix("totals:"));
    total?.trim().parse().ok()
}

const TAP: &str = "tap0";
const OWN: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 1);
/// Of the site that `serve` shows without a directory.
const PATH: &str = "/style.css";
const PAUSE: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_stands_in_a_line_of_its_own() {
        assert_eq!(total_of("events: Ir\n1 2\ntotals: 123\n"), Some(123));
        assert_eq!(total_of("events: Ir\n"), None);
    }

    #[test]
    fn a_response_is_whole_with_its_body() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        assert!(is_whole(response).unwrap());
        assert!(!is_whole(&response[..response.len() - 1]).unwrap());
        assert!(is_whole(b"HTTP/1.1 404 Not Found\r\n\r\n").is_err());
    }
}
