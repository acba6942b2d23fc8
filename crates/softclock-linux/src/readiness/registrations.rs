//! A table of the registered descriptors, indexed by their numbers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::{FileType, fstat};

/// A table with a value for each registered descriptor. The kernel hands out the lowest free number, so there are few
/// gaps.
#[derive(Debug)]
pub(super) struct Registrations<T>(Vec<Option<T>>);

impl<T> Registrations<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a descriptor. Returns `AlreadyExists` if it is in the table, and `PermissionDenied` if its file is always
    /// ready.
    pub(super) fn insert(&mut self, fd: BorrowedFd<'_>, value: T) -> io::Result<()> {
        check_can_wait(fd)?;
        let index = index(fd);
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        if self.0[index].is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.0[index] = Some(value);
        Ok(())
    }

    /// Removes a descriptor and returns its value. Returns `NotFound` if it is not in the table.
    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>) -> io::Result<T> {
        let place = self.0.get_mut(index(fd));
        place
            .and_then(Option::take)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.get_mut(index)?.as_mut()
    }

    /// The length of the table: one more than the highest number that was ever added.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The descriptor's number.
pub(super) fn index(fd: BorrowedFd<'_>) -> usize {
    usize::try_from(fd.as_raw_fd()).expect("open descriptors are not negative")
}

/// Refuses the files that epoll refuses. They are always ready, so the other mechanisms would report them again and
/// again.
///
/// Accepts sockets and pipes at once. For other files, asks epoll; accepts them if epoll is not available.
fn check_can_wait(fd: BorrowedFd<'_>) -> io::Result<()> {
    if let FileType::Socket | FileType::Fifo = FileType::from_raw_mode(fstat(fd)?.st_mode) {
        return Ok(());
    }
    let Ok(epoll) = epoll::create(CreateFlags::CLOEXEC) else {
        return Ok(());
    };
    let nothing = EventFlags::empty();
    Ok(epoll::add(epoll, fd, EventData::new_u64(0), nothing)?)
}
