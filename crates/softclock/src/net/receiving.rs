//! Received datagrams in the memory of the caller, for carriers that receive them one by one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;

use softclock_linux::socket::udp::{Datagram, Ecn, RecvBatch, RecvOptions};
use softclock_net::stack;

/// A datagram of a carrier.
pub(crate) trait Received {
    /// The datagram with all that is known of it.
    fn datagram(&self) -> Datagram<'_>;
}

impl<B: Deref<Target = [u8]>> Received for stack::Datagram<B> {
    fn datagram(&self) -> Datagram<'_> {
        let mut datagram = Datagram::new(self.payload(), self.source);
        datagram.destination = Some(self.destination);
        datagram.ecn = Some(Ecn::of_traffic_class(self.ecn));
        datagram.received = Some(self.arrived);
        datagram
    }
}

/// Copies the payload into `buffer`, as far as it fits. Returns the number of bytes and the sender.
pub(crate) fn copy_into(buffer: &mut [u8], received: &impl Received) -> (usize, SocketAddr) {
    let datagram = received.datagram();
    let count = datagram.payload.len().min(buffer.len());
    buffer[..count].copy_from_slice(&datagram.payload[..count]);
    (count, datagram.source)
}

/// Puts `first` and those of `next` into an empty batch as far as it has room, with the facts that a socket at the
/// address `bound` was asked for. Returns their number.
pub(crate) fn fill<R: Received>(
    batch: &mut RecvBatch,
    (options, bound): (&RecvOptions, IpAddr),
    first: R,
    next: impl FnMut() -> Option<R>,
) -> io::Result<usize> {
    let room = batch.slots();
    let others = std::iter::from_fn(next);
    for received in std::iter::once(first).chain(others).take(room) {
        let datagram = as_asked(received.datagram(), options, bound);
        batch.put(datagram).map_err(io::Error::other)?;
    }
    Ok(batch.len())
}

/// Removes the facts that `options` do not ask for. A socket that is bound to one address does not report it as the
/// destination.
fn as_asked<'a>(mut datagram: Datagram<'a>, options: &RecvOptions, bound: IpAddr) -> Datagram<'a> {
    let tells_destination = options.destinations && bound.is_unspecified();
    datagram.destination = datagram.destination.filter(|_| tells_destination);
    datagram.ecn = datagram.ecn.filter(|_| options.ecn);
    datagram.received = datagram.received.filter(|_| options.time_stamps);
    datagram
}
