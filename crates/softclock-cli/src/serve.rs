//! `softclock serve`.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process;

use softclock::signal::{Signal, Signals};
use softclock_http::{Server, Site, StartError, WorkerOptions};

use crate::cli::ServeOptions;
use crate::logging;

/// Why `softclock serve` ended with an error.
#[derive(Debug)]
pub(crate) enum ServeError {
    Start(StartError),
    Signals(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Signals(error) => write!(f, "cannot wait for signals: {error}"),
        }
    }
}

/// Serves until a signal ends it.
pub(crate) fn run(options: ServeOptions) -> Result<(), ServeError> {
    logging::start(options.verbose, options.quiet);
    // Threads inherit what is blocked here, so that the signals wait for the one that asks for them.
    let signals = Signals::block(&[Signal::Terminate, Signal::Interrupt]);
    let signals = signals.map_err(ServeError::Signals)?;
    let server = start(&options).map_err(ServeError::Start)?;
    if !options.quiet {
        announce(&options, server.local_addresses());
    }
    let cut = server.run(end_of(signals));
    if cut > 0 {
        tracing::warn!(
            connections = cut,
            "cut: they took longer than --drain allows"
        );
    }
    tracing::info!("ended");
    Ok(())
}

fn start(options: &ServeOptions) -> Result<Server, StartError> {
    let site = match &options.directory {
        Some(directory) => Site::directory(directory)?,
        None => Site::bundled(),
    };
    let descriptors = softclock::fs::raise_descriptor_limit();
    let worker = WorkerOptions {
        max_connections: options.limits.max_connections(descriptors),
        drain: options.drain,
        connection: options.limits.connection(),
    };
    let mut builder = Server::builder(site.with_index(&options.index))
        .threads(options.threads.into())
        .spin_cap(options.spin_cap)
        .worker(worker);
    for &address in &options.listen {
        builder = builder.listen(address);
    }
    builder.bind()
}

/// Ends with the first signal; the second ends the process.
async fn end_of(signals: Signals) {
    wait(&signals).await;
    tracing::info!("ending; another signal ends at once");
    softclock::spawn_local(async move {
        wait(&signals).await;
        eprintln!("softclock: ended at once by a second signal");
        process::exit(1);
    });
}

async fn wait(signals: &Signals) {
    match signals.next().await {
        Ok(signal) => tracing::info!(?signal, "signal"),
        Err(error) => {
            // Without signals only SIGKILL would end the server, so it serves on.
            tracing::error!(%error, "cannot wait for signals");
            std::future::pending().await
        }
    }
}

fn announce(options: &ServeOptions, addresses: &[SocketAddr]) {
    let what = match &options.directory {
        Some(directory) => directory.display().to_string(),
        None => "the bundled site".into(),
    };
    let mut text = format!("softclock serves {what} on\n");
    for address in addresses {
        text += &format!("  {}\n", url(*address));
    }
    text += "Ctrl-C ends it.\n";
    // Nobody may be reading; the server serves all the same.
    let _ = io::stdout().write_all(text.as_bytes());
    let _ = io::stdout().flush();
}

fn url(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        return format!(
            "http://localhost:{}/ (all addresses of this machine)",
            address.port()
        );
    }
    format!("http://{address}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        assert_eq!(url("[::1]:80".parse().unwrap()), "http://[::1]:80/");
        assert!(url("0.0.0.0:80".parse().unwrap()).starts_with("http://localhost:80/ "));
    }
}
