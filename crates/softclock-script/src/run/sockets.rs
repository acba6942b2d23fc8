//! Each system call, apart from the options of sockets.

use std::net::{IpAddr, SocketAddr};

use super::call::Outcome;
use super::constants::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, O_NONBLOCK, O_RDWR, value};
use super::flow::{Flow, pattern};
use super::{Runner, Stop};
use crate::errno::Errno;
use crate::host::{Host, Refusal, SocketId, SocketOptions, State};
use crate::syntax::{Call, Expression, ResultValue};

/// A socket of the script.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    pub(super) socket: Socket,
    pub(super) options: SocketOptions,
    is_nonblocking: bool,
    is_read_closed: bool,
    /// The bytes that the program has read, and those that it has written.
    read: u32,
    written: u32,
}

/// What a socket is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Socket {
    /// Neither a listener nor connected; with the address to which it is bound.
    Fresh(Option<SocketAddr>),
    Listener(SocketId),
    Connection(SocketId),
}

impl Descriptor {
    fn new(socket: Socket, options: SocketOptions) -> Self {
        Self {
            socket,
            options,
            is_nonblocking: false,
            is_read_closed: false,
            read: 0,
            written: 0,
        }
    }

    fn connection(&self) -> Result<SocketId, Refusal> {
        match self.socket {
            Socket::Connection(id) => Ok(id),
            Socket::Fresh(_) | Socket::Listener(_) => Err(Errno::ENOTCONN.into()),
        }
    }
}

