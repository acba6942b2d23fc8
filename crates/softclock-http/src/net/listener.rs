//! Sockets that listen: bound on one thread, where mistakes can still be told, and handed to those that accept.

mod share;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdTcp};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::task::{Context, Poll};

use softclock::net::{
    Family, Inherited, ListenOptions, TcpListener, UnixListener, bind_tcp, bind_unix,
    take_inherited,
};

use crate::error::StartError;
use crate::net::address::{ListenAddress, Place};
use crate::net::carrier::{Carrier, Peer};
use share::{Either, Open, Share, SocketPath, WeakShare};

/// A socket that listens but belongs to no thread yet.
#[derive(Debug)]
pub(crate) struct Bound {
    share: Share,
    tls: bool,
}

/// A socket that listens in the current runtime.
pub(crate) struct Listener {
    socket: Either<TcpListener, UnixListener>,
    pub(crate) tls: bool,
    /// Dropped after the thread's own handle, so that the last share is the last handle.
    _share: Option<Share>,
}

impl Bound {
    /// The address that clients use.
    pub(crate) fn local_address(&self) -> io::Result<ListenAddress> {
        Ok(ListenAddress {
            place: self.share.with(Open::place)?,
            tls: self.tls,
        })
    }

    /// Hands it to the current runtime.
    pub(crate) fn listen(self) -> io::Result<Listener> {
        let socket = self.share.with(|open| match &open.socket {
            Either::Tcp(listener) => listener
                .try_clone()
                .and_then(TcpListener::from_std)
                .map(Either::Tcp),
            Either::Unix(listener) => listener
                .try_clone()
                .and_then(UnixListener::from_std)
                .map(Either::Unix),
        });
        Ok(Listener {
            socket: socket?,
            tls: self.tls,
            _share: Some(self.share),
        })
    }
}

impl Listener {
    pub(crate) fn tcp(listener: TcpListener) -> Self {
        Self {
            socket: Either::Tcp(listener),
            tls: false,
            _share: None,
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

/// Binds addresses, and knows the sockets of all that listen.
#[derive(Debug, Default)]
pub(crate) struct Binder {
    /// Those that the service manager passed, by name; none until one is asked for.
    inherited: Vec<(String, Share)>,
    /// Those that the process before has left, until [`settle`](Self::settle).
    left: Vec<Left>,
    /// The sockets of places bound before, as long as a thread has them open.
    known: Vec<(Place, Vec<WeakShare>)>,
}

/// A socket that the process before has listened by.
#[derive(Debug)]
struct Left {
    place: Place,
    share: Share,
    is_used: bool,
}

impl Binder {
    /// With sockets that another process has left, by the names that [`sockets`](Self::sockets) gave them there.
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
                Err(_) => tracing::warn!(%name, "closed: a socket without a place"),
            }
        }
        binder
    }

    /// The sockets of an address, a list for each thread. Nothing listens after an error.
    ///
    /// If a thread still listens at this place, plainly or with TLS, or the process before has, its sockets are shared.
    pub(crate) fn bind(
        &mut self,
        address: &ListenAddress,
        socket_mode: u32,
        threads: usize,
    ) -> Result<Vec<Vec<Bound>>, StartError> {
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
        let shares = shares.map_err(|error| StartError::Listen(address.clone(), error))?;
        let tls = address.tls;
        let bound = |share| Bound { share, tls };
        let of_thread = |shares: Vec<Share>| shares.into_iter().map(bound).collect();
        Ok(shares.into_iter().map(of_thread).collect())
    }

