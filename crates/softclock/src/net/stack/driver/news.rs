//! The driver's part for what the kernel reports about the link: its end, and the host's addresses that the stack
//! shares.

use std::cell::{Cell, RefCell};
use std::io;
use std::task::{Context, Poll, Waker};

use softclock_linux::link::{LinkChange, LinkMonitor};
use softclock_net::routes::Prefix;

use super::Driver;
use crate::net::Kernel;
use crate::net::stack::HostAddressChange;
use crate::runtime::sources::Direction;

/// The monitor of the link, watched by the runtime.
pub(super) struct News {
    monitor: Kernel<LinkMonitor>,
    /// Whether reports may be missing, as at the beginning: the link was opened before the monitor.
    is_incomplete: Cell<bool>,
    addresses: RefCell<Vec<SharedAddress>>,
    /// Waits for a change of addresses.
    waiting: RefCell<Option<Waker>>,
}

/// An address of the host that the stack shares.
struct SharedAddress {
    /// The address, and whether the host has it now.
    now: HostAddressChange,
    /// Whether the host had it when that was last reported.
    was_present: bool,
}

impl News {
    pub(super) fn watch(monitor: LinkMonitor, shared: &[Prefix]) -> io::Result<Self> {
        let addresses = shared.iter().map(|prefix| SharedAddress {
            now: HostAddressChange {
                address: prefix.address,
                is_present: true,
            },
            was_present: true,
        });
        Ok(Self {
            monitor: Kernel::new(monitor)?,
            is_incomplete: Cell::new(true),
            addresses: RefCell::new(addresses.collect()),
            waiting: RefCell::default(),
        })
    }

    /// Receives the reports that wait, up to a number. Else `cx` is woken when there is one.
    fn receive(&self, cx: &Context<'_>) -> Reported {
        let mut reported = Reported::default();
        let monitor = self.monitor.descriptor();
        for _ in 0..MOST_REPORTS {
            let registration = self.monitor.registration();
            if registration.poll_ready(cx, Direction::Read).is_pending() {
                return reported;
            }
            let received = self.monitor.quiet_call(Direction::Read, |_| {
                monitor.receive(|change| match change {
                    LinkChange::Deleted => reported.is_deleted = true,
                    LinkChange::Addresses => reported.has_addresses = true,
                })
            });
            if received.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
                self.is_incomplete.set(true);
            }
        }
        cx.waker().wake_by_ref();
        reported
    }

    /// Takes a change of a shared address that was not reported yet.
    fn next_change(&self) -> Option<HostAddressChange> {
        let mut shared = self.addresses.borrow_mut();
        let address = shared
            .iter_mut()
            .find(|address| address.now.is_present != address.was_present)?;
        address.was_present = address.now.is_present;
        Some(address.now)
    }
}

/// What was reported.
#[derive(Default)]
struct Reported {
    is_deleted: bool,
    has_addresses: bool,
}

impl Driver {
    /// Ready when the link was deleted. Until then, notes which of the shared addresses the host has.
    pub(super) fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        let Some(news) = &self.news else {
            return Poll::Pending;
        };
        let reported = news.receive(cx);
        let is_incomplete = news.is_incomplete.take();
        if reported.is_deleted || (is_incomplete && !self.link.exists()) {
            return Poll::Ready(());
        }
        if reported.has_addresses || is_incomplete {
            self.look_at_addresses(news);
        }
        Poll::Pending
    }

    /// Compares the shared addresses with those that the host has. A report alone does not tell: the host may have an
    /// address twice, with different prefixes.
    fn look_at_addresses(&self, news: &News) {
        let mut shared = news.addresses.borrow_mut();
        if shared.is_empty() {
            return;
        }
        // An error means that the link has just ended, which is reported, too.
        let Ok(present) = self.link.addresses() else {
            return;
        };
        for address in shared.iter_mut() {
            let is_same = |(one, _): &(_, _)| *one == address.now.address;
            address.now.is_present = present.iter().any(is_same);
        }
        drop(shared);
        let waiting = news.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ready when the host has removed or added a shared address since the last call.
    pub(in super::super) fn poll_host_address(&self, cx: &Context<'_>) -> Poll<HostAddressChange> {
        let Some(news) = &self.news else {
            return Poll::Pending;
        };
        if let Some(change) = news.next_change() {
            return Poll::Ready(change);
        }
        drop(news.waiting.replace(Some(cx.waker().clone())));
        Poll::Pending
    }
}

/// The most messages of the kernel about links in a turn.
const MOST_REPORTS: usize = 32;
