//! Errors that the network reports about segments.

use core::ops::Deref;

use softclock_core::Instant;

use crate::demux::{Flow, Transport};
use crate::icmp::ErrorMessage;
use crate::stack::Stack;
use crate::tcp::connection::IcmpError;
use crate::tcp::seq::Seq;

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// An ICMP error about a segment of the stack. Returns whether it names a connection, and one of its segments that
    /// may be in flight, or ends a handshake.
    pub(in crate::stack) fn tcp_on_icmp(&mut self, now: Instant, error: &ErrorMessage<'_>) -> bool {
        let addresses = error.quoted.addresses;
        let (Some((local, remote)), Some(sequence)) =
            (error.quoted.ports, error.quoted.tcp_sequence())
        else {
            return false;
        };
        let flow = Flow {
            transport: Transport::Tcp,
            remote: (addresses.destination, remote),
            local: (addresses.source, local),
        };
        let Some(id) = self.table.find_connected(&flow) else {
            return error.kind.is_hard() && self.listener_on_hard_error(&flow, Seq(sequence));
        };
        // The segments that have arrived say what is in flight.
        self.tcp_drain(now, id);
        let Some(endpoint) = self.tcp.connections.get_mut(id) else {
            return false;
        };
        let reported = IcmpError {
            kind: error.kind,
            next_hop_mtu: error.next_hop_mtu,
            sequence: Seq(sequence),
        };
        let tally = &mut self.tcp.tally;
        let events = tally.observe(&mut endpoint.connection, |connection| {
            connection.on_icmp(&reported)
        });
        let is_believed = events.dropped.is_none();
        let mut events = events;
        // The caller counts the message.
        events.dropped = None;
        self.tcp_apply(now, id, events);
        self.tcp_settle(now, id);
        is_believed
    }
}
