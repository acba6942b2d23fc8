//! Signals as events of the loop.
//!
//! # Example
//! A program that ends when it is asked to, and reads its configuration again on SIGHUP:
//! ```no_run
//! use softclock::signal::{Signal, Signals};
//!
//! fn main() -> std::io::Result<()> {
//!     let signals = Signals::block(&[Signal::Terminate, Signal::Interrupt, Signal::Hangup])?;
//!     softclock::Runtime::new()?.block_on(async {
//!         // Spawn the program's tasks here.
//!         while signals.next().await? == Signal::Hangup {
//!             println!("reading the configuration");
//!         }
//!         Ok(())
//!     })
//! }
//! ```

use std::cell::OnceCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use softclock_core::TriggerState;
pub use softclock_linux::signal::Signal;
use softclock_linux::signal::{SignalFd, SignalSet};

use crate::net::Kernel;
use crate::runtime::sources::Direction;

/// A set of signals that tasks wait for, and that do not have their usual effect, such as ending the process.
///
/// Create it in `main`, before the first thread starts: threads inherit the blocked signals, and the kernel delivers
/// a signal to any thread that has not blocked it.
pub struct Signals {
    set: SignalSet,
    descriptor: OnceCell<Kernel<SignalFd>>,
}

impl Signals {
    /// Blocks `signals` in this thread, and in threads that it starts later.
    ///
    /// # Errors
    /// Those of `pthread_sigmask(3)`.
    pub fn block(signals: &[Signal]) -> io::Result<Self> {
        Ok(Self {
            set: SignalSet::block(signals)?,
            descriptor: OnceCell::new(),
        })
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// Those of `signalfd(2)`. Fails outside a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, no signal is lost.
    pub async fn next(&self) -> io::Result<Signal> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<Signal>> {
        let descriptor = match self.descriptor.get() {
            Some(descriptor) => descriptor,
            None => {
                let descriptor = Kernel::new(self.set.descriptor()?)?;
                self.descriptor.get_or_init(|| descriptor)
            }
        };
        let read = |_: BorrowedFd<'_>| {
            let signal = descriptor.descriptor().read()?;
            signal.ok_or(io::ErrorKind::WouldBlock.into())
        };
        descriptor.poll_call(cx, Direction::Read, TriggerState::SystemCall, read)
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}
