//! The server of `softclock serve` in a process of its own: this program, run again.
//!
//! So what is measured is what was built, and not another program that may be older.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ::softclock::fs::raise_descriptor_limit;
use softclock_http::{Server, Settings, Site};

use crate::busy_server::synthetic::{SignalTouch, SoftTouch};
use crate::busy_server::toggles::Toggle;

/// What runs beside the requests: the paper's synthetic handler, by one means or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Touch {
    /// As a soft event.
    Soft,
    /// In a signal handler.
    Signal,
}

pub(super) fn command(root: &Path, address: SocketAddr) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").arg(address.to_string()).arg(root);
    Ok(command)
}

/// Serves `root`, or a page of its own, on one thread, with the defaults of `softclock serve`, until standard input is closed. The handler, if
/// there is one, is called so many microseconds after it was called before; gives how often that was.
///
/// # Errors
/// The server's.
pub fn serve(
    address: SocketAddr,
    root: Option<&Path>,
    touch: Option<(Touch, u64)>,
) -> Result<u64, Box<dyn Error>> {
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
    let mut touched = Ok(0);
    server.run(async {
        touched = beside(touch, async {
            // An error is what closing the channel gives.
            let _ = end.recv().await;
        })
        .await;
    });
    Ok(touched?)
}

async fn beside(touch: Option<(Touch, u64)>, end: impl Future<Output = ()>) -> io::Result<u64> {
    let mut toggle: Box<dyn Toggle> = match touch {
        None => {
            end.await;
            return Ok(0);
        }
        Some((Touch::Soft, us)) => Box::new(SoftTouch::new(us)),
        Some((Touch::Signal, us)) => Box::new(SignalTouch::new(us)),
    };
    toggle.start(FOR_EVER)?;
    end.await;
    toggle.stop()
}

/// Longer than anything that is measured.
const FOR_EVER: Duration = Duration::from_secs(3600);
