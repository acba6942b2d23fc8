//! Cold clients: connections that are held open and send nothing, or hardly anything.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::time::Timespec;

/// The parameters of cold clients.
#[derive(Clone, Debug)]
pub struct ColdOptions {
    /// The server's address.
    pub address: SocketAddr,
    /// The number of connections.
    pub connections: usize,
    /// The interval at which each connection sends the next byte of an endless head; `None` sends nothing.
    pub dribble: Option<Duration>,
    /// The most connections per process.
    pub per_process: usize,
}

/// Connections that other processes hold until this is dropped.
#[derive(Debug)]
pub struct Cold {
    holders: Vec<Holder>,
}

#[derive(Debug)]
struct Holder {
    child: Child,
    /// Closing it ends the process.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Cold {
    /// Opens the connections, with processes of this same program, which must support the command `hold`. If the server
    /// is on the loopback interface, each process connects from a different loopback address.
    ///
    /// # Errors
    /// A process cannot be started, or not all connections were made.
    pub fn open(options: &ColdOptions) -> io::Result<Self> {
        let program = env::current_exe()?;
        let mut cold = Self {
            holders: Vec::new(),
        };
        let mut left = options.connections;
        while left > 0 {
            let count = left.min(options.per_process.max(1));
            let number = cold.holders.len();
            cold.holders
                .push(Holder::start(&program, options, number, count)?);
            left -= count;
        }
        // All processes have started and connect at the same time; only then wait for each.
        let mut made = 0;
        for holder in &mut cold.holders {
            made += holder.answer()?;
        }
        if made < options.connections {
            let wanted = options.connections;
            return Err(io::Error::other(format!(
                "only {made} of {wanted} cold connections were made; raise the limit of open files (ulimit -n) of the server"
            )));
        }
        Ok(cold)
    }

    /// Closes the connections; returns the number of those that the server had not closed.
    ///
    /// # Errors
    /// A process that held connections has died.
    pub fn close(mut self) -> io::Result<usize> {
        let mut open = 0;
        for holder in &mut self.holders {
            holder.stdin = None;
            open += holder.answer()?;
        }
        Ok(open)
    }
}

impl Holder {
    fn start(
        program: &std::path::Path,
        options: &ColdOptions,
        number: usize,
        count: usize,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command
            .args(["hold", &options.address.to_string(), &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if options.address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
            // Each address has its own range of ephemeral ports.
            let source = Ipv4Addr::new(127, 0, 1, 1 + (number % 250) as u8);
            command.args(["--from", &source.to_string()]);
        }
        if let Some(dribble) = options.dribble {
            command.args(["--dribble", &dribble.as_secs_f64().to_string()]);
        }
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().expect("piped");
        Ok(Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(stdout),
            child,
        })
    }

    /// Reads the number on the next line of the process's output.
    fn answer(&mut self) -> io::Result<usize> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        line.trim()
            .parse()
            .map_err(|_| io::Error::other("a process that held cold connections has died"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.stdin = None;
        // The process ends when its standard input is closed.
        let _ = self.child.wait();
    }
}

/// Runs in the processes behind [`Cold`]: opens connections, prints their number, and holds them until standard input
/// ends; then prints how many are still open.
///
/// # Errors
/// Standard output is closed.
pub fn hold(
    address: SocketAddr,
    count: usize,
    from: Option<IpAddr>,
    dribble: Option<Duration>,
) -> io::Result<()> {
    // The limit may stay lower; opening the connections shows it.
    softclock::fs::raise_descriptor_limit();
    let mut streams: Vec<TcpStream> = Vec::with_capacity(count);
    for _ in 0..count {
        match open(address, from) {
            Ok(stream) => streams.push(stream),
            Err(error) => {
                eprintln!("softclock-bench: cold connection to {address}: {error}");
                break;
            }
        }
    }
    say(streams.len())?;
    // The parent closes standard input to end the holding.
    let ended = thread::spawn(|| io::copy(&mut io::stdin().lock(), &mut io::sink()));
    match dribble {
        Some(period) => send_slowly(&mut streams, period, || ended.is_finished()),
        None => drop(ended.join()),
    }
    say(streams.iter().filter(|stream| is_open(stream)).count())
}

fn say(number: usize) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{number}")?;
    stdout.flush()
}

/// Opens a connection; tries again while the server's queue is full.
fn open(address: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let end = Instant::now() + PATIENCE;
    loop {
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if let Some(from) = from {
            bind(&socket, &SocketAddr::new(from, 0))?;
        }
        match connect(&socket, &address) {
            Ok(()) => {
                let stream = TcpStream::from(socket);
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Sends a byte of a head on each connection once per `period`, evenly spread over the connections.
fn send_slowly(streams: &mut [TcpStream], period: Duration, ended: impl Fn() -> bool) {
    const START: &[u8] = b"GET / HTTP/1.1\r\nX-Slow: ";
    let step = period / u32::try_from(streams.len().max(1)).unwrap_or(u32::MAX);
    let mut due = Instant::now();
    let mut round = 0;
    while !ended() {
        let byte = START.get(round).copied().unwrap_or(b'a');
        for stream in &mut *streams {
            due += step;
            let wait = due.saturating_duration_since(Instant::now());
            // Shorter waits add up until a sleep is worth its system call.
            if wait > Duration::from_millis(1) {
                thread::sleep(wait);
            }
            // If the server has closed the connection, the count at the end shows it.
            let _ = stream.write(&[byte]);
            if ended() {
                return;
            }
        }
        round += 1;
    }
}

/// Returns whether the server has neither closed the connection nor sent anything.
fn is_open(mut stream: &TcpStream) -> bool {
    let mut fds = [PollFd::new(&stream, PollFlags::IN | PollFlags::RDHUP)];
    let ready = poll(&mut fds, Some(&Timespec::default())).unwrap_or(0);
    ready == 0
        || matches!(stream.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// The default number of connections per process: within usual limits of descriptors.
pub const PER_PROCESS: usize = 5_000;

/// The time within which the server must accept a connection.
const PATIENCE: Duration = Duration::from_secs(5);
