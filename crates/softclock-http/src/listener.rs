//! Sockets that listen: bound on one thread, where mistakes can still be told, and handed to those that accept.

mod share;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdTcp};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::task::{Context, Poll};

use softclock::net::{
    Family, Inherited, ListenOptions, TcpListener, UnixListener, bind_tcp, bind_unix,
    take_inherited,
};

use crate::address::{ListenAddress, Place};
use crate::carrier::{Carrier, Peer};
use crate::error::StartError;
use share::{Either, Share, SocketPath, WeakShare};

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
        let place = self.share.with(|open| match &open.socket {
            Either::Tcp(listener) => Ok::<_, io::Error>(Place::One(listener.local_addr()?)),
            Either::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().unwrap_or(Path::new(""));
                Ok(Place::Unix(path.into()))
            }
        });
        Ok(ListenAddress {
            place: place?,
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

/// Binds addresses for a number of threads.
#[derive(Debug)]
pub(crate) struct Binder {
    threads: usize,
    inherited: Vec<(String, Share)>,
    /// The sockets of places bound before, as long as a thread has them open.
    known: Vec<(Place, Vec<WeakShare>)>,
}

impl Binder {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads,
            inherited: Vec::new(),
            known: Vec::new(),
        }
    }

    /// The sockets of an address, a list for each thread. Nothing listens after an error.
    ///
    /// If a thread still listens at this place, plainly or with TLS, its socket is shared.
    pub(crate) fn bind(
        &mut self,
        address: &ListenAddress,
        socket_mode: u32,
    ) -> Result<Vec<Vec<Bound>>, StartError> {
        let shares = match &address.place {
            Place::Systemd(name) => {
                let passed = self.passed(name.as_deref());
                passed.map(|shares| vec![shares; self.threads])
            }
            place => {
                let shares = self.bind_place(place, socket_mode);
                shares.map(|shares| shares.into_iter().map(|share| vec![share]).collect())
            }
        };
        let shares = shares.map_err(|error| StartError::Listen(address.clone(), error))?;
        let tls = address.tls;
        let bound = |share| Bound { share, tls };
        let of_thread = |shares: Vec<Share>| shares.into_iter().map(bound).collect();
        Ok(shares.into_iter().map(of_thread).collect())
    }

    /// A socket for each thread.
    fn bind_place(&mut self, place: &Place, mode: u32) -> io::Result<Vec<Share>> {
        self.known.retain_mut(|(_, sockets)| {
            sockets.retain(WeakShare::is_open);
            !sockets.is_empty()
        });
        let known = self.known.iter().filter(|(known, _)| known == place);
        let mut open: Vec<_> = known
            .flat_map(|(_, sockets)| sockets.iter().filter_map(WeakShare::upgrade))
            .collect();
        let shares = match place {
            Place::Unix(path) => {
                let first = match open.pop() {
                    Some(share) => share,
                    None => bind_path(path, mode)?,
                };
                vec![first; self.threads]
            }
            _ => self.bind_tcp(place, open)?,
        };
        if !is_any_port(place) {
            self.known.retain(|(known, _)| known != place);
            let sockets = shares.iter().map(Share::downgrade).collect();
            self.known.push((place.clone(), sockets));
        }
        Ok(shares)
    }

    /// Returns a socket for each thread; the kernel spreads connections over them (SO_REUSEPORT). Uses those in `open`,
    /// which listen at this place already, first.
    fn bind_tcp(&self, place: &Place, mut open: Vec<Share>) -> io::Result<Vec<Share>> {
        let shared = self.threads > 1;
        if shared && open.is_empty() && !is_any_port(place) {
            // With SO_REUSEPORT the kernel would let us share a port with a server that is already there. A listener
            // without it tells.
            drop(tcp(place, false)?);
        }
        let mut address = ListenAddress::plain(place.clone());
        while open.len() < self.threads {
            let listener = tcp(&address.place, shared)?;
            // The others share the port that the first was given.
            address = address.with_port(listener.local_addr()?.port());
            open.push(Share::new(Either::Tcp(listener), None));
        }
        Ok(open)
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