impl<H: Host> Runner<'_, H> {
    /// Tries to make a call. `progress` are the bytes that an earlier attempt of a write has written.
    pub(super) fn attempt(
        &mut self,
        call: &Call,
        progress: &mut usize,
        is_retry: bool,
    ) -> Result<Outcome, Stop> {
        let argument = |index: usize| call.arguments.get(index).unwrap_or(&Expression::Any);
        // Other calls may have no socket among their arguments.
        if !CALLS.contains(&call.name.as_str()) {
            return Err(unknown(call));
        }
        if call.name == "socket" {
            return self.socket(call);
        }
        let Some(number) = value(argument(0)) else {
            return Err(Stop::Failed(format!(
                "{} needs the number of a socket",
                call.name
            )));
        };
        if !self.descriptors.contains_key(&number) {
            return Ok(Outcome::Failed(Errno::EBADF));
        }
        match call.name.as_str() {
            "bind" => self.bind(number, argument(1)),
            "listen" => self.listen(number, value(argument(1))),
            "accept" | "accept4" => self.accept(number, call),
            "connect" => self.connect(number, argument(1), is_retry),
            "read" => self.read(number, value(argument(2)), 0),
            "recv" => {
                let flags = flags(call, MSG_PEEK | MSG_DONTWAIT | MSG_NOSIGNAL)?;
                self.read(number, value(argument(2)), flags)
            }
            "write" => self.write(number, value(argument(2)), 0, progress),
            "send" => {
                let flags = flags(call, MSG_DONTWAIT | MSG_NOSIGNAL)?;
                self.write(number, value(argument(2)), flags, progress)
            }
            "shutdown" => self.shutdown(number, argument(1)),
            "close" => self.close(number),
            "fcntl" => self.fcntl(number, argument(1), value(argument(2))),
            "ioctl" => self.ioctl(number, argument(1), argument(2)),
            "getsockopt" => self.getsockopt(number, call),
            "setsockopt" => self.setsockopt(number, call),
            _ => Err(unknown(call)),
        }
    }

    pub(super) fn descriptor(&mut self, number: i64) -> Result<&mut Descriptor, Stop> {
        self.descriptors
            .get_mut(&number)
            .ok_or_else(|| Stop::Failed(format!("no socket has the number {number}")))
    }

    /// The descriptor that the script expects of a call.
    fn expected_descriptor(&self, call: &Call) -> Result<i64, Stop> {
        let number = match &call.result {
            ResultValue::Is(expected) => value(expected).filter(|number| *number >= 0),
            ResultValue::Any => None,
        };
        match number {
            Some(number) if !self.descriptors.contains_key(&number) => Ok(number),
            Some(number) => Err(Stop::Failed(format!("socket {number} is open"))),
            None => Err(Stop::Failed(format!("{} returned a socket", call.name))),
        }
    }

    fn socket(&mut self, call: &Call) -> Result<Outcome, Stop> {
        let names = |index: usize| call.arguments.get(index).map_or(Vec::new(), names);
        let mode = names(1);
        let is_known = |name: &&str| ["SOCK_STREAM", NONBLOCK, "SOCK_CLOEXEC"].contains(name);
        if !mode.contains(&"SOCK_STREAM") || !mode.iter().all(is_known) {
            return Err(Stop::not_applicable("sockets of other types"));
        }
        let protocol = names(2);
        if protocol.contains(&"IPPROTO_SCTP") || protocol.contains(&"IPPROTO_MPTCP") {
            return Err(Stop::not_applicable("sockets of other protocols"));
        }
        let number = self.expected_descriptor(call)?;
        let mut descriptor = Descriptor::new(Socket::Fresh(None), SocketOptions::default());
        descriptor.is_nonblocking = mode.contains(&NONBLOCK);
        self.descriptors.insert(number, descriptor);
        Ok(Outcome::Returned(number))
    }

    fn bind(&mut self, number: i64, address: &Expression) -> Result<Outcome, Stop> {
        let default = SocketAddr::new(self.environment.network.local, self.environment.bind_port);
        let address = socket_address(address, default);
        let descriptor = self.descriptor(number)?;
        let Socket::Fresh(bound @ None) = &mut descriptor.socket else {
            return Ok(Outcome::Failed(Errno::EINVAL));
        };
        *bound = Some(address);
        Ok(Outcome::Returned(0))
    }

    fn listen(&mut self, number: i64, backlog: Option<i64>) -> Result<Outcome, Stop> {
        let descriptor = self.descriptor(number)?;
        let Socket::Fresh(Some(local)) = descriptor.socket else {
            return Ok(Outcome::Failed(Errno::EINVAL));
        };
        let options = descriptor.options.clone();
        let backlog = usize::try_from(backlog.unwrap_or(1)).unwrap_or(0);
        let result = self.host.listen(self.now, local, backlog, &options);
        if let Ok(id) = result {
            self.descriptor(number)?.socket = Socket::Listener(id);
            // Packets from here on are for the listener, not for a connection that the host began before.
            let current = self.current;
            self.flows
                .retain(|number, flow| *number != current || flow.local.port() == local.port());
        }
        Outcome::of(result.map(|_| 0), true)
    }

    fn accept(&mut self, number: i64, call: &Call) -> Result<Outcome, Stop> {
        let descriptor = self.descriptor(number)?;
        let is_nonblocking = descriptor.is_nonblocking;
        let options = descriptor.options.clone();
        let Socket::Listener(listener) = descriptor.socket else {
            return Ok(Outcome::Failed(Errno::EINVAL));
        };
        let Some((id, _)) = self.host.accept(self.now, listener) else {
            return Outcome::of(Err(Errno::EAGAIN.into()), is_nonblocking);
        };
        let number = self.expected_descriptor(call)?;
        let mut accepted = Descriptor::new(Socket::Connection(id), options);
        // FreeBSD's accept inherits the mode; accept4 states it.
        accepted.is_nonblocking = match call.name.as_str() {
            "accept4" => {
                let flags = call.arguments.get(3).map_or(Vec::new(), names);
                flags.contains(&NONBLOCK)
            }
            _ => is_nonblocking,
        };
        self.descriptors.insert(number, accepted);
        Ok(Outcome::Returned(number))
    }

    fn connect(
        &mut self,
        number: i64,
        address: &Expression,
        is_retry: bool,
    ) -> Result<Outcome, Stop> {
        let network = &self.environment.network;
        let default = SocketAddr::new(network.remote, self.environment.connect_port);
        let remote = socket_address(address, default);
        let unknown = SocketAddr::new(network.local, 0);
        let now = self.now;
        let descriptor = self.descriptor(number)?;
        let is_nonblocking = descriptor.is_nonblocking;
        match descriptor.socket {
            Socket::Fresh(local) => {
                let options = descriptor.options.clone();
                let id = match self.host.connect(now, local, remote, &options) {
                    Ok(id) => id,
                    Err(refusal) => return Outcome::of(Err(refusal), true),
                };
                self.descriptor(number)?.socket = Socket::Connection(id);
                let flow = Flow::new(local.unwrap_or(unknown), remote);
                self.flows.insert(self.current, flow);
                match is_nonblocking {
                    true => Ok(Outcome::Failed(Errno::EINPROGRESS)),
                    false => self.connected(id),
                }
            }
            Socket::Connection(id) => match self.host.state(id) {
                State::SynSent | State::SynReceived if is_nonblocking => {
                    Ok(Outcome::Failed(Errno::EALREADY))
                }
                State::SynSent | State::SynReceived | State::Closed => self.connected(id),
                _ if is_retry => Ok(Outcome::Returned(0)),
                _ => Ok(Outcome::Failed(Errno::EISCONN)),
            },
            Socket::Listener(_) => Ok(Outcome::Failed(Errno::EOPNOTSUPP)),
        }
    }

    /// The outcome of connecting so far.
    fn connected(&mut self, id: SocketId) -> Result<Outcome, Stop> {
        if let Some(errno) = self.host.take_error(id) {
            return Ok(Outcome::Failed(errno));
        }
        Ok(match self.host.state(id) {
            State::SynSent | State::SynReceived => Outcome::Blocks,
            State::Closed => Outcome::Failed(Errno::ECONNABORTED),
            _ => Outcome::Returned(0),
        })
    }

    fn read(&mut self, number: i64, most: Option<i64>, flags: i64) -> Result<Outcome, Stop> {
        let now = self.now;
        let descriptor = self.descriptor(number)?;
        let is_nonblocking = descriptor.is_nonblocking || flags & MSG_DONTWAIT != 0;
        let most = usize::try_from(most.unwrap_or(0)).unwrap_or(0);
        if descriptor.is_read_closed {
            return Ok(Outcome::Returned(0));
        }
        let (connection, place) = (descriptor.connection(), descriptor.read);
        let id = match connection {
            Ok(id) => id,
            Err(refusal) => return Outcome::of(Err(refusal), true),
        };
        let is_peek = flags & MSG_PEEK != 0;
        let result = match is_peek {
            true => self.host.peek(now, id, most),
            false => self.host.read(now, id, most),
        };
        if let Ok(bytes) = &result {
            let expected = pattern(place, bytes.len());
            let pairs = bytes.iter().zip(&expected);
            if let Some(index) = pairs.into_iter().position(|(one, other)| one != other) {
                return Err(Stop::Failed(format!(
                    "byte {} of the stream is not what was sent",
                    u64::from(place) + index as u64
                )));
            }
            if !is_peek {
                self.descriptor(number)?.read = place.wrapping_add(bytes.len() as u32);
            }
        }
        Outcome::of(result.map(|bytes| bytes.len() as i64), is_nonblocking)
    }

    fn write(
        &mut self,
        number: i64,
        length: Option<i64>,
        flags: i64,
        progress: &mut usize,
    ) -> Result<Outcome, Stop> {
        let now = self.now;
        let descriptor = self.descriptor(number)?;
        let is_nonblocking = descriptor.is_nonblocking || flags & MSG_DONTWAIT != 0;
        let (connection, place) = (descriptor.connection(), descriptor.written);
        let id = match connection {
            Ok(id) => id,
            Err(refusal) => return Outcome::of(Err(refusal), true),
        };
        let length = usize::try_from(length.unwrap_or(0)).unwrap_or(0);
        let mut place = place;
        loop {
            let piece = length.saturating_sub(*progress).min(MOST_PIECE);
            let written = match self.host.write(now, id, &pattern(place, piece)) {
                Ok(written) => written,
                // There was room for the pieces before.
                Err(Refusal::Errno(Errno::EAGAIN)) if *progress > 0 => 0,
                Err(refusal) => return Outcome::of(Err(refusal), is_nonblocking),
            };
            place = place.wrapping_add(written as u32);
            self.descriptor(number)?.written = place;
            *progress += written;
            if *progress >= length || is_nonblocking && written < piece {
                return Ok(Outcome::Returned(*progress as i64));
            }
            if written < piece {
                return Ok(Outcome::Blocks);
            }
        }
    }

    fn shutdown(&mut self, number: i64, direction: &Expression) -> Result<Outcome, Stop> {
        let now = self.now;
        let direction = match direction {
            Expression::Name(name) => name.as_str(),
            _ => "",
        };
        let descriptor = self.descriptor(number)?;
        let id = match descriptor.connection() {
            Ok(id) => id,
            Err(refusal) => return Outcome::of(Err(refusal), true),
        };
        let (reads, writes) = match direction {
            "SHUT_RD" => (true, false),
            "SHUT_WR" => (false, true),
            "SHUT_RDWR" => (true, true),
            _ => return Ok(Outcome::Failed(Errno::EINVAL)),
        };
        descriptor.is_read_closed |= reads;
        match writes {
            true => Outcome::of(self.host.shutdown_write(now, id).map(|()| 0), true),
            false => Ok(Outcome::Returned(0)),
        }
    }

    fn close(&mut self, number: i64) -> Result<Outcome, Stop> {
        match self.descriptors.remove(&number).map(|socket| socket.socket) {
            Some(Socket::Listener(id)) => self.host.close_listener(self.now, id),
            Some(Socket::Connection(id)) => self.host.close(self.now, id),
            Some(Socket::Fresh(_)) | None => {}
        }
        Ok(Outcome::Returned(0))
    }

    fn fcntl(
        &mut self,
        number: i64,
        command: &Expression,
        argument: Option<i64>,
    ) -> Result<Outcome, Stop> {
        let descriptor = self.descriptor(number)?;
        match (command, argument) {
            (Expression::Name(name), _) if name == "F_GETFL" => {
                let mode = i64::from(descriptor.is_nonblocking) * O_NONBLOCK;
                Ok(Outcome::Returned(O_RDWR | mode))
            }
            (Expression::Name(name), Some(flags)) if name == "F_SETFL" => {
                descriptor.is_nonblocking = flags & O_NONBLOCK != 0;
                Ok(Outcome::Returned(0))
            }
            _ => Err(Stop::not_applicable("this command of fcntl")),
        }
    }

    fn ioctl(
        &mut self,
        number: i64,
        request: &Expression,
        argument: &Expression,
    ) -> Result<Outcome, Stop> {
        let now = self.now;
        let expected = super::constants::pointed_value(argument);
        let descriptor = self.descriptor(number)?;
        match request {
            Expression::Name(name) if name == "FIONBIO" => {
                descriptor.is_nonblocking = expected != Some(0);
                Ok(Outcome::Returned(0))
            }
            Expression::Name(name) if name == "FIONREAD" || name == "SIOCINQ" => {
                let readable = match descriptor.connection() {
                    Ok(id) => self.host.readable(now, id).unwrap_or(0),
                    Err(_) => 0,
                };
                match expected {
                    Some(expected) if expected != readable as i64 => {
                        Err(Stop::Failed(format!("{readable} bytes can be read")))
                    }
                    _ => Ok(Outcome::Returned(0)),
                }
            }
            _ => Err(Stop::not_applicable("this request of ioctl")),
        }
    }
}

