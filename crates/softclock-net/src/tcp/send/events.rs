//! What happens to sending halves, for the counters of all connections.

/// Something that happens to a sending half seldom, compared with its segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum SendEvent {
    /// A fast recovery has begun (RFC 5681, 3.2).
    Recovery,
    /// The retransmission timer has expired (RFC 6298, 5).
    Timeout,
    /// A tail loss probe was sent (RFC 8985, 7.3).
    TailProbe,
    /// A tail loss probe has repaired a loss (RFC 8985, 7.4).
    TailRepair,
    /// A closed window was probed (RFC 9293, 3.8.6.1).
    WindowProbe,
    /// The peer has reported that a segment arrived twice: D-SACK (RFC 2883).
    Duplicate,
    /// An acknowledgment has shown that segments were reordered.
    Reordering,
    /// The reordering window of RACK has grown (RFC 8985, 6.2, step 4).
    ReorderingWindow,
    /// A recovery was needless, by the duplicates that the peer reports (RFC 3708), and its effect was taken back.
    UndoneByDuplicates,
    /// A recovery was needless, by the time stamps that the peer echoes (Eifel, RFC 3522), and its effect was taken
    /// back.
    UndoneByTimestamps,
    /// A timeout was needless, by what arrived after it (F-RTO, RFC 5682), and its effect was taken back.
    UndoneByForwardRto,
    /// The congestion window was reduced as routers have marked packets (RFC 3168).
    CongestionMark,
    /// The peer has dropped bytes that it had acknowledged selectively (RFC 2018, 8).
    Reneging,
}

impl SendEvent {
    /// All events.
    pub const ALL: [Self; 13] = [
        Self::Recovery,
        Self::Timeout,
        Self::TailProbe,
        Self::TailRepair,
        Self::WindowProbe,
        Self::Duplicate,
        Self::Reordering,
        Self::ReorderingWindow,
        Self::UndoneByDuplicates,
        Self::UndoneByTimestamps,
        Self::UndoneByForwardRto,
        Self::CongestionMark,
        Self::Reneging,
    ];

    /// The name in reports and metrics: lower case with underscores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recovery => "recovery",
            Self::Timeout => "timeout",
            Self::TailProbe => "tail_probe",
            Self::TailRepair => "tail_repair",
            Self::WindowProbe => "window_probe",
            Self::Duplicate => "duplicate",
            Self::Reordering => "reordering",
            Self::ReorderingWindow => "reordering_window",
            Self::UndoneByDuplicates => "undone_by_duplicates",
            Self::UndoneByTimestamps => "undone_by_timestamps",
            Self::UndoneByForwardRto => "undone_by_forward_rto",
            Self::CongestionMark => "congestion_mark",
            Self::Reneging => "reneging",
        }
    }
}

/// The events of one call of a sending half, which has each at most once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendEvents(u16);

impl SendEvents {
    pub(super) const fn note(&mut self, event: SendEvent) {
        self.0 |= 1 << event as u8;
    }

    /// Whether nothing has happened.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this has happened.
    pub const fn contains(self, event: SendEvent) -> bool {
        self.0 & 1 << event as u8 != 0
    }
}

/// Why bytes are sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum RetransmissionCause {
    /// RACK has found them lost, by the time of later segments that have arrived (RFC 8985, 6).
    Rack,
    /// Without selective acknowledgments, duplicate ones have shown them lost (RFC 5681, 3.2; RFC 6582).
    Duplicates,
    /// The retransmission timer has expired (RFC 6298, 5); also a SYN that is sent again.
    Timeout,
    /// They are a tail loss probe (RFC 8985, 7.3).
    TailProbe,
    /// Their segment was longer than the path takes (RFC 1191, 8201).
    PathMtu,
}

impl RetransmissionCause {
    /// All causes.
    pub const ALL: [Self; 5] = [
        Self::Rack,
        Self::Duplicates,
        Self::Timeout,
        Self::TailProbe,
        Self::PathMtu,
    ];

    /// The name in reports and metrics: lower case with underscores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rack => "rack",
            Self::Duplicates => "duplicates",
            Self::Timeout => "timeout",
            Self::TailProbe => "tail_probe",
            Self::PathMtu => "path_mtu",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_the_order_of_numbers_and_names_are_distinct() {
        let mut names = [""; SendEvent::ALL.len()];
        for (place, event) in SendEvent::ALL.into_iter().enumerate() {
            assert_eq!(place, event as usize);
            assert!(!names.contains(&event.name()), "{event:?}");
            names[place] = event.name();
        }
        for (place, cause) in RetransmissionCause::ALL.into_iter().enumerate() {
            assert_eq!(place, cause as usize);
        }
        assert!(SendEvent::ALL.len() <= 16, "one bit for each");
    }

    #[test]
    fn each_event_has_a_bit_of_its_own() {
        let mut events = SendEvents::default();
        assert!(events.is_empty());
        events.note(SendEvent::Timeout);
        events.note(SendEvent::Reneging);
        let noted = SendEvent::ALL.map(|event| events.contains(event));
        assert_eq!(noted.into_iter().filter(|&is_noted| is_noted).count(), 2);
        assert!(events.contains(SendEvent::Timeout) && events.contains(SendEvent::Reneging));
    }
}
