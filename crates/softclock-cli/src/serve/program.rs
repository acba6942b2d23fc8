//! The kind of server to run: of files, or a proxy.

use softclock_http::{Proxy, Served, Site, StartError};

use crate::cli::Command;
use crate::options::{ProxyOptions, ServeOptions, ServerOptions};

/// A server's options.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    Site(Box<ServeOptions>),
    Proxy(Box<ProxyOptions>),
}

impl Program {
    /// Returns the options of `command`, if it runs a server.
    pub(super) fn of(command: Command) -> Option<Self> {
        match command {
            Command::Serve(options) => Some(Self::Site(options)),
            Command::Proxy(options) => Some(Self::Proxy(options)),
            _ => None,
        }
    }

    /// Returns the options that all servers share.
    pub(super) fn server(&self) -> &ServerOptions {
        match self {
            Self::Site(options) => &options.server,
            Self::Proxy(options) => &options.server,
        }
    }

    /// Builds the site or the proxy. A proxy opens at most `max_upstream_connections`.
    pub(super) fn served(&self, max_upstream_connections: usize) -> Result<Served, StartError> {
        match self {
            Self::Site(options) => {
                let site = match &options.directory {
                    Some(directory) => Site::directory(directory)?,
                    None => Site::bundled(),
                };
                Ok(options
                    .content
                    .apply(site.with_index(&options.index))
                    .into())
            }
            Self::Proxy(options) => {
                let upstreams = &options.upstreams;
                let options = upstreams.proxy(max_upstream_connections);
                Ok(Proxy::new(upstreams.upstream.clone(), options)?.into())
            }
        }
    }

    /// Describes the site or the upstreams in a few words.
    pub(super) fn what(&self) -> String {
        match self {
            Self::Site(options) => match &options.directory {
                Some(directory) => directory.display().to_string(),
                None => "the bundled site".into(),
            },
            Self::Proxy(options) => {
                let names = options.upstreams.upstream.iter().map(ToString::to_string);
                names.collect::<Vec<_>>().join(", ")
            }
        }
    }
}
