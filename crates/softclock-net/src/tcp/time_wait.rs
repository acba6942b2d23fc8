//! TIME-WAIT: the rest of a connection that this end has closed first, kept until its old segments have left the
//! network (RFC 9293, 3.6.1).
//!
//! A record acknowledges a FIN that is retransmitted, ignores resets (RFC 1337), and gives way to a SYN that is surely
//! new (RFC 6191). It takes 64 bytes and its share of an index, so its time can be long.

use core::time::Duration;

use softclock_core::Instant;

use crate::demux::Flow;
use crate::drops::DropReason;
use crate::due::Slack;

use super::challenge::Trust;
use super::flow_map::{FlowMap, Place, Record, Slot};
use super::listen::Shared;
use super::peer::Offer;
use super::segment::{Flags, Header, Options, Reply, Segment, Timestamps};
use super::seq::Seq;

/// The settings of a [`TimeWaitTable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TimeWaitSettings {
    /// The time in TIME-WAIT. The default is 60 s, as in Linux and FreeBSD; RFC 9293 asks for twice the longest life of
    /// a segment, 4 minutes. *LRP* measures with 500 ms.
    pub duration: Duration,
    /// Whether a SYN that is surely newer begins another connection of the same addresses and ports (RFC 6191; RFC
    /// 1122, 4.2.2.13). The default is yes; without it, each SYN is answered by a challenge ACK.
    pub gives_way: bool,
    /// What ends the wait although it may be forged. The default is nothing (RFC 5961); a reset never does (RFC 1337).
    pub trust: Trust,
    /// The most connections in TIME-WAIT; beyond that, the oldest gives way. The default is 65 536, which take 5 MB.
    pub most: usize,
}

impl Default for TimeWaitSettings {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(60),
            gives_way: true,
            trust: Trust::default(),
            most: 65_536,
        }
    }
}

/// The state of a connection that enters TIME-WAIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastState {
    /// The position behind this end's FIN (SND.NXT).
    pub send_next: Seq,
    /// The position behind the peer's FIN (RCV.NXT).
    pub receive_next: Seq,
    /// The window of the last acknowledgment, as in its header.
    pub window: u16,
    /// The newest time stamp of the peer (TS.Recent), if both ends send them.
    pub timestamp: Option<u32>,
}

/// The connections in TIME-WAIT.
///
/// ```
/// use core::time::Duration;
/// use softclock_core::Instant;
/// use softclock_net::demux::{Flow, HashKey, Transport};
/// use softclock_net::tcp::listen::{Shared, SharedSettings};
/// use softclock_net::tcp::segment::{Flags, Header, Options, Segment};
/// use softclock_net::tcp::seq::Seq;
/// use softclock_net::tcp::time_wait::{LastState, TimeWaitOutcome, TimeWaitSettings, TimeWaitTable};
///
/// let mut shared = Shared::new(SharedSettings::default(), HashKey([1, 2])); // In earnest: random, and secret.
/// let mut table = TimeWaitTable::new(TimeWaitSettings::default(), &shared);
/// let flow = Flow {
///     transport: Transport::Tcp,
///     remote: ("192.0.2.7".parse().unwrap(), 40_000),
///     local: ("192.0.2.1".parse().unwrap(), 80),
/// };
/// let last = LastState { send_next: Seq(9), receive_next: Seq(5), window: 100, timestamp: None };
/// let now = Instant::ORIGIN;
/// assert_eq!(table.insert(now, flow, last), None);
///
/// let header = Header {
///     sequence: Seq(4),
///     acknowledgment: Seq(9),
///     flags: Flags::FIN | Flags::ACK,
///     ..Header::default()
/// };
/// let fin = Segment { header, options: Options::default(), payload: &[] };
/// let outcome = table.on_segment(&mut shared, now, flow, &fin, None);
/// let TimeWaitOutcome::Reply(ack) = outcome else { panic!("{outcome:?}") };
/// assert_eq!((ack.header.sequence, ack.header.acknowledgment), (Seq(9), Seq(5)));
/// assert_eq!(table.on_timer(now + Duration::from_secs(60)), Some(flow));
/// ```
pub struct TimeWaitTable {
    map: FlowMap<TimeWait>,
    settings: TimeWaitSettings,
}

