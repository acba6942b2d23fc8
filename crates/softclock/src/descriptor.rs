//! Descriptors that the application opened: timers, pipes, devices.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use softclock_core::TriggerState;

use crate::net::Kernel;
use crate::runtime::sources::Direction;

/// A nonblocking descriptor whose readiness the runtime watches. Dropping it closes the descriptor.
pub struct Descriptor<F: AsFd = OwnedFd> {
    kernel: Kernel<F>,
}

impl<F: AsFd> Descriptor<F> {
    /// Watches `fd`, which must be nonblocking.
    ///
    /// # Errors
    /// `PermissionDenied` for files that are always ready, which cannot be watched. Fails outside a runtime.
    pub fn new(fd: F) -> io::Result<Self> {
        Ok(Self {
            kernel: Kernel::duplicated(fd)?,
        })
    }

    /// Like [`new`](Self::new), but room to write is not reported. Use it for a device that is written to without
    /// waiting, where each completed transmission would otherwise be an event.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn for_reading(fd: F) -> io::Result<Self> {
        Ok(Self {
            kernel: Kernel::for_reading(fd)?,
        })
    }

    /// Returns the descriptor.
    pub fn descriptor(&self) -> &F {
        self.kernel.descriptor()
    }

    /// Waits until the descriptor is readable and calls `call`, which reads from it, until the result is not
    /// [`io::ErrorKind::WouldBlock`]. Then passes a trigger state.
    ///
    /// # Errors
    /// Those of `call`.
    pub async fn read_with<R>(
        &self,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        poll_fn(|cx| {
            self.kernel
                .poll_call(cx, Direction::Read, TriggerState::SystemCall, &mut call)
        })
        .await
    }
}

impl<F: AsFd> fmt::Debug for Descriptor<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Descriptor")
            .field(&self.descriptor().as_fd())
            .finish()
    }
}
