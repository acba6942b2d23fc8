//! The receive work of a link (NAPI, Documentation/networking/napi.rst), by generic netlink's family `netdev`.

use std::io;
use std::time::Duration;

use super::Link;
use super::generic_netlink::Family;
use super::netlink::Attribute;

/// The kernel's instance of receive work for a queue of a link. Settings made here end with the instance; for veth,
/// that is when its XDP program is detached.
#[derive(Debug)]
pub(super) struct Napi {
    id: u32,
    family: Family,
}

/// The part of an instance's settings that delays interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Deferral {
    /// The number of times in a row that the work ends without frames before interrupts are enabled.
    pub(super) rounds: u32,
    /// The time after which the work runs by itself.
    pub(super) timeout: Duration,
}

impl Napi {
    /// Finds the instance of a link's receive queue: the one that the driver reports for the queue, or the only one of
    /// a link with one queue.
    ///
    /// # Errors
    /// `NotFound` if the link has none, as veth without an XDP program, or it cannot be told which is the queue's;
    /// `Unsupported` for kernels before 6.13.
    pub(super) fn of_queue(link: &Link, queue: u32) -> io::Result<Self> {
        let family = Family::named(c"netdev")?;
        let id = match id_by_queue(&family, link, queue) {
            Some(id) => id,
            None => only_id(&family, link)?,
        };
        Ok(Self { id, family })
    }

    /// The kernel's number of the instance, which identifies it in all network namespaces.
    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    /// Reads how interrupts are delayed.
    ///
    /// # Errors
    /// `ENOENT` if the instance has ended.
    pub(super) fn deferral(&self) -> io::Result<Deferral> {
        let asked = [Attribute::u32(NAPI_ID, self.id)];
        let replies = self.family.request(NAPI_GET, &asked)?;
        let value = |name| {
            let found = replies.first().and_then(|reply| reply.number(name));
            found.ok_or(io::Error::from(io::ErrorKind::Unsupported))
        };
        Ok(Deferral {
            rounds: value(DEFER_HARD_IRQS)? as u32,
            timeout: Duration::from_nanos(value(GRO_FLUSH_TIMEOUT)?),
        })
    }

    /// Sets how interrupts are delayed.
    ///
    /// # Errors
    /// `ENOENT` if the instance has ended; `PermissionDenied` without CAP_NET_ADMIN; `Unsupported` for kernels before
    /// 6.13.
    pub(super) fn set_deferral(&self, to: Deferral) -> io::Result<()> {
        let timeout = u64::try_from(to.timeout.as_nanos()).unwrap_or(u64::MAX);
        let settings = [
            Attribute::u32(NAPI_ID, self.id),
            Attribute::u32(DEFER_HARD_IRQS, to.rounds),
            Attribute::uint(GRO_FLUSH_TIMEOUT, timeout),
        ];
        self.family.request(NAPI_SET, &settings).map(drop)
    }
}

/// The instance that the driver reports for this queue.
fn id_by_queue(family: &Family, link: &Link, queue: u32) -> Option<u32> {
    let asked = [
        Attribute::u32(QUEUE_IFINDEX, link.index()),
        Attribute::u32(QUEUE_TYPE, QUEUE_TYPE_RX),
        Attribute::u32(QUEUE_ID, queue),
    ];
    // An error means that the kernel does not know, which is usual for virtual links.
    let replies = family.request(QUEUE_GET, &asked).ok()?;
    let id = replies.first()?.number(QUEUE_NAPI_ID)?;
    u32::try_from(id).ok()
}

/// The instance of a link that has only one.
fn only_id(family: &Family, link: &Link) -> io::Result<u32> {
    let asked = [Attribute::u32(NAPI_IFINDEX, link.index())];
    let replies = family.dump(NAPI_GET, &asked)?;
    let mut ids = replies.iter().filter_map(|reply| reply.number(NAPI_ID));
    match (ids.next(), ids.next()) {
        (Some(id), None) => u32::try_from(id).map_err(io::Error::other),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// The commands of the family, of its attributes for queues and for NAPI (include/uapi/linux/netdev.h).
const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const QUEUE_ID: u16 = 1;
const QUEUE_IFINDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI_ID: u16 = 4;
const QUEUE_TYPE_RX: u32 = 0;
const NAPI_IFINDEX: u16 = 1;
const NAPI_ID: u16 = 2;
const DEFER_HARD_IRQS: u16 = 5;
const GRO_FLUSH_TIMEOUT: u16 = 6;

#[cfg(test)]
mod tests {
    use super::super::cable::cable;
    use super::super::{Copies, XdpFilter, XdpSettings, XdpSocket};
    use super::*;

    #[test]
    fn a_veth_has_receive_work_while_it_has_a_program() {
        let cable = cable!();
        let [_, link] = cable.links();
        let error = Napi::of_queue(&link, 0).unwrap_err();
        if error.kind() == io::ErrorKind::Unsupported {
            softclock_testing::skip!("this kernel does not list NAPI instances");
        }
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
        let napi = Napi::of_queue(&link, 0).unwrap();
        let before = Deferral {
            rounds: 0,
            timeout: Duration::ZERO,
        };
        assert_eq!(napi.deferral().unwrap(), before);
        let changed = Deferral {
            rounds: 3,
            timeout: Duration::from_millis(5),
        };
        napi.set_deferral(changed).unwrap();
        assert_eq!(napi.deferral().unwrap(), changed);
        drop(socket);
        let gone = napi.deferral().unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
    }
}