/// The result of a segment to a connection in TIME-WAIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeWaitOutcome {
    /// A segment must be sent.
    Reply(Reply),
    /// The segment counts as dropped for this reason, and an acknowledgment must be sent.
    Refused(Reply, DropReason),
    /// The connection has given way to a SYN, which the caller gives to the listener's
    /// [`on_syn`](super::listen::Listener::on_syn).
    Reuse {
        /// The last sequence number of this end, for the new connection to begin behind.
        previous: Seq,
    },
    /// The segment told nothing new.
    Done,
    /// The segment is dropped.
    Dropped(DropReason),
    /// No connection of the flow is in TIME-WAIT.
    Unknown,
}

impl TimeWaitTable {
    /// Creates an empty table.
    pub fn new(settings: TimeWaitSettings, shared: &Shared) -> Self {
        Self {
            map: FlowMap::new(shared.table_key()),
            settings,
        }
    }

    /// Replaces the settings. Returns false, and changes nothing, if the time or the limit would change while
    /// connections wait: they are in the order of their deadlines.
    pub fn change_settings(&mut self, settings: TimeWaitSettings) -> bool {
        let has_same_bounds =
            settings.duration == self.settings.duration && settings.most == self.settings.most;
        let is_possible = has_same_bounds || self.is_empty();
        if is_possible {
            self.settings = settings;
        }
        is_possible
    }

    /// Adds a connection. Returns the flow of another that gives way if the table is full; the flow itself if the
    /// settings allow none, or if it is present, which then begins anew.
    pub fn insert(&mut self, now: Instant, flow: Flow, last: LastState) -> Option<Flow> {
        if self.settings.most == 0 {
            return Some(flow);
        }
        let record = TimeWait::new(last, now + self.settings.duration);
        if let Some(place) = self.map.find(&flow) {
            self.map.requeue(place, record);
            return Some(flow);
        }
        let displaced = match self.map.len() >= self.settings.most {
            true => self.remove_first(),
            false => None,
        };
        self.map.insert(&flow, record);
        displaced
    }

    /// Processes a segment (RFC 9293, 3.10.7.4). `offer` is that of the listener that
    /// would take a SYN of the flow: `None` if there is none, or if it is
    /// [full](super::listen::Listener::is_full).
    pub fn on_segment(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        flow: Flow,
        segment: &Segment<'_>,
        offer: Option<&Offer>,
    ) -> TimeWaitOutcome {
        let Some(place) = self.map.find(&flow) else {
            return TimeWaitOutcome::Unknown;
        };
        let record = *self.map.get(place);
        let header = &segment.header;
        // RFC 1337: a reset would end the wait before the old segments are gone.
        if header.flags.contains(Flags::RST) {
            return TimeWaitOutcome::Dropped(DropReason::TcpState);
        }
        if header.flags.contains(Flags::SYN) {
            // No peer opens a connection by a SYN that closes it.
            let may_open = self.settings.gives_way && !header.flags.contains(Flags::FIN);
            let is_new =
                may_open && offer.is_some_and(|offer| record.is_surely_before(segment, offer));
            let limit = record.receive_next + u32::from(record.window);
            let is_in_window = header.sequence.is_within(record.receive_next, limit);
            return match is_new {
                false if is_in_window && self.settings.trust.syns_in_window => {
                    self.map.remove(place);
                    let flags = Flags::RST | Flags::ACK;
                    let (own, next) = (record.send_next, record.receive_next);
                    TimeWaitOutcome::Reply(Reply::new(flow, own, next, flags, 0))
                }
                true => {
                    self.map.remove(place);
                    let previous = record.send_next;
                    TimeWaitOutcome::Reuse { previous }
                }
                false => self.challenge(shared, now, flow, place, DropReason::TcpBlindReset),
            };
        }
        if !header.flags.contains(Flags::ACK) {
            return TimeWaitOutcome::Dropped(DropReason::TcpState);
        }
        let recent = segment.options.timestamps.map(|times| Seq(times.value));
        let is_old = match (record.timestamp(), recent) {
            (Some(last), Some(recent)) => recent.is_before(Seq(last)),
            _ => false,
        };
        if is_old {
            return self.answer(shared, now, flow, place, segment, DropReason::TcpTimestamp);
        }
        if record.is_expected(segment) {
            return TimeWaitOutcome::Done;
        }
        if record.is_fin_again(segment) {
            // The peer has not got the acknowledgment of its FIN: the wait begins anew.
            let deadline = now + self.settings.duration;
            self.map.requeue(place, record.with_deadline(deadline));
            return TimeWaitOutcome::Reply(record.acknowledgment(shared, now, flow));
        }
        let reason = DropReason::TcpUnacceptable;
        self.answer(shared, now, flow, place, segment, reason)
    }

