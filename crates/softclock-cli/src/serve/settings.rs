//! Makes the server's settings from the options.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use softclock::net::stack::{self, StackError, StackOptions, Transport};
use softclock_http::{
    AccessLog, InputKind, ListenAddress, LogTarget, Place, Settings, StartError, Tls, Validity,
    WorkerOptions,
};

use super::program::Program;
use crate::descriptors::sources_for;
use crate::logging;

/// Makes the settings that the options describe. For a reload, `previous` are the settings of the running server: its
/// access log is reused if the file is the same, and reading refuses pipes, which could block.
pub(crate) fn make(program: &Program, previous: Option<&Settings>) -> Result<Settings, StartError> {
    let input = match previous {
        Some(_) => InputKind::Regular,
        None => InputKind::Any,
    };
    let mut settings = without_log(program, input)?;
    let options = program.server();
    if let Some(path) = &options.operation.access_log {
        let target = LogTarget::from(path.as_path());
        let log = previous.and_then(|previous| previous.access_log.clone());
        // A reload keeps the open file, and with it the lines that are not written yet.
        let log = match log.filter(|log| *log.target() == target) {
            Some(log) => log.with_format(options.operation.log_format),
            None => AccessLog::open(target, options.operation.log_format)
                .map_err(|error| StartError::AccessLog(path.clone(), error))?,
        };
        settings.access_log = Some(log);
    }
    Ok(settings)
}

/// Returns the settings of the server's own network stack, if `--dev` names an interface for one.
pub(crate) fn stack(program: &Program) -> Result<Option<StackOptions>, StartError> {
    let options = program.server();
    let stack = options.stack.dev.clone().map(|dev| {
        let ports = match options.stack.shares_host() {
            true => ports_at_host(&dev, &options.listen)?,
            false => Vec::new(),
        };
        let mut stack = options.stack.options(dev, ports);
        let at = options.listen.iter().chain(&options.operation.metrics);
        // No fewer than the default, since a reload may add listeners.
        stack.listeners = stack.listeners.max(listeners(at));
        stack.tcp = options.tcp.settings();
        // Before any socket is bound.
        stack.tcp.check().map_err(StackError::Tcp)?;
        Ok(stack)
    });
    let stack = stack.transpose().map_err(StartError::Stack)?;
    match &stack {
        Some(stack) if stack.addresses.is_empty() && stack.host_ports.is_none() => {
            Err(StartError::Stack(StackError::NoAddress))
        }
        _ => Ok(stack),
    }
}

/// The most listeners of a stack for these addresses.
fn listeners<'a>(addresses: impl Iterator<Item = &'a ListenAddress>) -> u32 {
    let of = |address: &ListenAddress| match address.place {
        // One for each version of IP.
        Place::All(_) => 2,
        Place::One(_) => 1,
        _ => 0,
    };
    addresses.map(of).sum()
}

/// The ports of the addresses to listen on that a stack at the host's addresses on this interface serves.
fn ports_at_host(dev: &str, listen: &[ListenAddress]) -> Result<Vec<(Transport, u16)>, StackError> {
    let host = stack::host_addresses(dev)?;
    let is_host = |ip: IpAddr| host.iter().any(|prefix| prefix.address == ip);
    let port = |address: &ListenAddress| match address.place {
        Place::All(port) => Some(port),
        Place::One(one) if one.ip().is_unspecified() || is_host(one.ip()) => Some(one.port()),
        _ => None,
    };
    let mut ports: Vec<_> = listen.iter().filter_map(port).collect();
    ports.sort_unstable();
    ports.dedup();
    Ok(ports
        .into_iter()
        .map(|port| (Transport::Tcp, port))
        .collect())
}

/// Finds mistakes without listening or writing, and warns of a certificate that expires soon.
pub(crate) fn check(program: &Program) -> Result<(), StartError> {
    let settings = without_log(program, InputKind::Any)?;
    settings.check()?;
    stack(program)?;
    match validity(settings.tls.as_ref()) {
        Validity::Invalid(error) => return Err(StartError::Tls(error)),
        Validity::ExpiresSoon(warning) => logging::complain(&warning.to_string()),
        Validity::Valid => {}
    }
    let options = program.server();
    if let Some(path) = &options.operation.access_log
        && path != Path::new("-")
    {
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let found = directory.is_none_or(Path::is_dir);
        if !found || path.is_dir() {
            let kind = match found {
                true => io::ErrorKind::IsADirectory,
                false => io::ErrorKind::NotFound,
            };
            return Err(StartError::AccessLog(path.clone(), kind.into()));
        }
    }
    Ok(())
}

/// Returns the validity of the certificate at this time; valid if there is no certificate.
pub(crate) fn validity(tls: Option<&Tls>) -> Validity {
    tls.map_or(Validity::Valid, |tls| tls.validity(SystemTime::now()))
}

/// Logs if clients refuse the certificate, or will soon. The server uses it anyway: some clients accept it, and a
/// server that did not start would answer none.
pub(crate) fn log(validity: &Validity) {
    match validity {
        Validity::Invalid(error) => tracing::error!("{error}"),
        Validity::ExpiresSoon(warning) => tracing::warn!("{warning}"),
        Validity::Valid => {}
    }
}

fn without_log(program: &Program, input: InputKind) -> Result<Settings, StartError> {
    let options = program.server();
    let descriptors = softclock::fs::raise_descriptor_limit();
    // Connections get their descriptors first; files and upstream connections share the rest.
    let max_connections = options.limits.max_connections(descriptors);
    let max_sources = sources_for(descriptors, max_connections);
    let mut settings = Settings::new(program.served(max_sources)?);
    settings.listen.clone_from(&options.listen);
    settings.metrics.clone_from(&options.operation.metrics);
    settings.socket_mode = options.operation.socket_mode;
    settings.tls = match (&options.operation.tls_cert, &options.operation.tls_key) {
        (Some(chain), Some(key)) => Some(Tls::load(chain, key, input).map_err(StartError::Tls)?),
        _ => None,
    };
    settings.worker = WorkerOptions {
        max_connections,
        max_open_files: max_sources,
        clients: options.limits.clients(),
        drain: options.drain,
        connection: options.limits.connection(),
        pace: options.pace.pace(),
    };
    Ok(settings)
}
