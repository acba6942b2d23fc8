//! What a mechanism knows of each descriptor, by the descriptor's number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::{FileType, fstat};

/// A table with a place for each descriptor number: the kernel hands out the lowest that is free, so there are few gaps.
#[derive(Debug)]
pub(super) struct Registrations<T>(Vec<Option<T>>);

impl<T> Registrations<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a descriptor; `AlreadyExists` if it is there, `PermissionDenied` if its file is always ready.
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

    /// Takes a descriptor out; `NotFound` if it is not there.
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

    /// One more than the highest number that was ever added.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The descriptor's number.
pub(super) fn index(fd: BorrowedFd<'_>) -> usize {
    usize::try_from(fd.as_raw_fd()).expect("open descriptors are not negative")
}

/// Refuses what epoll refuses: files that never wait, which other mechanisms would report for ever.
///
/// Sockets and pipes can wait; of what is rarer epoll itself is asked, if it can be had.
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
