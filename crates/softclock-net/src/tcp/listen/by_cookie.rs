//! Handshakes by SYN cookies.

use softclock_core::Instant;

use super::{Listener, Outcome, Shared, cookies, refuse};
use crate::demux::Flow;
use crate::drops::DropReason;
use crate::tcp::peer::{Ecn, EcnMode, PeerOptions};
use crate::tcp::segment::{Flags, Segment};
use crate::tcp::seq::Seq;

impl<T: PartialEq> Listener<T> {
    /// Answers a SYN without keeping any record of it.
    pub(super) fn answer_by_cookie(
        &mut self,
        shared: &Shared,
        now: Instant,
        flow: Flow,
        syn: &Segment<'_>,
        peer: &PeerOptions,
    ) -> Outcome {
        // Without time stamps there is no room for options, so they must not be agreed on.
        let peer = match peer.timestamps {
            Some(_) => *peer,
            None => without_options(peer.mss),
        };
        let remote_initial = syn.header.sequence;
        let cookie = cookies::encode(&shared.secrets, &flow, remote_initial, peer.mss, now);
        let reading = shared.settings.timestamps.reading(now);
        let timestamp = cookies::encode_options(reading, &peer)
            .wrapping_add(shared.secrets.timestamp_offset(&flow));
        self.last_cookie = Some(now);
        self.stats.cookies_sent += 1;
        Outcome::Reply(self.syn_ack_of(flow, [cookie, remote_initial], &peer, timestamp))
    }

    /// An acknowledgment of a flow without half-open connection: valid if it acknowledges a cookie.
    pub(super) fn on_ack_without_state(
        &mut self,
        shared: &Shared,
        arrived: Instant,
        flow: Flow,
        segment: &Segment<'_>,
    ) -> Outcome {
        let is_possible = !segment.header.flags.contains(Flags::SYN)
            && self
                .last_cookie
                .is_some_and(|last| arrived.ns_since(last) < cookies::LIFETIME_NS);
        let local_initial = segment.header.acknowledgment - 1;
        let remote_initial = segment.header.sequence - 1;
        let numbers = [local_initial, remote_initial];
        let peer = is_possible
            .then(|| self.peer_of_cookie(shared, arrived, &flow, segment, numbers))
            .flatten();
        let Some(peer) = peer else {
            self.stats.cookies_refused += u64::from(is_possible);
            return refuse(flow, segment, DropReason::TcpBadCookie);
        };
        if self.complete.is_full() {
            return self.refuse_as_full();
        }
        self.stats.cookies_accepted += 1;
        Outcome::Completed(self.handshake(shared, flow, numbers, peer, segment, arrived))
    }

    /// The options in a cookie, `None` if it is not valid.
    fn peer_of_cookie(
        &self,
        shared: &Shared,
        arrived: Instant,
        flow: &Flow,
        segment: &Segment<'_>,
        [local_initial, remote_initial]: [Seq; 2],
    ) -> Option<PeerOptions> {
        let secrets = &shared.secrets;
        let mss = cookies::decode(secrets, flow, remote_initial, local_initial, arrived)?;
        let offer = &self.settings.offer;
        let times = segment.options.timestamps.filter(|_| offer.has_timestamps);
        let Some(times) = times else {
            return Some(without_options(mss));
        };
        // An echo that this host cannot have sent within the cookie's life is forged: it makes guesses 2^15 times as
        // expensive at a unit of milliseconds.
        let echo = times.echo.wrapping_sub(secrets.timestamp_offset(flow));
        let unit = shared.settings.timestamps;
        let age = unit.reading(arrived).wrapping_sub(echo);
        if u64::from(age) * unit.ns() > cookies::LIFETIME_NS + COOKIE_OPTIONS_UNITS * unit.ns() {
            return None;
        }
        let peer = cookies::decode_options(echo, times.value, mss);
        Some(PeerOptions {
            window_scale: offer.window_scale.and(peer.window_scale),
            is_sack_permitted: offer.has_sack && peer.is_sack_permitted,
            ecn: match offer.ecn {
                EcnMode::Off => Ecn::Off,
                EcnMode::Accept | EcnMode::On => peer.ecn,
            },
            ..peer
        })
    }
}

fn without_options(mss: u16) -> PeerOptions {
    PeerOptions {
        mss,
        window_scale: None,
        is_sack_permitted: false,
        timestamps: None,
        ecn: Ecn::Off,
    }
}

/// The most units by which the options make the time stamp of a cookie older.
const COOKIE_OPTIONS_UNITS: u64 = 128;
