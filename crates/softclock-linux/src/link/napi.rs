//! The receive work of a link (NAPI, Documentation/networking/napi.rst), by generic netlink's family `netdev`.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::generic_netlink::Family;
use super::netlink::{Attribute, Reply};
use super::{InterruptDelay, Link};

/// The kernel's instances of receive work of a link, or of one of its queues. An instance ends when the link goes down
/// or loses the queue, and that of a veth when its XDP program is detached. Settings made here end with it, but some
/// drivers keep them for the next instance of the queue (`napi_config`).
#[derive(Debug)]
pub(super) struct Instances {
    family: Family,
    ids: Vec<u32>,
}

impl Instances {
    /// Finds the instances of a link's receive queues: those that the driver reports for the queues, or all instances
    /// of the link if it reports none.
    ///
    /// # Errors
    /// `NotFound` if the link has none, such as veth without an XDP program and without GRO; `Unsupported` for kernels
    /// that do not list them.
    pub(super) fn of_link(link: &Link) -> io::Result<Self> {
        let family = Family::named(c"netdev")?;
        let receiving = receiving_ids(&family, link);
        let ids = all_ids(&family, link)?;
        let ids = ids
            .into_iter()
            .filter(|id| receiving.is_empty() || receiving.contains(id));
        Self::of(family, ids.collect())
    }

    /// Finds the instance of a link's receive queue: the one that the driver reports for the queue, or the only one of
    /// a link with one queue.
    ///
    /// # Errors
    /// Those of [`of_link`](Self::of_link); `NotFound` also if the kernel does not say which instance is the queue's.
    #[cfg(any(test, feature = "experiments"))]
    pub(super) fn of_queue(link: &Link, queue: u32) -> io::Result<Self> {
        let family = Family::named(c"netdev")?;
        if let Some(id) = id_by_queue(&family, link, queue) {
            return Self::of(family, vec![id]);
        }
        let ids = all_ids(&family, link)?;
        Self::of(family, if ids.len() == 1 { ids } else { Vec::new() })
    }

    fn of(family: Family, ids: Vec<u32>) -> io::Result<Self> {
        match ids.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(Self { family, ids }),
        }
    }

    /// The kernel's numbers of the instances, which identify them in all network namespaces.
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Reads how an instance's interrupts are delayed.
    ///
    /// # Errors
    /// `ENOENT` if the instance has ended; `Unsupported` for kernels before 6.13.
    pub(super) fn delay(&self, id: u32) -> io::Result<InterruptDelay> {
        let replies = self
            .family
            .request(NAPI_GET, &[Attribute::u32(NAPI_ID, id)])?;
        let value = |name| {
            let found = replies.first().and_then(|reply| reply.number(name));
            found.ok_or(io::Error::from(io::ErrorKind::Unsupported))
        };
        Ok(InterruptDelay {
            rounds: value(DEFER_HARD_IRQS)? as u32,
            timeout: Duration::from_nanos(value(GRO_FLUSH_TIMEOUT)?),
            suspension: Duration::from_nanos(value(IRQ_SUSPEND_TIMEOUT)?),
        })
    }

    /// Sets how an instance's interrupts are delayed.
    ///
    /// # Errors
    /// `ENOENT` if the instance has ended; `PermissionDenied` without CAP_NET_ADMIN; `Unsupported` for kernels before
    /// 6.13.
    pub(super) fn set_delay(&self, id: u32, to: InterruptDelay) -> io::Result<()> {
        self.family.request(NAPI_SET, &settings(id, to)).map(drop)
    }

    /// The bytes that set an instance's delay when they are written to the descriptor of `self`, from which the result
    /// can be received then.
    pub(super) fn written(&self, id: u32, to: InterruptDelay) -> Vec<u8> {
        self.family.written(NAPI_SET, &settings(id, to))
    }
}

impl AsFd for Instances {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.family.as_fd()
    }
}

fn settings(id: u32, to: InterruptDelay) -> [Attribute; 4] {
    [
        Attribute::u32(NAPI_ID, id),
        Attribute::u32(DEFER_HARD_IRQS, to.rounds),
        Attribute::uint(GRO_FLUSH_TIMEOUT, nanoseconds(to.timeout)),
        Attribute::uint(IRQ_SUSPEND_TIMEOUT, nanoseconds(to.suspension)),
    ]
}

