//! Waits by `poll`, for comparison.
//!
//! Each wait passes all descriptors to the kernel, so its cost grows with their number. [`Armed`] turns the states that
//! poll reports into edges.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;

use super::armed::Armed;
use super::registrations::{Registrations, index};
use super::{BATCH, Readiness, ReadyEvent, Timeout, Token, poll_bits};

#[derive(Debug)]
pub(super) struct Poll {
    registered: Registrations<Armed>,
    /// The array passed to the kernel, indexed by descriptor number. The kernel skips entries with a negative
    /// descriptor.
    asked: Vec<libc::pollfd>,
    /// The index at which the next search for events begins, so that low numbers do not keep high ones waiting.
    next: usize,
}

impl Poll {
    pub(super) fn new() -> io::Result<Self> {
        let mut poll = Self {
            registered: Registrations::new(),
            asked: Vec::new(),
            next: 0,
        };
        poll.ask(Timeout::Now)?;
        Ok(poll)
    }

    pub(super) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        token: Token,
        interest: Readiness,
    ) -> io::Result<()> {
        self.registered.insert(fd, Armed::new(token, interest))?;
        self.asked.resize(self.registered.len(), SKIPPED);
        self.update(index(fd));
        Ok(())
    }

    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.registered.remove(fd)?;
        self.update(index(fd));
        Ok(())
    }

    pub(super) fn rearm(&mut self, fd: BorrowedFd<'_>, readiness: Readiness) {
        if let Some(armed) = self.registered.get_mut(index(fd)) {
            armed.rearm(readiness);
            self.update(index(fd));
        }
    }

    pub(super) fn wait(&mut self, timeout: Timeout, out: &mut Vec<ReadyEvent>) -> io::Result<()> {
        // The search ends as soon as all descriptors that the kernel counted are found.
        let mut left = self.ask(timeout)?;
        let places = self.asked.len();
        let first = self.next;
        for index in (first..places).chain(0..first.min(places)) {
            if left == 0 || out.len() == BATCH {
                break;
            }
            let found = self.asked[index].revents;
            if self.asked[index].fd >= 0 && found != 0 {
                left -= 1;
                self.next = index + 1;
                self.report(index, poll_bits::readiness(found as u16 as u32), out);
            }
        }
        Ok(())
    }

    fn report(&mut self, index: usize, readiness: Readiness, out: &mut Vec<ReadyEvent>) {
        let Some(armed) = self.registered.get_mut(index) else {
            return;
        };
        armed.on_reported(readiness);
        out.push(ReadyEvent {
            token: armed.token,
            readiness,
        });
        self.update(index);
    }

    /// Updates the entry of a descriptor to the conditions that are to be reported.
    fn update(&mut self, index: usize) {
        self.asked[index] = match self.registered.get(index).map(Armed::conditions) {
            None | Some(Readiness::NONE) => SKIPPED,
            Some(conditions) => libc::pollfd {
                fd: index as libc::c_int,
                events: poll_bits::bits(conditions) as libc::c_short,
                revents: 0,
            },
        };
    }

    /// Calls ppoll, and returns the number of descriptors for which the kernel reports something.
    fn ask(&mut self, timeout: Timeout) -> io::Result<usize> {
        let time = timeout.timespec();
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let asked = &mut self.asked;
        // SAFETY: `asked` is valid for reads and writes of `asked.len()` pollfds; `time` is null or outlives the call;
        // a null signal mask is allowed.
        let found = unsafe {
            libc::ppoll(
                asked.as_mut_ptr(),
                asked.len() as libc::nfds_t,
                time,
                ptr::null(),
            )
        };
        usize::try_from(found).map_err(|_| io::Error::last_os_error())
    }
}

const SKIPPED: libc::pollfd = libc::pollfd {
    fd: -1,
    events: 0,
    revents: 0,
};
