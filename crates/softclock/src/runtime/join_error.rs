//! The ways in which a task ends without a result.

use std::any::Any;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

/// The reason why a task has no result: it panicked, or it was aborted.
///
/// # Example
/// ```
/// # fn main() -> std::io::Result<()> {
/// softclock::Runtime::new()?.block_on(async {
///     let mut task = softclock::spawn_local(async { panic!("no route") });
///     let error = task.outcome().await.unwrap_err();
///     assert!(error.is_panic());
///     assert_eq!(error.to_string(), "the task panicked: no route");
/// });
/// # Ok(())
/// # }
/// ```
pub struct JoinError {
    reason: Reason,
}

enum Reason {
    Aborted,
    /// In a mutex, so that the error is `Sync`, as most types of errors require.
    Panicked(Mutex<Payload>),
}

type Payload = Box<dyn Any + Send>;

impl JoinError {
    pub(crate) fn aborted() -> Self {
        Self {
            reason: Reason::Aborted,
        }
    }

    pub(crate) fn panicked(payload: Payload) -> Self {
        Self {
            reason: Reason::Panicked(Mutex::new(payload)),
        }
    }

    /// Returns whether the task was aborted, or its runtime has ended before it.
    pub fn is_aborted(&self) -> bool {
        matches!(self.reason, Reason::Aborted)
    }

    /// Returns whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.reason, Reason::Panicked(_))
    }

    /// Returns the payload of the task's panic, for [`resume_unwind`], or the error itself if the task did not panic.
    ///
    /// # Errors
    /// The error itself if the task was aborted.
    pub fn into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        match self.reason {
            Reason::Panicked(payload) => {
                Ok(payload.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
            reason => Err(Self { reason }),
        }
    }

    /// Continues the task's panic, or panics because there is no result.
    pub(crate) fn panic(self) -> ! {
        match self.into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(error) => panic!("{error}: await JoinHandle::outcome to handle that"),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason::Panicked(payload) = &self.reason else {
            return f.write_str("the task was aborted, or its runtime has ended");
        };
        let payload = payload.lock().unwrap_or_else(PoisonError::into_inner);
        match message(&**payload) {
            Some(message) => write!(f, "the task panicked: {message}"),
            None => f.write_str("the task panicked"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {}

/// Returns the message of a panic, if it was made from one.
fn message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
