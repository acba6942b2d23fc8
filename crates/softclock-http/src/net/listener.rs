//! Listening sockets: bound on one thread, so that errors are reported at the start, and then given to the threads that
//! accept.

mod share;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdTcp};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};

use softclock::net::{
    Family, Inherited, ListenOptions, TcpListener, UnixListener, bind_tcp, bind_unix, probe_unix,
    take_inherited,
};

use crate::error::StartError;
use crate::net::address::{ListenAddress, Place};
use crate::net::carrier::{Carrier, Peer};
use share::{Either, Open, Share, SocketPath, WeakShare};

/// A listening socket that belongs to no thread yet.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: BoundSocket,
    tls: bool,
}

#[derive(Debug)]
enum BoundSocket {
    Kernel(Share),
    /// An address of the stack of the thread's runtime, which binds it when the thread begins to listen.
    Stack(SocketAddr),
}

/// A listening socket in the current runtime.
pub(crate) struct Listener {
    socket: Either<Rc<TcpListener>, UnixListener>,
    pub(crate) tls: bool,
    /// Dropped after `socket`, the thread's own handle, so that the last share is the last handle.
    share: Option<Share>,
}

impl Bound {
    /// Returns the address that clients use, with the real port.
    pub(crate) fn local_address(&self) -> io::Result<ListenAddress> {
        let place = match &self.socket {
            BoundSocket::Kernel(share) => share.with(Open::place)?,
            BoundSocket::Stack(address) => Place::One(*address),
        };
        Ok(ListenAddress {
            place,
            tls: self.tls,
        })
    }

    /// Registers the socket with the current runtime. At an address of the stack, which has one socket there, it is the
    /// socket of the listener among `open` that has this address, if any.
    pub(crate) fn listen(self, open: &[Rc<Listener>]) -> io::Result<Listener> {
        let share = match self.socket {
            BoundSocket::Kernel(share) => share,
            BoundSocket::Stack(address) => {
                let socket = open.iter().find_map(|open| open.of_stack(address));
                let bind = || TcpListener::bind(address).map(Rc::new);
                return Ok(Listener {
                    socket: Either::Tcp(socket.map_or_else(bind, Ok)?),
                    tls: self.tls,
                    share: None,
                });
            }
        };
        let socket = share.with(|open| match &open.socket {
            Either::Tcp(listener) => listener
                .try_clone()
                .and_then(TcpListener::from_std)
                .map(|listener| Either::Tcp(Rc::new(listener))),
            Either::Unix(listener) => listener
                .try_clone()
                .and_then(UnixListener::from_std)
                .map(Either::Unix),
        });
        Ok(Listener {
            socket: socket?,
            tls: self.tls,
            share: Some(share),
        })
    }
}

impl Listener {
    pub(crate) fn tcp(listener: TcpListener) -> Self {
        Self {
            socket: Either::Tcp(Rc::new(listener)),
            tls: false,
            share: None,
        }
    }

    /// Returns whether both accept from the same queue of connections.
    pub(crate) fn shares_queue_with(&self, other: &Self) -> bool {
        if let (Either::Tcp(own), Either::Tcp(other)) = (&self.socket, &other.socket)
            && Rc::ptr_eq(own, other)
        {
            return true;
        }
        let shares = self.share.as_ref().zip(other.share.as_ref());
        shares.is_some_and(|(own, other)| own.is_same(other))
    }

    /// Returns its socket if that is the stack's at this address.
    fn of_stack(&self, address: SocketAddr) -> Option<Rc<TcpListener>> {
        match &self.socket {
            Either::Tcp(socket) if self.share.is_none() => {
                let local = socket.local_addr();
                local
                    .is_ok_and(|local| local == address)
                    .then(|| Rc::clone(socket))
            }
            _ => None,
        }
    }

    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Carrier, Peer)>> {
        match &self.socket {
            Either::Tcp(listener) => listener
                .poll_accept(cx)
                .map_ok(|(stream, peer)| (Carrier::Tcp(stream), Peer::Internet(peer.ip()))),
            Either::Unix(listener) => listener
                .poll_accept(cx)
                .map_ok(|stream| (Carrier::Unix(stream), Peer::Local)),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<(Carrier, Peer)> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }
}

/// Binds addresses, and keeps track of all listening sockets so that they can be shared and handed over.
#[derive(Debug, Default)]
pub(crate) struct Binder {
    /// Sockets that the service manager passed, by name; empty until one is first used.
    inherited: Vec<(String, Share)>,
    /// Sockets that the previous process handed over, until [`settle`](Self::settle).
    left: Vec<Left>,
    /// The sockets of bound places, as long as a thread has them open.
    known: Vec<(Place, Vec<WeakShare>)>,
    /// The addresses of the runtime's own stack, which serves them in place of the kernel.
    stack: Vec<IpAddr>,
    /// The ports of the stack at these addresses; `None` for all.
    stack_ports: Option<Vec<u16>>,
    /// Whether several threads divide the connections of the stack.
    is_divided: bool,
}

