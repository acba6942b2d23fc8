//! The service that answers a server's requests: a site or a proxy.

use std::rc::Rc;

use crate::proxy::forward::Forwarder;
use crate::proxy::options::Proxy;
use crate::site::content::Site;

/// The service that answers a server's requests. [`Server::builder`](crate::Server::builder) takes a [`Site`] or a
/// [`Proxy`] directly.
#[derive(Clone, Debug)]
pub enum Served {
    /// Answers with the files of a site.
    Site(Site),
    /// Forwards requests to upstreams, and answers with their responses.
    Proxy(Proxy),
}

impl Served {
    /// Returns the service of one of `threads`. A proxy takes over the upstreams of `previous` that remain.
    pub(crate) fn live(&self, threads: usize, previous: Option<&LiveServed>) -> LiveServed {
        match self {
            Self::Site(site) => LiveServed::Site(site.clone().for_one_of(threads).into()),
            Self::Proxy(proxy) => {
                let previous = previous.and_then(LiveServed::forwarder);
                let proxy = proxy.clone().for_one_of(threads);
                LiveServed::Proxy(Forwarder::new(proxy, previous).into())
            }
        }
    }
}

impl From<Site> for Served {
    fn from(site: Site) -> Self {
        Self::Site(site)
    }
}

impl From<Proxy> for Served {
    fn from(proxy: Proxy) -> Self {
        Self::Proxy(proxy)
    }
}

/// The service of one thread, made from a [`Served`].
pub(crate) enum LiveServed {
    Site(Rc<Site>),
    Proxy(Rc<Forwarder>),
}

impl LiveServed {
    pub(crate) fn forwarder(&self) -> Option<&Forwarder> {
        match self {
            Self::Site(_) => None,
            Self::Proxy(forwarder) => Some(forwarder),
        }
    }
}