    /// Removes one connection whose time is over, and returns its flow. Call it until it returns `None`.
    pub fn on_timer(&mut self, now: Instant) -> Option<Flow> {
        let first = self.map.first(0)?;
        match self.map.get(first).deadline() <= now {
            true => self.remove_first(),
            false => None,
        }
    }

    /// The time of the next call of [`on_timer`](Self::on_timer).
    pub fn next_timeout(&self) -> Option<Instant> {
        let first = self.map.first(0)?;
        Some(self.map.get(first).deadline())
    }

    /// How late [`on_timer`](Self::on_timer) may be: old segments are gone a while after, too.
    pub fn slack(&self) -> Duration {
        Slack::LONG.of_time(self.settings.duration)
    }

    /// Removes a connection whose flow this end opens anew, and returns its last sequence number, for the
    /// [initial one](super::listen::FlowSecrets::initial_sequence_after) of the new connection.
    pub fn remove(&mut self, flow: &Flow) -> Option<Seq> {
        let place = self.map.find(flow)?;
        Some(self.map.remove(place).send_next)
    }

    /// Forgets all connections.
    pub fn clear(&mut self) {
        while self.remove_first().is_some() {}
    }

    /// Whether a connection of the flow is in TIME-WAIT.
    pub fn contains(&self, flow: &Flow) -> bool {
        self.map.find(flow).is_some()
    }

    /// The number of connections.
    pub const fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether no connection is in TIME-WAIT.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn remove_first(&mut self) -> Option<Flow> {
        let first = self.map.first(0)?;
        let flow = self.map.flow(first);
        self.map.remove(first);
        Some(flow)
    }

    /// Acknowledges a segment that is dropped. Only segments without bytes can be answers themselves, so only these are
    /// limited: a loop of acknowledgments ends, and no peer waits for that of its bytes.
    fn answer(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        flow: Flow,
        place: Place,
        segment: &Segment<'_>,
        reason: DropReason,
    ) -> TimeWaitOutcome {
        match segment.sequence_length() {
            0 => self.challenge(shared, now, flow, place, reason),
            _ => {
                let reply = self.map.get(place).acknowledgment(shared, now, flow);
                TimeWaitOutcome::Refused(reply, reason)
            }
        }
    }

    /// Acknowledges a segment that is dropped, if the limits allow.
    fn challenge(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        flow: Flow,
        place: Place,
        reason: DropReason,
    ) -> TimeWaitOutcome {
        let mut record = *self.map.get(place);
        if !record.may_answer(now) || !shared.challenges().allows_any(now) {
            return TimeWaitOutcome::Dropped(reason);
        }
        record.set_answered(now);
        self.map.replace(place, record);
        TimeWaitOutcome::Refused(record.acknowledgment(shared, now, flow), reason)
    }
}

/// A connection in TIME-WAIT, in 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TimeWait {
    send_next: Seq,
    receive_next: Seq,
    /// TS.Recent, if the flag says so.
    timestamp: u32,
    /// The deadline in milliseconds, which have 40 bits: enough for 34 years.
    deadline_low: u32,
    window: u16,
    deadline_high: u8,
    /// Whether there are time stamps (the highest bit), and the period of the latest limited answer.
    flags: u8,
}