/// A listening socket that the previous process handed over.
#[derive(Debug)]
struct Left {
    place: Place,
    share: Share,
    is_used: bool,
}

impl Binder {
    /// Creates a binder with sockets that another process hands over, named by [`sockets`](Self::sockets) there.
    pub(crate) fn taking_over(sockets: Vec<Inherited>) -> Self {
        let mut binder = Self::default();
        for socket in sockets {
            let (name, share) = inherited(socket);
            match name.parse() {
                Ok(Place::Systemd(Some(name))) => binder.inherited.push((name, share)),
                Ok(place) => binder.left.push(Left {
                    place,
                    share,
                    is_used: false,
                }),
                Err(_) => {
                    tracing::warn!(%name, "closed an inherited socket: its name is not an address")
                }
            }
        }
        binder
    }

    /// Leaves these addresses, and the unspecified ones, to the stack of the runtimes; only these ports of them, if
    /// given. `threads` is the number of runtimes.
    #[must_use]
    pub(crate) fn with_stack(
        mut self,
        addresses: Vec<IpAddr>,
        ports: Option<Vec<u16>>,
        threads: usize,
    ) -> Self {
        self.stack = addresses;
        self.stack_ports = ports;
        self.is_divided = threads > 1;
        self
    }

    /// Whether several threads divide the connections to this place. A single listener would then get only those of its
    /// thread, and the others would be refused.
    pub(crate) fn divides(&self, place: &Place) -> bool {
        self.is_divided && self.of_stack(place).is_ok_and(|own| !own.is_empty())
    }

