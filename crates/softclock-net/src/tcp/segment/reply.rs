//! Segments without payload, which answer others.

use super::{Flags, Header, Options, Segment, Seq};
use crate::checksum::Addresses;
use crate::demux::Flow;
use crate::tcp::settings::Service;

/// A segment without payload that must be sent: a SYN-ACK, an acknowledgment or a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The flow, whose remote end is the receiver of the reply.
    pub flow: Flow,
    /// The header, with the ports of the flow.
    pub header: Header,
    /// The options.
    pub options: Options,
    /// The fields of the IP header: the defaults unless a connection or a listener has others.
    pub service: Service,
}

impl Reply {
    /// Creates a segment of a flow.
    pub fn new(flow: Flow, sequence: Seq, acknowledgment: Seq, flags: Flags, window: u16) -> Self {
        let header = Header {
            source_port: flow.local.1,
            destination_port: flow.remote.1,
            sequence,
            acknowledgment,
            flags,
            window,
            urgent: 0,
        };
        Self {
            flow,
            header,
            options: Options::default(),
            service: Service::default(),
        }
    }

    /// The same segment with these fields of the IP header.
    #[must_use]
    pub const fn with_service(self, service: Service) -> Self {
        Self { service, ..self }
    }

    /// The reset for a segment that belongs to no connection, or that acknowledges bytes that were never sent
    /// (RFC 9293, 3.10.7.1). `None` for a reset, which is never answered.
    ///
    /// ```
    /// use softclock_net::demux::{Flow, Transport};
    /// use softclock_net::tcp::segment::{Flags, Header, Options, Reply, Segment};
    /// use softclock_net::tcp::seq::Seq;
    ///
    /// let flow = Flow {
    ///     transport: Transport::Tcp,
    ///     remote: ("192.0.2.7".parse().unwrap(), 40_000),
    ///     local: ("192.0.2.1".parse().unwrap(), 80),
    /// };
    /// let header = Header { sequence: Seq(7), flags: Flags::SYN, ..Header::default() };
    /// let syn = Segment { header, options: Options::default(), payload: &[] };
    /// let reset = Reply::reset(flow, &syn).unwrap().header;
    /// assert_eq!(reset.flags, Flags::RST | Flags::ACK);
    /// assert_eq!((reset.sequence, reset.acknowledgment), (Seq(0), Seq(8)));
    /// ```
    pub fn reset(flow: Flow, segment: &Segment<'_>) -> Option<Self> {
        let header = &segment.header;
        if header.flags.contains(Flags::RST) {
            return None;
        }
        Some(match header.flags.contains(Flags::ACK) {
            true => Self::new(flow, header.acknowledgment, Seq(0), Flags::RST, 0),
            false => {
                let next = header.sequence + segment.sequence_length();
                Self::new(flow, Seq(0), next, Flags::RST | Flags::ACK, 0)
            }
        })
    }

    /// The same reply with options.
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// The addresses of the reply, for [`emit`](super::emit).
    pub fn addresses(&self) -> Addresses {
        Addresses {
            source: self.flow.local.0,
            destination: self.flow.remote.0,
        }
    }
}
