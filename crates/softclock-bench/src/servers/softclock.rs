//! The servers of `softclock serve` and `softclock proxy` in a process of their own: this program, run again.
//!
//! So what is measured is what was built, and not another program that may be older.

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

/// Serves `root`, or a page of its own, on one thread, until standard input is closed. If it is to `mark` its trigger
/// states, it stores to one address at each of them, and first shows which that is.
///
/// # Errors
/// The server's.
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

/// Passes requests on to `upstream`, on one thread, until standard input is closed.
///
/// # Errors
/// The server's.
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

/// The defaults, but for as many connections as the process can have, and patience with those that send nothing: cold
/// ones stay for a whole measurement.
fn settings(served: Served, address: SocketAddr) -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings::new(served);
    settings.listen.push(address.to_string().parse()?);
    settings.worker.max_connections = usize::try_from(raise_descriptor_limit())?;
    settings.worker.drain = Duration::ZERO;
    settings.worker.connection.timeouts.first_byte = Some(Duration::from_secs(3600));
    Ok(settings)
}

/// Until standard input is closed; `first` is called on the server's runtime.
fn run(server: Server, first: impl FnOnce()) {
    let (closed, end) = async_channel::bounded::<()>(1);
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(closed);
    });
    server.run(async {
        first();
        // An error is what closing the channel gives.
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

/// In a cache line of its own.
#[repr(align(64))]
struct Mark(AtomicU64);

static MARK: Mark = Mark(AtomicU64::new(0));
