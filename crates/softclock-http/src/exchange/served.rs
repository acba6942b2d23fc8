//! What a server answers requests with.

use std::rc::Rc;

use crate::proxy::forward::Forwarder;
use crate::proxy::options::Proxy;
use crate::site::content::Site;

/// What a server answers requests with: files, or the responses of others.
#[derive(Clone, Debug)]
pub enum Served {
    /// The files of a site.
    Site(Site),
    /// What upstreams answer.
    Proxy(Proxy),
}

impl Served {
    /// What one of `threads` answers with. What stays of the `previous` is taken over.
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

/// The same in one thread.
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
