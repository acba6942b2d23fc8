//! Sockets that listen: bound on one thread, where mistakes can still be told, and handed to those that accept.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdTcp};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener as StdUnix;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

use softclock::net::{
    Family, Inherited, ListenOptions, TcpListener, UnixListener, bind_tcp, bind_unix,
    take_inherited,
};

use crate::address::{ListenAddress, Place};
use crate::carrier::{Carrier, Peer};
use crate::error::StartError;

/// A socket that listens but belongs to no thread yet.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: Either<StdTcp, StdUnix>,
    tls: bool,
    path: Option<Arc<SocketPath>>,
}

/// A socket that listens in the current runtime.
pub(crate) struct Listener {
    socket: Either<TcpListener, UnixListener>,
    pub(crate) tls: bool,
    /// Removed with the last thread's listener.
    _path: Option<Arc<SocketPath>>,
}

#[derive(Debug)]
enum Either<T, U> {
    Tcp(T),
    Unix(U),
}

impl Bound {
    /// The address that clients use.
    pub(crate) fn local_address(&self) -> io::Result<ListenAddress> {
        let place = match &self.socket {
            Either::Tcp(listener) => Place::One(listener.local_addr()?),
            Either::Unix(listener) => {
                let address = listener.local_addr()?;
                Place::Unix(address.as_pathname().unwrap_or(Path::new("")).into())
            }
        };
        Ok(ListenAddress {
            place,
            tls: self.tls,
        })
    }

    /// Another handle of the same socket, for another thread: each connection goes to one of them.
    fn share(&self) -> io::Result<Self> {
        let socket = match &self.socket {
            Either::Tcp(listener) => Either::Tcp(listener.try_clone()?),
            Either::Unix(listener) => Either::Unix(listener.try_clone()?),
        };
        Ok(Self {
            socket,
            tls: self.tls,
            path: self.path.clone(),
        })
    }

    /// Hands it to the current runtime.
    pub(crate) fn listen(self) -> io::Result<Listener> {
        let socket = match self.socket {
            Either::Tcp(listener) => Either::Tcp(TcpListener::from_std(listener)?),
            Either::Unix(listener) => Either::Unix(UnixListener::from_std(listener)?),
        };
        Ok(Listener {
            socket,
            tls: self.tls,
            _path: self.path,
        })
    }
}

impl Listener {
    pub(crate) fn tcp(listener: TcpListener) -> Self {
        Self {
            socket: Either::Tcp(listener),
            tls: false,
            _path: None,
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

/// Binds addresses for a number of threads.
#[derive(Debug)]
pub(crate) struct Binder {
    threads: usize,
    inherited: Vec<(String, Bound)>,
}

impl Binder {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads,
            inherited: Vec::new(),
        }
    }

    /// The sockets of an address, a list for each thread. Nothing listens after an error.
    pub(crate) fn bind(
        &mut self,
        address: &ListenAddress,
        socket_mode: u32,
    ) -> Result<Vec<Vec<Bound>>, StartError> {
        self.try_bind(address, socket_mode)
            .map_err(|error| StartError::Listen(address.clone(), error))
    }

    fn try_bind(&mut self, address: &ListenAddress, mode: u32) -> io::Result<Vec<Vec<Bound>>> {
        let first = match &address.place {
            Place::One(_) | Place::All(_) => return self.bind_tcp(address),
            Place::Unix(path) => vec![bind_path(path, mode, address.tls)?],
            Place::Systemd(name) => self.passed(name.as_deref(), address.tls)?,
        };
        let mut all = Vec::with_capacity(self.threads);
        for _ in 1..self.threads {
            all.push(first.iter().map(Bound::share).collect::<io::Result<_>>()?);
        }
        all.push(first);
        Ok(all)
    }

    /// Each thread has its own socket, and the kernel spreads connections over them (SO_REUSEPORT).
    fn bind_tcp(&self, address: &ListenAddress) -> io::Result<Vec<Vec<Bound>>> {
        let shared = self.threads > 1;
        if shared && !matches!(address.place, Place::One(a) if a.port() == 0) {
            // With SO_REUSEPORT the kernel would let us share a port with a server that is already there. A listener
            // without it tells.
            drop(tcp(&address.place, false)?);
        }
        let mut address = address.clone();
        let mut all = Vec::with_capacity(self.threads);
        for _ in 0..self.threads {
            let listener = tcp(&address.place, shared)?;
            // The others share the port that the first was given.
            address = address.with_port(listener.local_addr()?.port());
            all.push(vec![Bound {
                socket: Either::Tcp(listener),
                tls: address.tls,
                path: None,
            }]);
        }
        Ok(all)
    }

    fn passed(&mut self, name: Option<&str>, tls: bool) -> io::Result<Vec<Bound>> {
        if self.inherited.is_empty() {
            let passed = take_inherited()?.into_iter();
            self.inherited = passed.map(inherited).collect();
        }
        let wanted = self.inherited.iter();
        let wanted = wanted.filter(|(own, _)| name.is_none_or(|name| name == own));
        let mut sockets = wanted
            .map(|(_, bound)| bound.share())
            .collect::<io::Result<Vec<_>>>()?;
        if sockets.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, NOTHING_PASSED));
        }
        sockets.iter_mut().for_each(|bound| bound.tls = tls);
        Ok(sockets)
    }
}

fn inherited(inherited: Inherited) -> (String, Bound) {
    let socket = match inherited.family {
        Family::Internet => Either::Tcp(inherited.fd.into()),
        Family::Unix => Either::Unix(inherited.fd.into()),
    };
    let bound = Bound {
        socket,
        tls: false,
        path: None,
    };
    (inherited.name, bound)
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

fn bind_path(path: &Path, mode: u32, tls: bool) -> io::Result<Bound> {
    remove_stale(path)?;
    let listener = bind_unix(path, mode)?;
    Ok(Bound {
        socket: Either::Unix(listener),
        tls,
        path: Some(Arc::new(SocketPath::new(path)?)),
    })
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

/// The path of a socket of ours, removed when it is dropped unless another has taken its place.
#[derive(Debug)]
struct SocketPath {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketPath {
    fn new(path: &Path) -> io::Result<Self> {
        let file = fs::symlink_metadata(path)?;
        Ok(Self {
            path: std::path::absolute(path)?,
            inode: (file.dev(), file.ino()),
        })
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let file = fs::symlink_metadata(&self.path);
        if file.is_ok_and(|file| (file.dev(), file.ino()) == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

const NOTHING_PASSED: &str =
    "no such socket was passed; start it by a systemd socket unit, or listen on IP:PORT";
