//! The server of `softclock serve` in a process of its own: this program, run again.
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
use ::softclock::fs::raise_descriptor_limit;
use softclock_http::{Server, Settings, Site};

pub(super) fn command(root: &Path, address: SocketAddr) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").arg(address.to_string()).arg(root);
    Ok(command)
}

/// Serves `root`, or a page of its own, on one thread, with the defaults of `softclock serve`, until standard input is
/// closed. If it is to `mark` its trigger states, it stores to one address at each of them, and first shows which that is.
///
/// # Errors
/// The server's.
pub fn serve(address: SocketAddr, root: Option<&Path>, mark: bool) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit();
    let site = root.map_or(Ok(Site::bundled()), Site::directory)?;
    let mut settings = Settings::new(site);
    settings.listen.push(address.to_string().parse()?);
    settings.worker.drain = Duration::ZERO;
    let server = Server::with(settings).bind()?;
    let (closed, end) = async_channel::bounded::<()>(1);
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(closed);
    });
    server.run(async {
        if mark {
            mark_trigger_states();
        }
        // An error is what closing the channel gives.
        let _ = end.recv().await;
    });
    Ok(())
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
