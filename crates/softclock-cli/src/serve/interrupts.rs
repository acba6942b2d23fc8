//! Delays the interrupts of an interface for a server on the kernel's sockets.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use softclock::signalling::Policy;
use softclock_linux::link::{DelayError, DelayedInterrupts, InterruptDelay, Link};

use crate::options::ServerOptions;

/// A delay that ends when this is dropped.
pub(super) struct Delayed {
    _held: Arc<Mutex<Option<DelayedInterrupts>>>,
}

/// Why the interrupts cannot be delayed.
#[derive(Debug)]
pub(crate) enum InterruptsError {
    /// `--napi` was given without an interface.
    NoInterface,
    /// `--napi` has `suspend`, without `--busy-poll`.
    NoBusyPoll,
    /// `--busy-poll` was given with a policy whose looks do not wait.
    NoWaits(Policy),
    Find(String, io::Error),
    Delay(String, DelayError),
}

/// Checks, without changing anything, that the options name an interface to delay the interrupts of, and fit together.
///
/// # Errors
/// [`InterruptsError::NoInterface`], [`InterruptsError::NoBusyPoll`] or [`InterruptsError::NoWaits`].
pub(super) fn check(options: &ServerOptions) -> Result<(), InterruptsError> {
    let has_interface = options.napi_dev.is_some() || options.stack.dev.is_some();
    if options.stack.napi.is_some() && !has_interface {
        return Err(InterruptsError::NoInterface);
    }
    let Some(_) = options.busy_poll else {
        let is_suspended = |delay: InterruptDelay| !delay.suspension.is_zero();
        return match options.stack.napi.is_some_and(is_suspended) {
            true => Err(InterruptsError::NoBusyPoll),
            false => Ok(()),
        };
    };
    // With a stack, the policy is that of its frames, and the kernel's events end waits.
    let policy = options.stack.policy();
    match policy.is_always_woken() || options.stack.dev.is_some() {
        true => Ok(()),
        false => Err(InterruptsError::NoWaits(policy)),
    }
}

/// Delays the interrupts that the options name. `None` if they name none, or leave them to the stack.
///
/// A process that replaces another waits, in a thread, for the end of the other's delay, which it could not undo.
pub(super) fn delay(
    options: &ServerOptions,
    is_replacement: bool,
) -> Result<Option<Delayed>, InterruptsError> {
    let (Some(delay), Some(name)) = (options.stack.napi, &options.napi_dev) else {
        return Ok(None);
    };
    let link = Link::named(name).map_err(|error| InterruptsError::Find(name.clone(), error))?;
    let held = match DelayedInterrupts::set(&link, delay) {
        Ok(delayed) => Arc::new(Mutex::new(Some(delayed))),
        Err(DelayError::Held(_)) if is_replacement => {
            let held = Arc::default();
            wait_for(link, delay, Arc::clone(&held));
            held
        }
        Err(error) => return Err(InterruptsError::Delay(name.clone(), error)),
    };
    Ok(Some(Delayed { _held: held }))
}

/// Sets the delay once no other process does. Gives up if the server has ended, or at any other error.
fn wait_for(link: Link, delay: InterruptDelay, held: Arc<Mutex<Option<DelayedInterrupts>>>) {
    thread::spawn(move || {
        while Arc::strong_count(&held) > 1 {
            match DelayedInterrupts::set(&link, delay) {
                Ok(delayed) => {
                    *held.lock().unwrap_or_else(PoisonError::into_inner) = Some(delayed);
                    return;
                }
                Err(DelayError::Held(_)) => thread::sleep(PAUSE),
                Err(error) => {
                    let interface = link.name();
                    tracing::error!(%interface, %error, "cannot delay interrupts");
                    return;
                }
            }
        }
    });
}

impl fmt::Display for InterruptsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface => f.write_str("--napi needs --napi-dev IF, or --dev"),
            Self::NoBusyPoll => f.write_str(
                "suspend=TIME of --napi needs --busy-poll TIME: only waits that poll suspend interrupts",
            ),
            Self::NoWaits(policy) => write!(
                f,
                "--busy-poll polls in waits, and with --signalling {policy} a thread looks instead: use automatic, \
                 interrupt, hybrid or soft-poll"
            ),
            Self::Find(interface, error) => write!(f, "cannot find interface {interface}: {error}"),
            Self::Delay(interface, error) => {
                write!(f, "cannot delay the interrupts of {interface}: {error}")
            }
        }
    }
}

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
