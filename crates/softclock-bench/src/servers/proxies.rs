//! Reverse proxies in front of one upstream.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::softclock::events::Mechanism;
use ::softclock::fs::raise_descriptor_limit;
use ::softclock::signalling::{LatencyBound, Policy, Wakeups};

use crate::output::best_peer::{Better, Comparison};

use super::{Server, haproxy, nginx, softclock, version};

/// A proxy to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// The proxy of `softclock proxy` with its defaults, in another process of this program.
    Softclock(Mechanism),
    /// The same with epoll, woken by each event: `--signalling interrupt`.
    SoftclockWoken,
    /// The same with looks of a loaded thread in place of waits, at most 500 us apart: `--signalling automatic=deferred
    /// --signalling-latency 500us`.
    SoftclockDeferred(Mechanism),
    /// The same with epoll, and looks instead of waits, which use the whole processor: `--signalling poll`.
    SoftclockPolling,
    /// nginx with one worker.
    Nginx,
    /// HAProxy with one thread.
    HaProxy,
    /// The same with `busy-polling`, its manual's option for low latency, which uses the whole processor.
    HaProxyBusy,
}

impl ProxyKind {
    /// All proxies that sleep while idle, in the order of tables.
    pub const ALL: [Self; 9] = [
        Self::Softclock(Mechanism::Select),
        Self::Softclock(Mechanism::Poll),
        Self::OURS,
        Self::IO_URING,
        Self::SoftclockWoken,
        Self::SoftclockDeferred(Mechanism::Epoll),
        Self::SoftclockDeferred(Mechanism::IoUring),
        Self::Nginx,
        Self::HaProxy,
    ];

    /// softclock with its default mechanism.
    pub const OURS: Self = Self::Softclock(Mechanism::Epoll);

    /// softclock with io_uring, which many systems forbid.
    pub const IO_URING: Self = Self::Softclock(Mechanism::IoUring);

    /// Returns whether it needs io_uring, which many systems forbid.
    pub fn needs_io_uring(self) -> bool {
        matches!(
            self,
            Self::Softclock(Mechanism::IoUring) | Self::SoftclockDeferred(Mechanism::IoUring)
        )
    }

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softclock(Mechanism::Select) => "softclock, select",
            Self::Softclock(Mechanism::Poll) => "softclock, poll",
            Self::Softclock(Mechanism::Epoll) => "softclock, epoll",
            Self::Softclock(Mechanism::IoUring) => "softclock, io_uring",
            Self::Softclock(_) => "softclock",
            Self::SoftclockWoken => "softclock, epoll, woken by events",
            Self::SoftclockDeferred(Mechanism::IoUring) => "softclock, io_uring, deferred",
            Self::SoftclockDeferred(_) => "softclock, epoll, deferred",
            Self::SoftclockPolling => "softclock, epoll, polling",
            Self::Nginx => "nginx",
            Self::HaProxy => "HAProxy",
            Self::HaProxyBusy => "HAProxy, busy-polling",
        }
    }

    /// Returns the program's Debian package, or `None` for softclock.
    pub fn package(self) -> Option<&'static str> {
        match self {
            Self::Softclock(_)
            | Self::SoftclockWoken
            | Self::SoftclockDeferred(_)
            | Self::SoftclockPolling => None,
            Self::Nginx => Some("nginx"),
            Self::HaProxy | Self::HaProxyBusy => Some("haproxy"),
        }
    }

    /// Returns the version that the program prints, or `None` if it is not installed.
    pub fn version(self) -> Option<String> {
        match self {
            Self::Softclock(_)
            | Self::SoftclockWoken
            | Self::SoftclockDeferred(_)
            | Self::SoftclockPolling => Some(env!("CARGO_PKG_VERSION").to_owned()),
            Self::Nginx => version(nginx::program(), "-v"),
            Self::HaProxy | Self::HaProxyBusy => {
                let said = version(haproxy::program(), "-v")?;
                said.split_whitespace().nth(2).map(str::to_owned)
            }
        }
    }

    /// Returns whether the proxy's readiness mechanism supports this number of descriptors.
    pub fn can_wait_for(self, descriptors: usize) -> bool {
        self != Self::Softclock(Mechanism::Select) || descriptors + FOR_ITSELF <= FD_SETSIZE
    }

    /// Starts the proxy in front of `upstream`; it accepts connections when this returns. It stays on the processor
    /// that this thread is pinned to, and ends when this thread does.
    ///
    /// # Errors
    /// The program is not installed, does not start or does not listen; the error has its output.
    pub fn start(self, upstream: SocketAddr) -> io::Result<Server> {
        // Child processes inherit the limit.
        let descriptors = raise_descriptor_limit();
        Server::start(|address, directory| match self {
            Self::Softclock(mechanism) => {
                softclock::proxy_command(address, upstream, mechanism, Policy::default())
            }
            Self::SoftclockWoken => {
                softclock::proxy_command(address, upstream, Mechanism::Epoll, Policy::Interrupt)
            }
            Self::SoftclockDeferred(mechanism) => {
                let bound = LatencyBound::new(DEFERRED).expect("it is in the range");
                let wakeups = Wakeups::Deferred;
                let policy = Policy::Automatic { bound, wakeups };
                softclock::proxy_command(address, upstream, mechanism, policy)
            }
            Self::SoftclockPolling => {
                softclock::proxy_command(address, upstream, Mechanism::Epoll, Policy::Poll)
            }
            Self::Nginx => nginx::proxy(address, upstream, descriptors, directory),
            Self::HaProxy => haproxy::proxy(address, upstream, descriptors, "", directory),
            Self::HaProxyBusy => {
                haproxy::proxy(address, upstream, descriptors, "busy-polling", directory)
            }
        })
    }
}

/// Compares softclock with epoll, however it learns of events, and with io_uring, with the best peer.
pub const BESIDE_PEERS: Comparison = Comparison {
    is_ours: |variant| {
        let ours = [
            ProxyKind::OURS,
            ProxyKind::IO_URING,
            ProxyKind::SoftclockWoken,
            ProxyKind::SoftclockDeferred(Mechanism::Epoll),
            ProxyKind::SoftclockDeferred(Mechanism::IoUring),
            ProxyKind::SoftclockPolling,
        ];
        ours.map(ProxyKind::name).contains(&variant)
    },
    is_peer: |variant| !variant.starts_with("softclock"),
    better: |_| Some(Better::Less),
};

/// The longest time between looks of a proxy that defers its wake-ups.
const DEFERRED: Duration = Duration::from_micros(500);

/// The limit of descriptor numbers in `select`.
const FD_SETSIZE: usize = 1024;

/// Descriptors of softclock that are not connections.
const FOR_ITSELF: usize = 32;