    /// Refuses addresses of which two have the same address and port of the stack, such as those of a port and of a port
    /// at any address.
    pub(crate) fn check_stack<'a>(
        &self,
        addresses: impl IntoIterator<Item = &'a ListenAddress>,
    ) -> Result<(), StartError> {
        let mut all = Vec::new();
        for address in addresses {
            let own = self.of_stack(&address.place);
            let own = own.map_err(|error| StartError::Listen(address.clone(), error))?;
            if own.iter().any(|own| all.contains(own)) {
                return Err(StartError::Repeated(address.clone()));
            }
            all.extend(own);
        }
        Ok(())
    }

    /// Returns the addresses of the stack at which it listens for this place; empty if the place is the kernel's.
    fn of_stack(&self, place: &Place) -> io::Result<Vec<SocketAddr>> {
        let any = [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        let has_version =
            |any: &IpAddr| self.stack.iter().any(|own| own.is_ipv4() == any.is_ipv4());
        let has_port = |port| {
            let ports = self.stack_ports.as_ref();
            ports.is_none_or(|ports: &Vec<u16>| ports.contains(&port))
        };
        let addresses: Vec<_> = match *place {
            Place::All(port) if !has_port(port) => Vec::new(),
            Place::One(address) if !has_port(address.port()) => Vec::new(),
            Place::All(port) => {
                let any = any.into_iter().filter(has_version);
                any.map(|address| SocketAddr::new(address, port)).collect()
            }
            Place::One(address) => {
                let ip = address.ip();
                let is_own = self.stack.contains(&ip) || (ip.is_unspecified() && has_version(&ip));
                is_own.then_some(address).into_iter().collect()
            }
            Place::Unix(_) | Place::Systemd(_) => Vec::new(),
        };
        if addresses.iter().any(|address| address.port() == 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, NO_PORT));
        }
        Ok(addresses)
    }

    /// Returns the sockets of an address, one list for each thread. After an error no socket of it is open.
    ///
    /// If a thread or the previous process still listens at this place, with TLS or without, its sockets are shared.
    pub(crate) fn bind(
        &mut self,
        address: &ListenAddress,
        socket_mode: u32,
        threads: usize,
    ) -> Result<Vec<Vec<Bound>>, StartError> {
        let failed = |error| StartError::Listen(address.clone(), error);
        let of_stack = self.of_stack(&address.place).map_err(failed)?;
        if !of_stack.is_empty() {
            let tls = address.tls;
            let bound = |address| Bound {
                socket: BoundSocket::Stack(address),
                tls,
            };
            // Each thread accepts the connections that the hash gives to it.
            let all = || of_stack.iter().copied().map(bound).collect();
            return Ok((0..threads).map(|_| all()).collect());
        }
        // All threads accept on each socket of the service manager; other sockets are distributed over the threads.
        let shares = match &address.place {
            Place::Systemd(name) => {
                let passed = self.passed(name.as_deref());
                passed.map(|shares| vec![shares; threads])
            }
            place => {
                let shares = self.bind_place(place, socket_mode, threads);
                shares.map(|shares| spread(&shares, threads))
            }
        };
        let shares = shares.map_err(failed)?;
        let tls = address.tls;
        let bound = |share| Bound {
            socket: BoundSocket::Kernel(share),
            tls,
        };
        let of_thread = |shares: Vec<Share>| shares.into_iter().map(bound).collect();
        Ok(shares.into_iter().map(of_thread).collect())
    }

    /// Returns all listening sockets, each with the name by which [`taking_over`](Self::taking_over) finds it.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let place = |name: &String| Place::Systemd(Some(name.clone()));
        let passed = self.inherited.iter();
        let passed = passed.map(|(name, share)| (place(name), share.clone()));
        let all = self.open().chain(passed);
        all.map(|(place, share)| Ok((place.to_string(), share.with(Open::duplicate)?)))
            .collect()
    }

    /// Keeps the files of Unix sockets when the sockets are closed, because another process uses them.
    pub(crate) fn leave_paths(&self) {
        for (_, share) in self.open() {
            if let Some(path) = share.set_path(None) {
                path.leave();
            }
        }
    }

    /// Sets the permissions of the files of its Unix sockets.
    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), StartError> {
        for (place, share) in self.open() {
            let set = share.with(|open| {
                open.path
                    .as_ref()
                    .map_or(Ok(()), |path| path.set_mode(mode))
            });
            set.map_err(|error| StartError::Listen(ListenAddress::plain(place), error))?;
        }
        Ok(())
    }

    /// Completes the hand-over when the previous process is about to end: takes over the files of its Unix sockets, with
    /// the permissions `mode`, and closes its sockets at places that were not bound again.
    pub(crate) fn settle(&mut self, mode: u32) {
        for left in self.left.drain(..) {
            if let Place::Unix(path) = &left.place {
                left.share.set_path(SocketPath::new(path).ok());
            }
        }
        if let Err(error) = self.set_mode(mode) {
            tracing::warn!("the socket keeps its permissions: {error}");
        }
    }

    /// Returns the open sockets of all bound places.
    fn open(&self) -> impl Iterator<Item = (Place, Share)> {
        self.known.iter().flat_map(|(place, sockets)| {
            let open = sockets.iter().filter_map(WeakShare::upgrade);
            open.map(|share| (place.clone(), share))
        })
    }

    /// Returns the open sockets at the place, or new ones.
    fn bind_place(&mut self, place: &Place, mode: u32, threads: usize) -> io::Result<Vec<Share>> {
        // Sockets whose last share is gone can be bound again.
        self.known.retain_mut(|(_, sockets)| {
            sockets.retain(WeakShare::is_open);
            !sockets.is_empty()
        });
        // Sockets of the previous process come first: clients may wait in their queues.
        let mut shares = self.take_left(place)?;
        // Each bind to port 0 gets a port of its own, so open sockets of such a place are not shared.
        if shares.is_empty() && !is_any_port(place) {
            let open = self.open().filter(|(known, _)| known == place);
            shares = open.map(|(_, share)| share).collect();
            // The entry that is added below replaces this one.
            self.known.retain(|(known, _)| known != place);
        }
        if shares.is_empty() {
            shares = match place {
                Place::Unix(path) => vec![bind_path(path, mode)?],
                _ => bind_each(place, threads)?,
            };
        }
        let sockets = shares.iter().map(Share::downgrade).collect();
        self.known.push((place.clone(), sockets));
        Ok(shares)
    }

    /// Returns the sockets by which the previous process listened at this place. If several listeners asked for port 0,
    /// returns those of one listener, which share a port.
    fn take_left(&mut self, place: &Place) -> io::Result<Vec<Share>> {
        let mut unused = self.left.iter().filter(|left| !left.is_used);
        let Some(first) = unused.find(|left| left.place == *place) else {
            return Ok(Vec::new());
        };
        // Listeners at port 0 differ by their real ports.
        let address = first.share.with(Open::place)?;
        let mut shares = Vec::new();
        for left in &mut self.left {
            if left.place == *place && left.share.with(Open::place)? == address {
                left.is_used = true;
                shares.push(left.share.clone());
            }
        }
        Ok(shares)
    }

    fn passed(&mut self, name: Option<&str>) -> io::Result<Vec<Share>> {
        // Sockets can be taken from the environment only once, so all are kept.
        if self.inherited.is_empty() {
            let passed = take_inherited()?.into_iter();
            self.inherited = passed.map(inherited).collect();
        }
        let wanted = self.inherited.iter();
        let wanted = wanted.filter(|(own, _)| name.is_none_or(|name| name == own));
        let sockets: Vec<_> = wanted.map(|(_, share)| share.clone()).collect();
        if sockets.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, NOTHING_PASSED));
        }
        Ok(sockets)
    }
}

