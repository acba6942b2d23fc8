//! Reads signals from a descriptor (signalfd(2)), so that an event loop can stop or reload gracefully.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// A signal that a server handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// SIGINT: the user pressed control-C.
    Interrupt,
    /// SIGTERM: the process should stop.
    Terminate,
    /// SIGHUP: the process should reload its configuration, or its terminal was closed.
    Hangup,
    /// SIGUSR1: its meaning is up to the application.
    User1,
    /// SIGUSR2: its meaning is up to the application.
    User2,
}

/// A set of blocked signals, which stay pending until a [`SignalFd`] reads them.
///
/// Dropping this value does not unblock them: a signal that is still pending would then be delivered and could end the
/// process.
///
/// # Example
/// ```no_run
/// use softclock_linux::signal::{Signal, SignalSet};
///
/// # fn main() -> std::io::Result<()> {
/// let signals = SignalSet::block(&[Signal::Terminate, Signal::Hangup])?;
/// let descriptor = signals.descriptor()?;
/// // Once the descriptor is readable:
/// while let Some(signal) = descriptor.read()? {
///     println!("received {signal:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// Blocks `signals` in the calling thread and in all threads that it starts later.
    ///
    /// Call it before starting threads: a thread that does not block a signal would have it delivered.
    pub fn block(signals: &[Signal]) -> io::Result<Self> {
        let set = sigset(signals.iter().map(|signal| signal.number()));
        change_mask(libc::SIG_BLOCK, &set)?;
        Ok(Self(set))
    }

    /// Creates a descriptor that is readable while one of the signals is pending. Add it to the poller of one thread.
    pub fn descriptor(&self) -> io::Result<SignalFd> {
        // SAFETY: the set is initialised and outlives the call; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &self.0, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so `fd` is a new descriptor without another owner.
        Ok(SignalFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// A descriptor from which the signals of a [`SignalSet`] are read.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Reads the next pending signal, or `None` if none is pending. One system call; does not block.
    pub fn read(&self) -> io::Result<Option<Signal>> {
        let mut info = [0u8; INFO_BYTES];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut info)) {
            Ok(_) => Ok(Signal::from_number(number_in(&info))),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Signal {
    const ALL: [Self; 5] = [
        Self::Interrupt,
        Self::Terminate,
        Self::Hangup,
        Self::User1,
        Self::User2,
    ];

    const fn number(self) -> libc::c_int {
        match self {
            Self::Interrupt => libc::SIGINT,
            Self::Terminate => libc::SIGTERM,
            Self::Hangup => libc::SIGHUP,
            Self::User1 => libc::SIGUSR1,
            Self::User2 => libc::SIGUSR2,
        }
    }

    fn from_number(number: libc::c_int) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|signal| signal.number() == number)
    }
}

/// Returns `ssi_signo`, the first field of `struct signalfd_siginfo` (linux/signalfd.h).
fn number_in(info: &[u8; INFO_BYTES]) -> libc::c_int {
    let [a, b, c, d, ..] = *info;
    libc::c_int::from_ne_bytes([a, b, c, d])
}

/// Returns the set of these signals. Ignores numbers that are not signals.
pub(crate) fn sigset(numbers: impl IntoIterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the whole set, and nothing reads the set before.
    let mut set: libc::sigset_t = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for number in numbers {
        // SAFETY: the set is initialised; the call refuses invalid numbers.
        unsafe { libc::sigaddset(&mut set, number) };
    }
    set
}

/// Changes the calling thread's signal mask; `how` is SIG_BLOCK, SIG_UNBLOCK or SIG_SETMASK.
pub(crate) fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is initialised and outlives the call; a null pointer asks for no old mask.
    let error = unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) };
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}

const INFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();

#[cfg(test)]
mod tests {
    use super::*;

    fn raise_here(signal: Signal) {
        // SAFETY: the signal is blocked in this thread, so it only becomes pending.
        let error = unsafe { libc::pthread_kill(libc::pthread_self(), signal.number()) };
        assert_eq!(error, 0);
    }

    #[test]
    fn blocked_signals_are_read() {
        let set = SignalSet::block(&[Signal::Terminate, Signal::User1]).unwrap();
        let signals = set.descriptor().unwrap();
        assert_eq!(signals.read().unwrap(), None);
        raise_here(Signal::User1);
        raise_here(Signal::Terminate);
        let mut read = [
            signals.read().unwrap().unwrap(),
            signals.read().unwrap().unwrap(),
        ];
        read.sort_by_key(|signal| signal.number());
        assert_eq!(read, [Signal::User1, Signal::Terminate]);
        assert_eq!(signals.read().unwrap(), None);
    }
}
