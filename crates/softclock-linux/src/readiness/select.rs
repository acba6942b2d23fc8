//! Waits by `select`, for comparison.
//!
//! It reports less than the others: the end of a stream and errors are READABLE or WRITABLE. Its sets end at descriptor
//! 1023. [`Armed`] turns the states that select reports into edges.

use std::io;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr;

use super::armed::Armed;
use super::registrations::{Registrations, index};
use super::{BATCH, Readiness, ReadyEvent, Timeout, Token};

#[derive(Debug)]
pub(super) struct Select {
    registered: Registrations<Armed>,
    /// The index at which the next search for events begins, so that low numbers do not keep high ones waiting.
    next: usize,
}

/// A set for each of [`CONDITIONS`], in the same order.
type Sets = [Set; CONDITIONS.len()];

/// The kernel's `fd_set`: a bit for each descriptor number.
#[derive(Clone, Copy)]
struct Set([libc::c_ulong; libc::FD_SETSIZE / BITS]);

impl Select {
    pub(super) fn new() -> io::Result<Self> {
        let select = Self {
            registered: Registrations::new(),
            next: 0,
        };
        select.ask(Timeout::Now)?;
        Ok(select)
    }

    /// Adds a descriptor. Returns `Unsupported` if its number is above 1023.
    pub(super) fn add(
        &mut self,
        fd: BorrowedFd<'_>,
        token: Token,
        interest: Readiness,
    ) -> io::Result<()> {
        if index(fd) >= libc::FD_SETSIZE {
            let text = format!("select ends at descriptor {}", libc::FD_SETSIZE - 1);
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        self.registered.insert(fd, Armed::new(token, interest))
    }

    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.registered.remove(fd).map(drop)
    }

    pub(super) fn rearm(&mut self, fd: BorrowedFd<'_>, readiness: Readiness) {
        if let Some(armed) = self.registered.get_mut(index(fd)) {
            armed.rearm(readiness);
        }
    }

    pub(super) fn wait(&mut self, timeout: Timeout, out: &mut Vec<ReadyEvent>) -> io::Result<()> {
        let Some(found) = self.ask(timeout)? else {
            return Ok(());
        };
        let places = self.registered.len();
        let first = self.next;
        for index in (first..places).chain(0..first.min(places)) {
            if out.len() == BATCH {
                break;
            }
            let readiness = readiness(&found, index);
            if let Some(armed) = self.registered.get_mut(index)
                && !readiness.is_empty()
            {
                self.next = index + 1;
                armed.on_reported(readiness);
                out.push(ReadyEvent {
                    token: armed.token,
                    readiness,
                });
            }
        }
        Ok(())
    }

    /// Calls pselect, and returns the sets of the descriptors that are ready; `None` if there are none.
    fn ask(&self, timeout: Timeout) -> io::Result<Option<Sets>> {
        let mut sets = self.armed();
        let time = timeout.timespec();
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let [readable, writable, priority] = &mut sets;
        // SAFETY: the three sets have the size of `fd_set`, and `add` keeps all descriptors below its end, so the call
        // accesses no memory outside; `time` is null or outlives the call; a null signal mask is allowed. A closed
        // descriptor causes EBADF.
        let found = unsafe {
            libc::pselect(
                self.registered.len() as libc::c_int,
                ptr::from_mut(readable).cast(),
                ptr::from_mut(writable).cast(),
                ptr::from_mut(priority).cast(),
                time,
                ptr::null(),
            )
        };
        match found {
            ..0 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            _ => Ok(Some(sets)),
        }
    }

    /// The sets to ask the kernel for.
    fn armed(&self) -> Sets {
        let mut sets = [Set::EMPTY; CONDITIONS.len()];
        for index in 0..self.registered.len() {
            let Some(armed) = self.registered.get(index) else {
                continue;
            };
            for (set, condition) in sets.iter_mut().zip(CONDITIONS) {
                if armed.conditions().contains(condition) {
                    set.insert(index);
                }
            }
        }
        sets
    }
}

impl Set {
    const EMPTY: Self = Self([0; libc::FD_SETSIZE / BITS]);

    fn insert(&mut self, index: usize) {
        self.0[index / BITS] |= 1 << (index % BITS);
    }

    fn contains(&self, index: usize) -> bool {
        self.0[index / BITS] & 1 << (index % BITS) != 0
    }
}

fn readiness(sets: &Sets, index: usize) -> Readiness {
    sets.iter()
        .zip(CONDITIONS)
        .filter(|(set, _)| set.contains(index))
        .fold(Readiness::NONE, |all, (_, condition)| all | condition)
}

/// The conditions that the three sets of a call stand for, in the order of its parameters.
const CONDITIONS: [Readiness; 3] = [
    Readiness::READABLE,
    Readiness::WRITABLE,
    Readiness::PRIORITY,
];

const BITS: usize = libc::c_ulong::BITS as usize;

const _: () = assert!(size_of::<Set>() == size_of::<libc::fd_set>());