/// Converts a time to nanoseconds, the kernel's unit. A time that does not fit becomes the longest that does, 584
/// years.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The instance that the driver reports for this queue.
#[cfg(any(test, feature = "experiments"))]
fn id_by_queue(family: &Family, link: &Link, queue: u32) -> Option<u32> {
    let asked = [
        Attribute::u32(QUEUE_IFINDEX, link.index()),
        Attribute::u32(QUEUE_TYPE, QUEUE_TYPE_RX as u32),
        Attribute::u32(QUEUE_ID, queue),
    ];
    // An error means that the kernel does not know, which is usual for virtual links.
    let replies = family.request(QUEUE_GET, &asked).ok()?;
    id_in(replies.first()?, QUEUE_NAPI_ID)
}

/// The instances that the driver reports for receive queues; empty if it reports none.
fn receiving_ids(family: &Family, link: &Link) -> BTreeSet<u32> {
    let asked = [Attribute::u32(QUEUE_IFINDEX, link.index())];
    let replies = family.dump(QUEUE_GET, &asked).unwrap_or_default();
    let receiving = replies
        .iter()
        .filter(|reply| reply.number(QUEUE_TYPE) == Some(QUEUE_TYPE_RX));
    receiving
        .filter_map(|reply| id_in(reply, QUEUE_NAPI_ID))
        .collect()
}

fn all_ids(family: &Family, link: &Link) -> io::Result<Vec<u32>> {
    let asked = [Attribute::u32(NAPI_IFINDEX, link.index())];
    let replies = family.dump(NAPI_GET, &asked)?;
    Ok(replies
        .iter()
        .filter_map(|reply| id_in(reply, NAPI_ID))
        .collect())
}

fn id_in(reply: &Reply, name: u16) -> Option<u32> {
    reply.number(name).and_then(|id| u32::try_from(id).ok())
}

/// The commands of the family, of its attributes for queues and for NAPI (include/uapi/linux/netdev.h).
const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
#[cfg(any(test, feature = "experiments"))]
const QUEUE_ID: u16 = 1;
const QUEUE_IFINDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI_ID: u16 = 4;
const QUEUE_TYPE_RX: u64 = 0;
const NAPI_IFINDEX: u16 = 1;
const NAPI_ID: u16 = 2;
const DEFER_HARD_IRQS: u16 = 5;
const GRO_FLUSH_TIMEOUT: u16 = 6;
const IRQ_SUSPEND_TIMEOUT: u16 = 7;

#[cfg(test)]
mod tests {
    use super::super::cable::cable;
    use super::super::{Copies, XdpFilter, XdpSettings, XdpSocket};
    use super::*;

    #[test]
    fn a_veth_has_receive_work_while_it_has_a_program() {
        let cable = cable!();
        let [_, link] = cable.links();
        let error = Instances::of_queue(&link, 0).unwrap_err();
        if error.kind() == io::ErrorKind::Unsupported {
            softclock_testing::skip!("this kernel does not list NAPI instances");
        }
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error = Instances::of_link(&link).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let settings = XdpSettings {
            copies: Copies::Allowed,
            queue: None,
            filter: XdpFilter::All,
        };
        let socket = match XdpSocket::open(&link, settings) {
            Ok(socket) => socket,
            Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
        };
        let instances = Instances::of_queue(&link, 0).unwrap();
        let &[id] = instances.ids() else {
            panic!("{instances:?}")
        };
        assert_eq!(Instances::of_link(&link).unwrap().ids(), [id]);
        assert_eq!(instances.delay(id).unwrap(), InterruptDelay::NONE);
        let changed = InterruptDelay {
            rounds: 3,
            timeout: Duration::from_millis(5),
            suspension: Duration::from_secs(20),
        };
        instances.set_delay(id, changed).unwrap();
        assert_eq!(instances.delay(id).unwrap(), changed);
        drop(socket);
        let gone = instances.delay(id).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
    }
}
