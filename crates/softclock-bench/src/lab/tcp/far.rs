//! A server behind a long path: the bridge's lab with a web server at the sender, and one transfer at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use softclock_net::stack::Architecture;

use crate::lab::bridge::{Lab, Line, Offload, SENDER, Shaped, Shaper};
use crate::servers::{Server, StackArguments, softclock_command};

/// The server of `softclock serve` at the end of a path. All ends when this is dropped.
#[derive(Debug)]
pub struct FarServer {
    _server: Server,
    address: SocketAddr,
    lab: Lab,
    /// The congestion control of the kernel's connections, as ss names it; empty with a stack of its own.
    pub congestion: String,
}

/// The stack of a [`FarServer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FarStack {
    /// Its own, by AF_XDP.
    Own,
    /// The kernel's, with this congestion control.
    Kernel(&'static str),
}

impl FarStack {
    /// Returns the name in tables.
    pub fn name(self) -> String {
        match self {
            Self::Own => "softclock, own stack".to_owned(),
            Self::Kernel(congestion) => format!("softclock, kernel, {congestion}"),
        }
    }
}

impl FarServer {
    /// Starts a server for the files of `root`. Only while a [`Shaper`] runs does the path carry frames; this returns
    /// when the server answers over one without delay.
    ///
    /// # Errors
    /// The lab cannot be created, or the server does not answer.
    pub fn start(stack: FarStack, root: &Path) -> io::Result<Self> {
        let lab = Lab::new().map_err(io::Error::other)?;
        lab.offload(Offload::None)?;
        settle_kernel(&lab, stack)?;
        let address = match stack {
            FarStack::Own => SocketAddr::new(STACK.parse().map_err(io::Error::other)?, PORT),
            FarStack::Kernel(_) => SocketAddr::new(SENDER.parse().map_err(io::Error::other)?, PORT),
        };
        let path = Shaper::Wan(Duration::ZERO).start(&lab, Line::Veth)?;
        let accepts = || {
            let connect = || TcpStream::connect_timeout(&address, PATIENCE);
            matches!(lab.receiver.inside(connect), Ok(Ok(_)))
        };
        let command = |_: &Path| {
            let mut command = softclock_command(Some(root), address)?;
            if stack == FarStack::Own {
                let stack = StackArguments {
                    dev: Some("eth0".to_owned()),
                    stack_address: format!("{STACK}/24").parse().ok(),
                    link_address: None,
                    gateway: None,
                    packet: false,
                    architecture: Some(Architecture::SoftLrp),
                    send_buffer: Some(MOST_BUFFER),
                    signalling: None,
                    signalling_latency: None,
                };
                command.args(stack.to_words());
            }
            Ok(command)
        };
        let server = Server::start_in(&lab.sender, address, command, accepts)?;
        let congestion = congestion(&lab, address)?;
        if let FarStack::Kernel(wanted) = stack
            && wanted != congestion
        {
            let error = format!("the kernel's sender uses {congestion} and not {wanted}");
            return Err(io::Error::other(error));
        }
        drop(path);
        Ok(Self {
            _server: server,
            address,
            lab,
            congestion,
        })
    }

    /// Transfers `path` over a path of this round trip for this time; returns the bits a second that the receiver got,
    /// from the request on. Then the path carries frames until the server knows that the transfer is over: its
    /// repetitions would else be the first frames of the next path, and shift which of the transfer's are lost.
    ///
    /// # Errors
    /// The path cannot be emulated, or the server does not answer.
    pub fn goodput(
        &self,
        shaper: Shaper,
        round_trip: Duration,
        path: &str,
        during: Duration,
    ) -> io::Result<f64> {
        let _shaped: Shaped = shaper.start(&self.lab, Line::Veth)?;
        let address = self.address;
        let transfer = || transfer(address, path, during);
        let goodput = self.lab.receiver.inside(transfer)??;
        // The receiver's reset for data that it has not read takes half of it, if the queue that way is empty.
        thread::sleep(round_trip + SCHEDULING);
        Ok(goodput)
    }
}

fn transfer(address: SocketAddr, path: &str, during: Duration) -> io::Result<f64> {
    let mut stream = TcpStream::connect(address)?;
    // One segment: of several, Nagle's rule would hold back all but the first for a round trip and the delay of the
    // server's acknowledgment, and the stacks differ in that delay.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let begun = Instant::now();
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        let Some(left) = during
            .checked_sub(begun.elapsed())
            .filter(|left| !left.is_zero())
        else {
            return Ok(bytes as f64 * 8.0 / during.as_secs_f64());
        };
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::Error::other("the file is too short for the time")),
            Ok(some) => bytes += some,
            Err(error) if is_over(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_over(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::WouldBlock,
        io::ErrorKind::TimedOut,
        io::ErrorKind::Interrupted,
    ];
    kinds.contains(&error.kind())
}

/// Gives both ends' kernels buffers for long paths, and the sender its congestion control.
fn settle_kernel(lab: &Lab, stack: FarStack) -> io::Result<()> {
    for host in [&lab.sender, &lab.receiver] {
        for setting in ["tcp_rmem=4096 131072", "tcp_wmem=4096 16384"] {
            let mut command = host.command("sysctl");
            let word = format!("net.ipv4.{setting} {MOST_BUFFER}");
            command.args(["-q", "-w", &word]);
            if !command.status()?.success() {
                return Err(io::Error::other("sysctl cannot set TCP's buffers"));
            }
        }
    }
    // Else a connection begins with what the kernel has learned from the one before.
    lab.sender
        .run("sysctl -q -w net.ipv4.tcp_no_metrics_save=1")?;
    if let FarStack::Kernel(congestion) = stack {
        // The namespace's default may be restricted to what the host allows; routes may name any.
        let route = format!(
            "route replace 10.77.0.0/24 dev eth0 proto kernel scope link src {SENDER} congctl {congestion}\n"
        );
        lab.sender.batch("ip", &route)?;
    }
    Ok(())
}

/// Returns the congestion control of a new connection to the server, as the sender's kernel names it; nothing if the
/// connection is not the kernel's.
fn congestion(lab: &Lab, address: SocketAddr) -> io::Result<String> {
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let _open = lab.receiver.inside(connect)??;
    let mut command = lab.sender.command("ss");
    command.args([
        "-tinH",
        "state",
        "established",
        "sport",
        "=",
        &format!(":{PORT}"),
    ]);
    let said = command.output()?.stdout;
    let said = String::from_utf8_lossy(&said);
    let known = ["cubic", "bbr", "reno"];
    let word = said.split_whitespace().find(|word| known.contains(word));
    Ok(word.unwrap_or_default().to_owned())
}

/// The address of the server's own stack.
const STACK: &str = "10.77.0.7";
const PORT: u16 = 80;
/// The most bytes that a connection buffers, whatever the stack: the default of 4 MiB is less than what a sender needs
/// to repair a loss without a pause, 1.7 windows, where the window is a bandwidth-delay product of 2.5 MB and more.
const MOST_BUFFER: u32 = 16 << 20;
/// More than a process of a busy machine waits for its processor.
const SCHEDULING: Duration = Duration::from_millis(50);
/// For the answer to one attempt to connect.
const PATIENCE: Duration = Duration::from_millis(300);
