//! Reads the current state of a descriptor.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::time::Timespec;

use super::Readiness;
use super::poll_bits::readiness;

/// Returns the current state of a descriptor. Makes one call of poll(2), and does not block.
///
/// # Errors
/// Returns ENOMEM if the kernel has no memory.
pub fn current_state(fd: BorrowedFd<'_>) -> io::Result<Readiness> {
    let wanted = PollFlags::IN | PollFlags::OUT | PollFlags::PRI | PollFlags::RDHUP;
    let mut fds = [PollFd::from_borrowed_fd(fd, wanted)];
    retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())))?;
    Ok(readiness(fds[0].revents().bits().into()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn follows_the_descriptor() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let state = || current_state(here.as_fd()).unwrap();
        assert_eq!(state(), Readiness::WRITABLE);
        there.write_all(b"x").unwrap();
        assert_eq!(state(), Readiness::WRITABLE | Readiness::READABLE);
        drop(there);
        assert!(state().contains(Readiness::READ_CLOSED | Readiness::WRITE_CLOSED));
    }
}
