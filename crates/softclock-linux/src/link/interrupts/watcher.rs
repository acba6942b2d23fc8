//! A child process that undoes settings if this process ends without doing so.
//!
//! The child is a fork that executes no program, since a library cannot rely on an installed one. It waits for the end of
//! a socket whose other end only the parent has. The parent lets it undo the settings at an orderly end, too, besides
//! doing so itself: it may have lost the permission by then, and the child may have been killed.

use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;

use super::Undo;

/// The child, seen from the parent.
#[derive(Debug)]
pub(super) struct Watcher {
    process: libc::pid_t,
    parent_end: UnixStream,
}

impl Watcher {
    /// Starts the child. It keeps `claim` open until it ends.
    ///
    /// # Errors
    /// Those of socketpair(2) and fork(2).
    pub(super) fn start(claim: BorrowedFd<'_>, undo: &Undo) -> io::Result<Self> {
        let (parent_end, child_end) = UnixStream::pair()?;
        let watched = child_end.as_raw_fd();
        let mut kept: Vec<RawFd> = undo.descriptors().map(|file| file.as_raw_fd()).collect();
        kept.extend([watched, claim.as_raw_fd()]);
        kept.sort_unstable();
        let signals = Blocked::all()?;
        // SAFETY: the child makes only system calls that are async-signal-safe, on memory made before, and never
        // returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(watched, parent_end.as_raw_fd(), &kept, undo),
            process => {
                drop(signals);
                Ok(Self {
                    process,
                    parent_end,
                })
            }
        }
    }

    /// The child's id.
    #[cfg(test)]
    pub(super) const fn process(&self) -> libc::pid_t {
        self.process
    }

    /// Makes the child undo the settings and end, and waits for that.
    pub(super) fn end(&mut self) {
        // It fails if the child was killed.
        let _ = self.parent_end.shutdown(Shutdown::Write);
        loop {
            // SAFETY: a null pointer asks for no status.
            let ended = unsafe { libc::waitpid(self.process, ptr::null_mut(), 0) };
            // Another error is ECHILD: the program ignores SIGCHLD, or has waited for all children.
            if ended != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }
}

/// The code of the child. Makes only system calls: another thread of the parent may have held any lock at the fork, the
/// allocator's included.
fn watch(parent: RawFd, parent_end: RawFd, kept: &[RawFd], undo: &Undo) -> ! {
    // SAFETY: the arguments are integers, constant strings, and a buffer of one byte; the descriptors that are closed
    // are not used by this process.
    unsafe {
        // Otherwise a SIGKILL to the process group of the parent would end the child, too.
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"softclock-undo".as_ptr());
        libc::chdir(c"/".as_ptr());
        // Whatever else stays open: with this the child would wait for itself.
        libc::close(parent_end);
        close_others(kept);
        let mut byte = 0u8;
        // No signal interrupts it: all are blocked.
        libc::read(parent, (&raw mut byte).cast(), 1);
        undo.run();
        libc::_exit(0)
    }
}

/// Closes all descriptors but these, which are in ascending order: a port, a pipe or a device that the parent had open
/// must not outlive it.
///
/// # Safety
/// No code of this process uses the other descriptors afterwards.
unsafe fn close_others(kept: &[RawFd]) {
    let mut first = 0;
    for &kept in kept {
        if kept > first {
            // SAFETY: the caller's promise.
            unsafe { close_range(first, kept - 1) };
        }
        first = kept + 1;
    }
    // SAFETY: as above.
    unsafe { close_range(first, RawFd::MAX) };
}

/// Closes the descriptors from `first` to `last`.
///
/// # Safety
/// No code of this process uses them afterwards.
unsafe fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: the caller's promise.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // Before Linux 5.9, or in a sandbox that does not know the call.
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills the structure in.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let end = RawFd::try_from(limit.rlim_cur).unwrap_or(RawFd::MAX);
    for fd in first..=last.min(end) {
        // SAFETY: the caller's promise.
        unsafe { libc::close(fd) };
    }
}

/// All signals, blocked in the calling thread until this is dropped. The child starts with all signals blocked, and
/// never unblocks them.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> io::Result<Self> {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both calls fill in the sets that they are given.
        let result = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
        };
        match result {
            // SAFETY: the call has filled it in.
            0 => Ok(Self(unsafe { before.assume_init() })),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel has filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
