//! The servers of `softclock serve` and `softclock proxy` in a separate process: this program, started again.
//!
//! Thereby the measured server is the code of this build, not an older installed program.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use ::softclock::EventContext;
use ::softclock::events::Mechanism;
use ::softclock::fs::raise_descriptor_limit;
use softclock_http::{Proxy, ProxyOptions, Served, Server, Settings, Site};

pub(super) fn command(root: &Path, address: SocketAddr) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").arg(address.to_string()).arg(root);
    Ok(command)
}

pub(super) fn proxy_command(
    address: SocketAddr,
    upstream: SocketAddr,
    mechanism: Mechanism,
) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["proxy", &address.to_string(), &upstream.to_string()])
        .args(["--events", mechanism.name()]);
    Ok(command)
}

/// Serves `root`, or the bundled site, on one thread until standard input is closed. With `mark`, prints an address at
/// the start and stores to it at each trigger state.
///
/// # Errors
/// Those of the server.
pub fn serve(address: SocketAddr, root: Option<&Path>, mark: bool) -> Result<(), Box<dyn Error>> {
    let site = root.map_or(Ok(Site::bundled()), Site::directory)?;
    let server = Server::with(settings(site.into(), address)?).bind()?;
    run(server, || {
        if mark {
            mark_trigger_states();
        }
    });
    Ok(())
}

/// Passes requests to `upstream`, on one thread, until standard input is closed.
///
/// # Errors
/// Those of the server.
pub fn proxy(
    address: SocketAddr,
    upstream: SocketAddr,
    mechanism: Mechanism,
) -> Result<(), Box<dyn Error>> {
    let upstream = format!("http://{upstream}").parse()?;
    let proxy = Proxy::new(vec![upstream], ProxyOptions::default())?;
    let server = Server::with(settings(proxy.into(), address)?)
        .events(mechanism)
        .bind()?;
    run(server, || {});
    Ok(())
}

/// Returns the defaults, with as many connections as the process can have and a timeout of an hour for silent ones,
/// because cold connections stay for a whole measurement.
fn settings(served: Served, address: SocketAddr) -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings::new(served);
    settings.listen.push(address.to_string().parse()?);
    settings.worker.max_connections = usize::try_from(raise_descriptor_limit())?;
    settings.worker.drain = Duration::ZERO;
    settings.worker.connection.timeouts.first_byte = Some(Duration::from_secs(3600));
    Ok(settings)
}

/// Runs the server until standard input is closed; calls `first` on its runtime.
fn run(server: Server, first: impl FnOnce()) {
    let (closed, end) = async_channel::bounded::<()>(1);
    thread::spawn(move || {
        // Returns at the end of standard input.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(closed);
    });
    server.run(async {
        first();
        // Closing the channel is the signal, and arrives as an error.
        let _ = end.recv().await;
    });
}

fn mark_trigger_states() {
    println!("{}", std::ptr::from_ref(&MARK.0).addr());
    ::softclock::schedule_soft_event(0, |event: &mut EventContext<'_>| {
        MARK.0.store(1, Relaxed);
        event.reschedule(0);
    });
}

/// A mark in a separate cache line.
#[repr(align(64))]
struct Mark(AtomicU64);

static MARK: Mark = Mark(AtomicU64::new(0));