impl TimeWait {
    fn new(last: LastState, deadline: Instant) -> Self {
        Self {
            send_next: last.send_next,
            receive_next: last.receive_next,
            timestamp: last.timestamp.unwrap_or(0),
            deadline_low: 0,
            window: last.window,
            deadline_high: 0,
            flags: match last.timestamp {
                Some(_) => TIMESTAMPS | NO_ANSWER,
                None => NO_ANSWER,
            },
        }
        .with_deadline(deadline)
    }

    fn with_deadline(self, deadline: Instant) -> Self {
        let ms = deadline.as_ns().div_ceil(NS_IN_MS);
        Self {
            deadline_low: ms as u32,
            deadline_high: (ms >> 32) as u8,
            ..self
        }
    }

    fn deadline(&self) -> Instant {
        let ms = u64::from(self.deadline_high) << 32 | u64::from(self.deadline_low);
        Instant::ORIGIN.add_ns(ms * NS_IN_MS)
    }

    fn timestamp(&self) -> Option<u32> {
        (self.flags & TIMESTAMPS != 0).then_some(self.timestamp)
    }

    /// Whether a SYN was surely sent after all segments of this connection (RFC 6191, 2).
    fn is_surely_before(&self, syn: &Segment<'_>, offer: &Offer) -> bool {
        if syn.header.flags.contains(Flags::ACK) {
            return false;
        }
        let is_beyond = self.receive_next.is_before(syn.header.sequence);
        let times = syn.options.timestamps.filter(|_| offer.has_timestamps);
        let recent = times.map(|times| Seq(times.value));
        match (self.timestamp().map(Seq), recent) {
            (Some(last), Some(recent)) if last == recent => is_beyond,
            (Some(last), Some(recent)) => last.is_before(recent),
            (None, Some(_)) => true,
            (_, None) => is_beyond,
        }
    }

    /// Whether a segment is the acknowledgment of this end's FIN, without anything else.
    fn is_expected(&self, segment: &Segment<'_>) -> bool {
        let Header {
            sequence,
            acknowledgment,
            ..
        } = segment.header;
        segment.sequence_length() == 0
            && sequence == self.receive_next
            && acknowledgment == self.send_next
    }

    fn is_fin_again(&self, segment: &Segment<'_>) -> bool {
        let end = segment.header.sequence + segment.sequence_length();
        segment.header.flags.contains(Flags::FIN) && end == self.receive_next
    }

    /// Whether no limited answer was sent in this period, as far as seven bits tell.
    fn may_answer(&self, now: Instant) -> bool {
        self.flags & !TIMESTAMPS != period(now)
    }

    fn set_answered(&mut self, now: Instant) {
        self.flags = self.flags & TIMESTAMPS | period(now);
    }

    fn acknowledgment(&self, shared: &Shared, now: Instant, flow: Flow) -> Reply {
        let numbers = (self.send_next, self.receive_next);
        let timestamps = self.timestamp().map(|echo| Timestamps {
            value: shared.timestamp(&flow, now),
            echo,
        });
        Reply::new(flow, numbers.0, numbers.1, Flags::ACK, self.window).with_options(Options {
            timestamps,
            ..Options::default()
        })
    }
}

impl Record for TimeWait {
    const LISTS: usize = 1;

    fn list(&self) -> usize {
        0
    }
}

/// The number of the period in which an answer is sent, of which there are 127.
fn period(now: Instant) -> u8 {
    (now.as_ns() / ANSWER_PERIOD_NS % u64::from(NO_ANSWER)) as u8
}

/// A connection answers one segment without bytes in each such period, as in Linux (`tcp_invalid_ratelimit`).
const ANSWER_PERIOD_NS: u64 = 500_000_000;

const TIMESTAMPS: u8 = 1 << 7;
const NO_ANSWER: u8 = 0x7f;

const NS_IN_MS: u64 = 1_000_000;

const _: () = assert!(size_of::<Slot<TimeWait>>() <= 64);

#[cfg(test)]
mod tests;
