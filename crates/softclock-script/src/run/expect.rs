//! Packets of the host.

use super::clock::{Until, Window};
use super::compare::{compare, compare_datagram, compare_message, show_segment};
use super::{Runner, Stop};
use crate::host::Host;
use crate::syntax::{Body, PacketSpec};
use crate::wire::{self, Packet};

impl<H: Host> Runner<'_, H> {
    /// Waits for the host's next packet, and compares it with the script's.
    pub(super) fn expect(&mut self, spec: &PacketSpec, window: Window) -> Result<(), Stop> {
        let tolerance = self.environment.tolerance;
        self.advance(*window.end() + tolerance, Until::Packet)?;
        let Some((at, bytes)) = self.sent.pop_front() else {
            let end = self.show_time(*window.end());
            return Err(Stop::Failed(format!("no packet of the host until {end}")));
        };
        self.matches(spec, &bytes).map_err(|difference| {
            let (packet, at) = (self.describe(&bytes), self.show_time(at));
            Stop::Failed(format!("{difference}: got {packet} at {at}"))
        })?;
        let earliest = window
            .start()
            .sub_ns(u64::try_from(tolerance.as_nanos()).unwrap_or(u64::MAX));
        if at < earliest || at > *window.end() + tolerance {
            let (at, start) = (self.show_time(at), self.show_time(*window.start()));
            return Err(Stop::Failed(format!(
                "the packet is sent at {at}, but expected at {start}"
            )));
        }
        Ok(())
    }

    fn matches(&mut self, spec: &PacketSpec, bytes: &[u8]) -> Result<(), String> {
        let tick = self.environment.timestamp_tick;
        let tolerance = self.environment.tolerance;
        match (&spec.body, wire::parse(bytes)?) {
            (Body::Tcp(segment), Packet::Tcp(packet)) => {
                compare(
                    self.flow(),
                    spec,
                    segment,
                    &packet,
                    tick.map(|tick| (tick, tolerance)),
                )?;
                Ok(())
            }
            (Body::Udp(length), Packet::Udp(ip, ports, payload)) => {
                compare_datagram(self.flow(), spec, *length, (&ip, ports, &payload))
            }
            (Body::Icmp(message), Packet::Icmp(ip, numbers, rest)) => {
                compare_message(self.flow(), spec, message, (&ip, numbers, &rest))
            }
            _ => Err("the packet is of another protocol".to_owned()),
        }
    }

    /// A packet of the host in the notation of scripts.
    pub(super) fn describe(&mut self, bytes: &[u8]) -> String {
        match wire::parse(bytes) {
            Ok(Packet::Tcp(packet)) => show_segment(self.flow(), &packet),
            Ok(Packet::Udp(_, _, payload)) => format!("`> udp ({})`", payload.len()),
            Ok(Packet::Icmp(_, (kind, code), _)) => format!("`> icmp` type {kind} code {code}"),
            Err(mistake) => format!("a packet in which {mistake}"),
        }
    }
}
