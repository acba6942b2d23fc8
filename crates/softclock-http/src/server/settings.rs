//! All settings of a server, as one value that can be replaced while the server runs.

use crate::error::StartError;
use crate::exchange::live::{Live, WorkerOptions};
use crate::exchange::served::Served;
use crate::net::address::ListenAddress;
use crate::net::listener::check_distinct;
use crate::net::tls::Tls;
use crate::observe::access_log::AccessLog;
use crate::observe::metrics::endpoint::check_plain;

/// The settings of a server: the service, its addresses and its options.
///
/// [`Server::with`](crate::Server::with) starts a server with them, and [`Control::apply`](crate::Control::apply)
/// replaces those of a running one.
///
/// ```
/// use softclock_http::{Settings, Site, StartError};
///
/// let mut settings = Settings::new(Site::bundled());
/// settings.listen = vec!["127.0.0.1:8443".parse()?];
/// assert!(settings.check().is_ok());
///
/// settings.listen = vec!["tls:127.0.0.1:8443".parse()?];
/// assert!(matches!(settings.check(), Err(StartError::NoCertificate(_))));
/// # Ok::<(), softclock_http::AddressError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// The service: a site or a proxy.
    pub served: Served,
    /// The addresses to listen on; [`ListenAddress::DEFAULT`] if empty.
    pub listen: Vec<ListenAddress>,
    /// The addresses at which metrics are served, without TLS; none if empty.
    pub metrics: Vec<ListenAddress>,
    /// The permission bits of the files of Unix sockets.
    pub socket_mode: u32,
    /// The certificate and key for listeners that speak TLS.
    pub tls: Option<Tls>,
    /// The log to which each response is written, if any.
    pub access_log: Option<AccessLog>,
    /// The options of each thread. The limits of connections and of open files are for all threads together.
    pub worker: WorkerOptions,
}

impl Settings {
    /// Creates settings for a site or a proxy on the default address, without TLS, metrics or access log.
    pub fn new(served: impl Into<Served>) -> Self {
        Self {
            served: served.into(),
            listen: Vec::new(),
            metrics: Vec::new(),
            socket_mode: DEFAULT_SOCKET_MODE,
            tls: None,
            access_log: None,
            worker: WorkerOptions::default(),
        }
    }

    /// Looks for mistakes without listening. Blocks the thread while it reads error pages from the disk.
    ///
    /// # Errors
    /// Contradictions, with which no server starts: [`StartError::NoCertificate`], [`StartError::PlainOnly`],
    /// [`StartError::SlowBurst`], [`StartError::Repeated`]. Also settings that a server accepts but cannot use:
    /// [`StartError::UnusedCertificate`], [`StartError::ErrorPage`].
    pub fn check(&self) -> Result<(), StartError> {
        let settings = self.clone().checked()?;
        if settings.tls.is_some() && !settings.listen.iter().any(|address| address.tls) {
            return Err(StartError::UnusedCertificate);
        }
        match &settings.served {
            Served::Site(site) => site.check_error_pages(),
            Served::Proxy(_) => Ok(()),
        }
    }

    /// Adds the default address if there is no other, and refuses contradictory settings.
    pub(crate) fn checked(mut self) -> Result<Self, StartError> {
        if self.listen.is_empty() {
            self.listen.push(ListenAddress::DEFAULT);
        }
        let all = || self.listen.iter().chain(&self.metrics);
        check_plain(&self.metrics)?;
        if let Some(address) = all().find(|address| address.tls && self.tls.is_none()) {
            return Err(StartError::NoCertificate(address.clone()));
        }
        let pace = self.worker.pace;
        if let (Some(burst), Some(rate)) = (pace.burst, pace.rate)
            && burst < rate
        {
            return Err(StartError::SlowBurst { burst, rate });
        }
        check_distinct(all())?;
        Ok(self)
    }

    /// Returns the settings for one of `threads`: rates and open files are divided among them. A proxy takes over the upstreams of
    /// `previous` that remain.
    pub(crate) fn live(&self, threads: usize, previous: Option<&Live>) -> Live {
        let mut options = self.worker;
        // The shares are rounded down, but at least 1: a thread with a limit of 0 could not serve.
        options.pace = options.pace.for_one_of(threads);
        options.max_open_files = (options.max_open_files / threads).max(1);
        Live {
            served: self.served.live(threads, previous.map(|live| &live.served)),
            options,
            tls: self.tls.clone(),
            access_log: self.access_log.clone(),
        }
    }
}

/// The default permissions of Unix sockets: their owner and group may connect.
pub const DEFAULT_SOCKET_MODE: u32 = 0o660;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::content::Site;

    #[test]
    fn contradictions() {
        let with = |listen: &[&str], metrics: &[&str]| {
            let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
            let mut settings = Settings::new(Site::bundled());
            settings.listen = parse(listen);
            settings.metrics = parse(metrics);
            settings.checked().map(|settings| settings.listen.len())
        };
        assert_eq!(with(&[], &[]).unwrap(), 1);
        assert_eq!(
            with(&["127.0.0.1:0", "127.0.0.1:0"], &["127.0.0.1:0"]).unwrap(),
            2
        );
        assert!(matches!(
            with(&[":1", ":1"], &[]),
            Err(StartError::Repeated(_))
        ));
        assert!(matches!(
            with(&[":1"], &[":1"]),
            Err(StartError::Repeated(_))
        ));
        assert!(matches!(
            with(&["systemd", "systemd:web"], &[]),
            Err(StartError::Repeated(_))
        ));
        assert_eq!(with(&["systemd:web", "systemd:api"], &[]).unwrap(), 2);
        assert!(matches!(
            with(&["tls::1"], &[]),
            Err(StartError::NoCertificate(_))
        ));
        assert!(matches!(
            with(&[], &["tls::1"]),
            Err(StartError::PlainOnly(_))
        ));
    }

    #[test]
    fn what_a_server_starts_with_but_does_not_show() {
        let page = "404=/e.html".parse().unwrap();
        let settings = Settings::new(Site::bundled().with_error_page(page));
        let error = settings.check().unwrap_err();
        assert!(matches!(error, StartError::ErrorPage(..)), "{error}");
        assert!(settings.checked().is_ok());
    }
}
