//! The ends of a connection: FIN, RST, and the errors of the network.

use core::ops::Deref;

use softclock_core::Instant;

use super::{Connection, Error, Events, Phase};
use crate::drops::DropReason;
use crate::icmp::ErrorKind;
use crate::tcp::path_mtu;
use crate::tcp::peer::mss_of_mtu;
use crate::tcp::segment::{Flags, Reply};
use crate::tcp::seq::Seq;
use crate::tcp::settings::Linger;
use crate::tcp::state::State;
use crate::tcp::time_wait::LastState;

impl<B: Deref<Target = [u8]>> Connection<B> {
    /// CLOSE of this end's half (RFC 9293, 3.10.4): FIN follows all bytes that were written. Reading goes on.
    pub fn shutdown_write(&mut self) {
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            State::SynSent | State::SynReceived => {
                self.is_closing_early = true;
                return;
            }
            _ => return,
        }
        if let Phase::Open(open) = &mut self.phase {
            open.sender.close();
        }
    }

    /// The owner is gone. Sends the rest of the data and FIN, for a time that the settings bound, then ends. With data
    /// that was not read, or without time to linger, resets the connection instead: the peer must learn that data is
    /// lost (RFC 2525, 2.17; RFC 9293, 3.6.1).
    pub fn close(&mut self, now: Instant) -> Events {
        self.is_orphan = true;
        self.error = None;
        let linger = self.settings.linger;
        match self.state {
            // No connection yet: nothing is sent (RFC 9293, 3.10.4).
            State::SynSent => return self.end(),
            State::TimeWait | State::Closed => return Events::default(),
            _ => {}
        }
        let Phase::Open(open) = &mut self.phase else {
            return self.abort();
        };
        let has_unread = open.receiver.readable() > 0;
        if has_unread || linger == Linger::AtMost(core::time::Duration::ZERO) {
            return self.abort();
        }
        open.flags.is_read_closed = true;
        self.shutdown_write();
        let time = match (self.state, linger) {
            (State::FinWait2, _) => self.settings.fin_wait_2,
            (_, Linger::Background) => self.settings.orphan_timeout,
            (_, Linger::AtMost(time)) => time,
        };
        self.deadline = now + time;
        Events {
            may_send: true,
            ..Events::default()
        }
    }

    /// ABORT (RFC 9293, 3.10.5): resets the connection. What was not sent or not read is lost.
    pub fn abort(&mut self) -> Events {
        let reply = self.own_reset();
        Events {
            reply,
            ..self.end()
        }
    }

    /// Resets the connection because of something that has happened, and tells the owner.
    pub(super) fn reset(&mut self, error: Error) -> Events {
        let reply = self.own_reset();
        Events {
            reply,
            ..self.fail(error)
        }
    }

    /// <SEQ=SND.NXT><CTL=RST,ACK>, in the states in which the peer has a connection to reset.
    fn own_reset(&mut self) -> Option<Reply> {
        let (sequence, acknowledgment) = match (&self.phase, self.state) {
            (_, State::SynSent | State::TimeWait | State::Closed) => return None,
            (Phase::Open(open), _) => (open.sender.next(), open.receiver.next()),
            (Phase::Opening(opening), _) => (opening.iss() + 1, opening.acknowledgment()?),
            (Phase::Failed, _) => return None,
        };
        let flags = Flags::RST | Flags::ACK;
        Some(Reply::new(self.flow, sequence, acknowledgment, flags, 0))
    }

    /// The connection has failed: its owner learns why, after it has read what had arrived.
    pub(super) fn fail(&mut self, error: Error) -> Events {
        self.error = (!self.is_orphan).then_some(error);
        Events {
            is_readable: true,
            is_writable: true,
            ..self.end()
        }
    }

    /// The connection is over: CLOSED. What has arrived can still be read.
    pub(super) fn end(&mut self) -> Events {
        self.state = State::Closed;
        self.deadline = Instant::FAR_FUTURE;
        self.forget_sent();
        Events {
            is_readable: true,
            is_writable: true,
            is_over: true,
            ..Events::default()
        }
    }

    /// Both halves are closed, and this end closed first or at the same time: TIME-WAIT.
    pub(super) fn enter_time_wait(&mut self) -> Events {
        self.state = State::TimeWait;
        self.deadline = Instant::FAR_FUTURE;
        Events {
            is_over: true,
            // The FIN is acknowledged by the connection itself, before its table takes over.
            may_send: true,
            ..Events::default()
        }
    }

    /// What the table of TIME-WAIT needs to know of a connection that has entered that state.
    pub fn last_state(&self) -> Option<LastState> {
        let Phase::Open(open) = &self.phase else {
            return None;
        };
        (self.state == State::TimeWait).then(|| LastState {
            send_next: open.sender.next(),
            receive_next: open.receiver.next(),
            window: (open.receiver.window() >> open.own_shift).min(u16::MAX.into()) as u16,
            timestamp: open.paws().map(|paws| paws.recent()),
        })
    }

    /// Gives back the memory of what was to be sent.
    fn forget_sent(&mut self) {
        match &mut self.phase {
            Phase::Open(open) => {
                open.sender.clear();
                open.extra_acks = 0;
                open.flags.is_probe_due = false;
            }
            phase => *phase = Phase::Failed,
        }
    }

    /// An error that the network has reported about a segment with this sequence number. Believed only if the segment
    /// may be in flight (RFC 5927, 4.1). Established connections survive all errors: "packet too big" shortens their
    /// segments (RFC 5927, 5 and 7; RFC 9293, 3.9.2.2), and the last of the others is what the owner learns if the
    /// connection times out before the peer is heard again.
    pub fn on_icmp(&mut self, error: &IcmpError) -> Events {
        if !self.may_be_about(error) {
            return Events::dropped(DropReason::IcmpIgnored);
        }
        let reported = match error.kind {
            ErrorKind::PacketTooBig => {
                return match error.next_hop_mtu {
                    Some(mtu) => self.on_path_mtu(mtu),
                    None => Events::dropped(DropReason::IcmpIgnored),
                };
            }
            // A filter on the path refuses the connection as the peer may.
            ErrorKind::PortUnreachable | ErrorKind::ProtocolUnreachable | ErrorKind::Prohibited => {
                Error::Refused
            }
            ErrorKind::NetUnreachable => Error::NetworkUnreachable,
            ErrorKind::HostUnreachable
            | ErrorKind::HopLimitExceeded
            | ErrorKind::ReassemblyTimeExceeded => Error::Unreachable,
            ErrorKind::ParameterProblem | ErrorKind::Other => {
                return Events::dropped(DropReason::IcmpIgnored);
            }
        };
        // A hard error ends an attempt to connect, unless `hard_errors_abort` is off. All others are the reason given
        // if the connection times out (RFC 1122, 4.2.3.9; RFC 5461).
        let may_abort = error.kind.is_hard() && self.settings.hard_errors_abort;
        if may_abort && matches!(self.phase, Phase::Opening(_)) {
            return self.fail(reported);
        }
        self.reported = Some(reported);
        Events::default()
    }

    /// The error of a connection whose peer does not answer.
    pub(super) fn reason_of_timeout(&self) -> Error {
        self.reported.unwrap_or(Error::TimedOut)
    }

    /// Whether the segment that an error quotes may be under way. Probes of an idle connection and of a closed window
    /// lie at the edges of what is in flight; neither they nor a SYN are too long for any path.
    fn may_be_about(&self, error: &IcmpError) -> bool {
        let sequence = error.sequence;
        match &self.phase {
            Phase::Opening(opening) => {
                sequence == opening.iss() && error.kind != ErrorKind::PacketTooBig
            }
            Phase::Open(open) => {
                let next = open.sender.next();
                let is_at_edge = sequence == next || sequence == next - 1;
                sequence.is_within(open.sender.una(), next)
                    || (is_at_edge && error.kind != ErrorKind::PacketTooBig)
            }
            Phase::Failed => false,
        }
    }

    /// The path carries packets of at most `mtu` bytes: sends shorter segments, and those in flight again.
    pub fn on_path_mtu(&mut self, mtu: u32) -> Events {
        let Some(mtu) = path_mtu::lowered(self.mtu, mtu, self.is_v4()) else {
            return Events::dropped(DropReason::IcmpIgnored);
        };
        self.mtu = mtu;
        let mss = self.payload_of_mtu(mtu);
        if let Phase::Open(open) = &mut self.phase
            && mss < open.sender.mss()
        {
            open.sender.on_too_big(mss);
        }
        Events {
            may_send: true,
            ..Events::default()
        }
    }

    /// The longest payload of a packet of `mtu` bytes.
    pub(super) fn payload_of_mtu(&self, mtu: u16) -> u16 {
        let options = match &self.phase {
            Phase::Open(open) if open.flags.has_timestamps => TIMESTAMP_BYTES,
            _ => 0,
        };
        mss_of_mtu(mtu.into(), self.is_v4()).saturating_sub(options)
    }
}

/// An error that a router or the peer has reported, with the sequence number of the segment that it quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// The reason.
    pub kind: ErrorKind,
    /// The longest packet that the next link takes, with [`ErrorKind::PacketTooBig`].
    pub next_hop_mtu: Option<u32>,
    /// The sequence number of the quoted segment.
    pub sequence: Seq,
}

/// The option of time stamps, aligned.
const TIMESTAMP_BYTES: u16 = 12;