/// Refuses addresses of which two have the same sockets.
pub(crate) fn check_distinct<'a>(
    addresses: impl IntoIterator<Item = &'a ListenAddress, IntoIter: Clone>,
) -> Result<(), StartError> {
    let mut rest = addresses.into_iter();
    while let Some(address) = rest.next() {
        // Port 0 asks for any free port, so that each such address gets another one.
        let is_free = matches!(&address.place, Place::One(one) if one.port() == 0);
        if !is_free
            && rest
                .clone()
                .any(|other| overlaps(&other.place, &address.place))
        {
            return Err(StartError::Repeated(address.clone()));
        }
    }
    Ok(())
}

/// Whether both places may have the same sockets. `systemd` stands for all that were passed, whatever their names.
fn overlaps(one: &Place, other: &Place) -> bool {
    match (one, other) {
        (Place::Systemd(None), Place::Systemd(_)) | (Place::Systemd(_), Place::Systemd(None)) => {
            true
        }
        _ => one == other,
    }
}

fn inherited(inherited: Inherited) -> (String, Share) {
    let socket = match inherited.family {
        Family::Internet => Either::Tcp(inherited.fd.into()),
        Family::Unix => Either::Unix(inherited.fd.into()),
    };
    (inherited.name, Share::new(socket, None))
}

/// Distributes the sockets so that each thread has at least one socket and each socket at least one thread.
fn spread(sockets: &[Share], threads: usize) -> Vec<Vec<Share>> {
    let mut lists = vec![Vec::new(); threads];
    for index in 0..sockets.len().max(threads) {
        lists[index % threads].push(sockets[index % sockets.len()].clone());
    }
    lists
}

/// Binds a socket for each thread; the kernel distributes connections over them (SO_REUSEPORT).
fn bind_each(place: &Place, threads: usize) -> io::Result<Vec<Share>> {
    let shared = threads > 1;
    if shared && !is_any_port(place) {
        // SO_REUSEPORT would let this process share the port with a server of the same user. A probe without it fails
        // if the port is in use.
        drop(tcp(place, false)?);
    }
    let mut address = ListenAddress::plain(place.clone());
    let mut sockets = Vec::new();
    while sockets.len() < threads {
        let listener = tcp(&address.place, shared)?;
        // The other sockets use the port that the kernel chose for the first.
        address = address.with_port(listener.local_addr()?.port());
        sockets.push(Share::new(Either::Tcp(listener), None));
    }
    Ok(sockets)
}

/// Returns whether the kernel chooses the port.
fn is_any_port(place: &Place) -> bool {
    match place {
        Place::One(address) => address.port() == 0,
        Place::All(port) => *port == 0,
        Place::Unix(_) | Place::Systemd(_) => false,
    }
}

/// Binds a TCP socket. For all addresses this is one IPv6 socket that also accepts IPv4, or an IPv4 socket if the
/// machine has no IPv6.
fn tcp(place: &Place, reuse_port: bool) -> io::Result<StdTcp> {
    let options = |v6_only| ListenOptions {
        reuse_port,
        v6_only: Some(v6_only),
        ..ListenOptions::default()
    };
    let any = |port, v6| match v6 {
        true => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        false => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
    };
    match *place {
        Place::One(address) => bind_tcp(address, &options(true)),
        Place::All(port) => match bind_tcp(any(port, true), &options(false)) {
            // The error without IPv6 depends on how it is disabled, but it is never one of the final ones.
            Err(error) if !is_final(&error) => bind_tcp(any(port, false), &options(true)),
            result => result,
        },
        Place::Unix(_) | Place::Systemd(_) => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn is_final(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
    )
}

fn bind_path(path: &Path, mode: u32) -> io::Result<Share> {
    remove_stale(path)?;
    let listener = bind_unix(path, mode)?;
    let path = SocketPath::new(path)?;
    Ok(Share::new(Either::Unix(listener), Some(path)))
}

/// Removes a socket file whose server is gone. Leaves any other file, on which the bind that follows fails.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused =
        || probe_unix(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && refused() {
        tracing::info!(path = %path.display(), "removed a stale socket");
        fs::remove_file(path)?;
    }
    Ok(())
}

const NO_PORT: &str = "a listener of the stack needs a port other than 0";

const NOTHING_PASSED: &str =
    "no such socket was passed; start it by a systemd socket unit, or listen on IP:PORT";