    /// Returns all sockets that listen, each with a name by which another process finds it.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let place = |name: &String| Place::Systemd(Some(name.clone()));
        let passed = self.inherited.iter();
        let passed = passed.map(|(name, share)| (place(name), share.clone()));
        let all = self.open().chain(passed);
        all.map(|(place, share)| Ok((place.to_string(), share.with(Open::duplicate)?)))
            .collect()
    }

    /// Leaves the files of Unix sockets to another process.
    pub(crate) fn leave_paths(&self) {
        for (_, share) in self.open() {
            if let Some(path) = share.set_path(None) {
                path.leave();
            }
        }
    }

    /// The process before is about to end: the files of its Unix sockets are this one's, and the sockets that nothing
    /// listens by are closed.
    pub(crate) fn settle(&mut self) {
        for left in self.left.drain(..) {
            if let Place::Unix(path) = &left.place {
                left.share.set_path(SocketPath::new(path).ok());
            }
        }
    }

    /// The sockets of places that were bound, and are open.
    fn open(&self) -> impl Iterator<Item = (Place, Share)> {
        self.known.iter().flat_map(|(place, sockets)| {
            let open = sockets.iter().filter_map(WeakShare::upgrade);
            open.map(|share| (place.clone(), share))
        })
    }

    /// As many sockets as are open at the place, and otherwise new ones.
    fn bind_place(&mut self, place: &Place, mode: u32, threads: usize) -> io::Result<Vec<Share>> {
        self.known.retain_mut(|(_, sockets)| {
            sockets.retain(WeakShare::is_open);
            !sockets.is_empty()
        });
        let mut shares = self.take_left(place)?;
        if shares.is_empty() && !is_any_port(place) {
            let open = self.open().filter(|(known, _)| known == place);
            shares = open.map(|(_, share)| share).collect();
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

    /// The sockets by which the process before has listened at this place. Several listeners may have asked for any
    /// port; then these are those of one.
    fn take_left(&mut self, place: &Place) -> io::Result<Vec<Share>> {
        let mut unused = self.left.iter().filter(|left| !left.is_used);
        let Some(first) = unused.find(|left| left.place == *place) else {
            return Ok(Vec::new());
        };
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

fn inherited(inherited: Inherited) -> (String, Share) {
    let socket = match inherited.family {
        Family::Internet => Either::Tcp(inherited.fd.into()),
        Family::Unix => Either::Unix(inherited.fd.into()),
    };
    (inherited.name, Share::new(socket, None))
}

/// A list for each thread, so that each thread has a socket and each socket a thread.
fn spread(sockets: &[Share], threads: usize) -> Vec<Vec<Share>> {
    let mut lists = vec![Vec::new(); threads];
    for index in 0..sockets.len().max(threads) {
        lists[index % threads].push(sockets[index % sockets.len()].clone());
    }
    lists
}

/// A new socket for each thread; the kernel spreads connections over them (SO_REUSEPORT).
fn bind_each(place: &Place, threads: usize) -> io::Result<Vec<Share>> {
    let shared = threads > 1;
    if shared && !is_any_port(place) {
        // With SO_REUSEPORT the kernel would let us share a port with a server that is already there. A listener
        // without it tells.
        drop(tcp(place, false)?);
    }
    let mut address = ListenAddress::plain(place.clone());
    let mut sockets = Vec::new();
    while sockets.len() < threads {
        let listener = tcp(&address.place, shared)?;
        // The others share the port that the first was given.
        address = address.with_port(listener.local_addr()?.port());
        sockets.push(Share::new(Either::Tcp(listener), None));
    }
    Ok(sockets)
}

/// Whether the kernel chooses the port.
fn is_any_port(place: &Place) -> bool {
    match place {
        Place::One(address) => address.port() == 0,
        Place::All(port) => *port == 0,
        Place::Unix(_) | Place::Systemd(_) => false,
    }
}

/// All addresses are one IPv6 socket that takes IPv4 too, or an IPv4 socket on machines without IPv6.
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
            // What tells that IPv6 is missing varies with how it is; these errors do not.
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

/// Removes a socket that nobody answers at; anything else at the path is an error of the bind that follows.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = || {
        let probe = std::os::unix::net::UnixStream::connect(path);
        probe.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    if is_socket && refused() {
        tracing::info!(path = %path.display(), "removed: a socket that nobody answers at");
        fs::remove_file(path)?;
    }
    Ok(())
}

const NOTHING_PASSED: &str =
    "no such socket was passed; start it by a systemd socket unit, or listen on IP:PORT";
