//! ARP and neighbor discovery: the link addresses of neighbors, and the stack's own.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::ops::Deref;
use core::time::Duration;

use softclock_core::Instant;
use softclock_wire::packet::{ARP, ICMPV6, TCP, UDP};

use super::icmp::report;
use super::output::Outgoing;
use super::{Frame, Stack};
use crate::checksum::Addresses;
use crate::drops::DropReason;
use crate::icmp::Report;
use crate::ip::{self, Packet, arp, ndisc};
use crate::link::{Header, LinkAddress};
use crate::neighbors::{Answer, TimerEvent};

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Announces the stack's addresses to all hosts on the link (RFC 5227, 2.3; RFC 4861, 7.2.6), which may have others
    /// in their caches. Call it when the stack begins to use the link. [`on_timer`](Self::on_timer) repeats the
    /// announcement once, as the first may be lost.
    pub fn announce(&mut self, now: Instant) {
        if self.settings.asks_caller || self.has_no_link() {
            return;
        }
        self.announce_once();
        self.announce_again = Some(now + ANNOUNCE_INTERVAL);
    }

    /// Asks for link addresses, and gives up on neighbors that do not answer.
    pub(super) fn neighbors_on_timer(&mut self, now: Instant) {
        while let Some(event) = self.neighbors.on_timer(now) {
            match event {
                TimerEvent::Solicit { address, to } => self.solicit(address, to),
                TimerEvent::Failed { packets, .. } => {
                    let count = packets.len() as u64;
                    self.drops
                        .count_many(DropReason::NeighborUnreachable, count);
                    for packet in packets {
                        self.report_unreachable(now, &packet);
                    }
                }
            }
        }
    }

    /// Reports to the sender of a packet, which is this stack or another one with its addresses, that the next hop does
    /// not answer (RFC 4861, 7.2.2). The report is a message to the stack itself, so that it reaches its receiver as
    /// those of routers do.
    fn report_unreachable(&mut self, now: Instant, frame: &Frame) {
        let original = frame.bytes.get(Header::BYTES..).unwrap_or_default();
        let Ok(packet) = ip::parse(original) else {
            return;
        };
        // Only UDP and TCP have receivers of errors, and only a first fragment names them.
        let is_later = packet.fragment.is_some_and(|fragment| fragment.offset > 0);
        if is_later || !matches!(packet.protocol, TCP | UDP) {
            return;
        }
        let sender = packet.addresses.source;
        let addresses = Addresses {
            source: sender,
            destination: sender,
        };
        let (protocol, message) = report(addresses, Report::HostUnreachable, original);
        self.send_message(now, Outgoing::new(addresses, protocol), &message, None);
    }

    /// Repeats the announcement when it is due.
    pub(super) fn announcement_on_timer(&mut self, now: Instant) {
        if self.announce_again.is_some_and(|due| due <= now) {
            self.announce_again = None;
            self.announce_once();
        }
    }

    fn announce_once(&mut self) {
        let link = self.settings.link_address;
        let addresses: Vec<IpAddr> = self.own_addresses().collect();
        for address in addresses {
            match address {
                IpAddr::V4(own) => {
                    let message = arp::Message::announcement((link, own));
                    self.send_arp(LinkAddress::BROADCAST, &message);
                }
                IpAddr::V6(own) => {
                    let addresses = Addresses {
                        source: address,
                        destination: ndisc::ALL_NODES.into(),
                    };
                    let message = ndisc::write_advertisement(addresses, own, link, true);
                    self.send_discovery(addresses, &message, None);
                }
            }
        }
    }

    /// Handles a message of ARP.
    pub(super) fn on_arp(&mut self, now: Instant, payload: &[u8]) -> Result<(), DropReason> {
        let message = arp::Message::parse(payload)?;
        let (sender_link, sender) = message.sender;
        let own = self.settings.link_address;
        if sender_link == own {
            return Ok(());
        }
        if self.is_own(sender.into()) {
            self.counts.address_conflicts += 1;
            return Ok(());
        }
        if !self.is_own(message.target.1.into()) {
            // Of what is said to others, only news of known neighbors counts.
            if !message.is_probe() {
                let released =
                    self.neighbors
                        .on_answer(now, sender.into(), sender_link, Answer::ANNOUNCEMENT);
                self.release(released);
            }
            return Ok(());
        }
        match message.operation {
            arp::Operation::Request => {
                if !message.is_probe() {
                    let released = self.neighbors.on_request(now, sender.into(), sender_link);
                    self.release(released);
                }
                self.send_arp(sender_link, &message.reply(own));
            }
            arp::Operation::Reply => {
                let released =
                    self.neighbors
                        .on_answer(now, sender.into(), sender_link, Answer::ARP_REPLY);
                self.release(released);
            }
        }
        Ok(())
    }

    /// Handles a message of neighbor discovery, whose checksum is verified.
    pub(super) fn on_discovery(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        let message = ndisc::parse(packet.addresses, packet.hop_limit, packet.payload)?;
        match message {
            ndisc::Message::Solicitation {
                target,
                source_link,
            } => {
                let source = packet.addresses.source;
                if source_link == Some(self.settings.link_address) {
                    return Ok(());
                }
                if self.is_own(source) {
                    self.counts.address_conflicts += 1;
                    return Ok(());
                }
                if !self.is_own(target.into()) {
                    return Ok(());
                }
                if let Some(link) = source_link {
                    let released = self.neighbors.on_request(now, source, link);
                    self.release(released);
                }
                if let IpAddr::V6(asker) = source {
                    self.advertise(now, asker, target, source_link);
                }
            }
            ndisc::Message::Advertisement {
                target,
                target_link,
                is_solicited,
                is_override,
                ..
            } => {
                if self.is_own(target.into()) {
                    self.counts.address_conflicts += 1;
                } else if let Some(link) = target_link {
                    let answer = Answer {
                        is_solicited,
                        is_override,
                    };
                    let released = self.neighbors.on_answer(now, target.into(), link, answer);
                    self.release(released);
                } else if is_solicited {
                    self.neighbors.on_confirmed(now, target.into());
                }
            }
            ndisc::Message::Ignored => return Err(DropReason::IcmpIgnored),
        }
        Ok(())
    }

    /// Answers a solicitation.
    fn advertise(
        &mut self,
        now: Instant,
        asker: Ipv6Addr,
        target: Ipv6Addr,
        to: Option<LinkAddress>,
    ) {
        let addresses = ndisc::answer_addresses(asker, target);
        let link = self.settings.link_address;
        let message = ndisc::write_advertisement(addresses, target, link, true);
        let outgoing = Outgoing {
            hop_limit: ndisc::HOP_LIMIT,
            ..Outgoing::new(addresses, ICMPV6)
        };
        self.send_message(now, outgoing, &message, to);
    }

    /// Returns the next neighbor whose link address the caller has to find, or to confirm, for
    /// [`on_neighbor`](Self::on_neighbor): of a stack with [`Settings::asks_caller`](super::Settings::asks_caller), or
    /// of one without the link that [sends](Self::set_sends) by a queue of its own. The same is asked for again if
    /// there is no answer.
    pub fn next_question(&mut self) -> Option<IpAddr> {
        self.questions.pop_front()
    }

    /// Takes the link address of a neighbor, which the caller has found or which has changed. News of neighbors that
    /// the stack has not asked for is ignored.
    pub fn on_neighbor(&mut self, now: Instant, neighbor: IpAddr, link: LinkAddress) {
        if self.has_no_link() {
            self.hops.learn(now, neighbor, link);
            return;
        }
        let answer = Answer {
            is_solicited: true,
            is_override: true,
        };
        let released = self.neighbors.on_answer(now, neighbor, link, answer);
        self.release(released);
    }

    /// Asks for the link address of a neighbor: all hosts, or the one at `to` whether it is still there.
    pub(super) fn solicit(&mut self, neighbor: IpAddr, to: Option<LinkAddress>) {
        if self.settings.asks_caller {
            // As many as there are entries; the cache repeats what is left out.
            if self.questions.len() < self.settings.neighbors.entries {
                self.questions.push_back(neighbor);
            }
            return;
        }
        let Some(source) = self.routes.source_for(neighbor) else {
            return;
        };
        let link = self.settings.link_address;
        match (source, neighbor) {
            (IpAddr::V4(source), IpAddr::V4(neighbor)) => {
                let message = arp::Message::request((link, source), neighbor);
                self.send_arp(to.unwrap_or(LinkAddress::BROADCAST), &message);
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                let addresses = match to {
                    None => ndisc::request_addresses(source, target),
                    Some(_) => Addresses {
                        source: source.into(),
                        destination: neighbor,
                    },
                };
                let message = ndisc::write_solicitation(addresses, target, Some(link));
                self.send_discovery(addresses, &message, to);
            }
            _ => {}
        }
    }

    fn send_arp(&mut self, to: LinkAddress, message: &arp::Message) {
        let header = Header {
            destination: to,
            source: self.settings.link_address,
            ether_type: ARP,
        };
        let mut frame = Vec::with_capacity(Header::BYTES + arp::Message::BYTES);
        frame.extend(header.to_bytes());
        frame.extend(message.to_bytes());
        self.queue_frame(frame.into());
    }

    /// Sends a message of neighbor discovery to a group, or to a link address.
    fn send_discovery(&mut self, addresses: Addresses, message: &[u8], to: Option<LinkAddress>) {
        let Some(link) = to.or(LinkAddress::of_group(addresses.destination)) else {
            return;
        };
        let outgoing = Outgoing {
            hop_limit: ndisc::HOP_LIMIT,
            ..Outgoing::new(addresses, ICMPV6)
        };
        let mut frame = self.begin(&outgoing, message.len());
        frame.extend(message);
        self.send_frame(link, frame);
    }

    /// Sends the packets that waited for a link address.
    fn release(&mut self, released: Vec<(LinkAddress, Frame)>) {
        for (link, frame) in released {
            self.send_frame(link, frame);
        }
    }

    fn own_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.routes.addresses().iter().map(|prefix| prefix.address)
    }
}

/// The time between two announcements (RFC 5227, 1.1); more than neighbor discovery's least (RetransTimer).
pub(super) const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