fn unknown(call: &Call) -> Stop {
    Stop::NotApplicable(format!("system call {}", call.name))
}

/// The names of constants that are combined by `|`.
fn names(expression: &Expression) -> Vec<&str> {
    match expression {
        Expression::Name(name) => vec![name],
        Expression::Binary("|", operands) => [names(&operands.0), names(&operands.1)].concat(),
        _ => Vec::new(),
    }
}

/// The flags of `recv` or `send`, out of those that are `known`.
fn flags(call: &Call, known: i64) -> Result<i64, Stop> {
    match call.arguments.get(3).map_or(Some(0), value) {
        Some(flags) if flags & !known == 0 => Ok(flags),
        _ => Err(Stop::NotApplicable(format!("these flags of {}", call.name))),
    }
}

/// The address in an argument, or `default` where the script leaves it to the runner.
fn socket_address(argument: &Expression, default: SocketAddr) -> SocketAddr {
    let field = |names: [&str; 2]| names.iter().find_map(|name| argument.field(name));
    let port = field(["sin_port", "sin6_port"])
        .and_then(value)
        .and_then(|port| u16::try_from(port).ok());
    let address: Option<IpAddr> = match field(["sin_addr", "sin6_addr"]) {
        Some(Expression::Function(_, arguments)) => {
            arguments.iter().find_map(|argument| match argument {
                Expression::Text(text) => text.parse().ok(),
                _ => None,
            })
        }
        _ => None,
    };
    SocketAddr::new(
        address.unwrap_or(default.ip()),
        port.unwrap_or(default.port()),
    )
}

/// The flag of a socket whose calls do not wait.
const NONBLOCK: &str = "SOCK_NONBLOCK";

/// The bytes that are given to the host at once: a longer write may be longer than the memory.
const MOST_PIECE: usize = 1 << 22;

/// The system calls that the runner knows.
const CALLS: [&str; 16] = [
    "socket",
    "bind",
    "listen",
    "accept",
    "accept4",
    "connect",
    "read",
    "recv",
    "write",
    "send",
    "shutdown",
    "close",
    "fcntl",
    "ioctl",
    "getsockopt",
    "setsockopt",
];
