//! The addresses of an upstream, shared by the threads. Helper threads resolve names again, as resolving blocks.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::url::{UpstreamAddress, UpstreamUrl};
use crate::error::StartError;

/// An upstream whose name was resolved.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) url: UpstreamUrl,
    resolved: Mutex<Resolved>,
    /// The number of requests in progress at the upstream, of all threads.
    pub(super) active: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Resolved {
    addresses: Arc<[SocketAddr]>,
    at: Instant,
    /// Whether a helper thread is resolving the name.
    in_progress: bool,
}

impl Target {
    /// Resolves the name of an upstream. Blocks the thread.
    pub(super) fn new(url: UpstreamUrl) -> Result<Arc<Self>, StartError> {
        let addresses = resolve(&url.address);
        let addresses = addresses.map_err(|error| StartError::Upstream(url.clone(), error))?;
        Ok(Arc::new(Self {
            url,
            resolved: Mutex::new(Resolved {
                addresses,
                at: Instant::now(),
                in_progress: false,
            }),
            active: Arc::default(),
        }))
    }

    /// Returns the addresses to connect to; none for Unix sockets. If they are older than `oldest`, returns them once
    /// more, and starts to resolve the name again.
    pub(super) fn addresses(self: &Arc<Self>, oldest: Duration) -> Arc<[SocketAddr]> {
        let mut resolved = self.lock();
        let is_name = matches!(self.url.address, UpstreamAddress::Name(..));
        if is_name && !oldest.is_zero() && !resolved.in_progress && resolved.at.elapsed() > oldest {
            resolved.in_progress = true;
            softclock::spawn_local(Arc::clone(self).refresh());
        }
        Arc::clone(&resolved.addresses)
    }

    async fn refresh(self: Arc<Self>) {
        let address = self.url.address.clone();
        let found = softclock::spawn_blocking(move || resolve(&address)).await;
        let mut resolved = self.lock();
        resolved.in_progress = false;
        // After an error, too, so that a failing resolver is not asked with each connection.
        resolved.at = Instant::now();
        match found {
            Ok(addresses) => resolved.addresses = addresses,
            Err(error) => {
                tracing::warn!(upstream = %self.url, %error, "cannot resolve; the old addresses stay");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Resolved> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn resolve(address: &UpstreamAddress) -> io::Result<Arc<[SocketAddr]>> {
    match address {
        UpstreamAddress::Address(address) => Ok([*address].into()),
        UpstreamAddress::Unix(_) => Ok([].into()),
        UpstreamAddress::Name(name, port) => {
            let mut found: Vec<SocketAddr> = Vec::new();
            for address in (name.as_str(), *port).to_socket_addrs()? {
                if !found.contains(&address) {
                    found.push(address);
                }
            }
            match found.is_empty() {
                true => Err(io::Error::other("the name has no address")),
                false => Ok(found.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_resolved_again_when_its_addresses_are_old() {
        softclock::Runtime::new().unwrap().block_on(async {
            let target = Target::new("http://localhost:7".parse().unwrap()).unwrap();
            let first = target.addresses(Duration::from_secs(3600));
            assert!(!first.is_empty() && first.iter().all(|address| address.port() == 7));
            let is_new = |old: &Arc<[SocketAddr]>| !Arc::ptr_eq(old, &target.lock().addresses);
            assert!(!is_new(&first));
            while !is_new(&first) {
                // There are addresses at any time.
                assert!(!target.addresses(Duration::from_nanos(1)).is_empty());
                softclock::sleep(Duration::from_millis(1)).await;
            }
        });
    }

    #[test]
    fn unknown_names_are_told_at_the_start() {
        let url = "http://no.such.name.invalid".parse().unwrap();
        let error = Target::new(url).unwrap_err().to_string();
        assert!(error.starts_with("cannot find the upstream http://no.such.name.invalid:80"));
        assert!(!error.contains('\n'));
    }
}
