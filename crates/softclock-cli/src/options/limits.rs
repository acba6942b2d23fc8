//! The options that limit clients and their requests.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use softclock_http::head::HeadLimits;
use softclock_http::{ClientLimits, ConnectionOptions, Timeouts};

use crate::descriptors::connections_for;
use crate::values::{seconds, whole};

/// Limits of one server. A timeout of 0 is none.
#[derive(Args, Clone, PartialEq, Debug)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Most connections at a time, over all threads. At the limit, idle connections and slow request heads are closed
    /// to make room, and new connections wait in the kernel's queue. More than the default is lowered to it, with a
    /// warning [default: as many as the limit of open files allows]
    #[arg(long, value_name = "N", value_parser = whole(NonZeroUsize::MIN..))]
    pub(crate) max_connections: Option<NonZeroUsize>,

    /// Most connections of one client address at a time, over all threads; further ones are reset. The IPv6 addresses
    /// of a /64 network count as one, and unix: has no limit. Behind a proxy all clients have the proxy's address. 0
    /// for no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0usize..))]
    pub(crate) max_client_connections: usize,

    /// Most HTTP/2 streams of one client address at a time, over all its connections; further ones are refused, and
    /// clients may send them again. Addresses count as for --max-client-connections. One connection may have 128. 0 for
    /// no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0usize..))]
    pub(crate) max_client_streams: usize,

    /// Longest request line (256 to 65000); a longer one is answered 414
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10, value_parser = whole(256..=65_000u32))]
    pub(crate) max_line: u32,

    /// Longest request head (256 to 1048576); a longer one is answered 431
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = whole(256u32..=1 << 20))]
    pub(crate) max_head: u32,

    /// Most header fields of a request (10 to 10000); more are answered 431. In HTTP/2 cookies count as one field
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole(10..=10_000u32))]
    pub(crate) max_fields: u32,

    /// Most frames (SETTINGS, PING, requests without a response and so on) that an HTTP/2 client may send beyond those
    /// it needs to receive its responses (at most 1000000); with more, the connection is closed. The count falls by a
    /// hundredth of the limit each second. 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = whole(0..=1_000_000u32))]
    pub(crate) max_control_frames: u32,

    /// How long a new connection may send nothing before it is closed; 0 for no limit, here and for each timeout
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "30", value_parser = seconds)]
    pub(crate) first_byte_timeout: Duration,

    /// How long a request head may take from its first byte before it is answered 408; also limits the TLS handshake
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "10", value_parser = seconds)]
    pub(crate) head_timeout: Duration,

    /// How long a request body may pause before the request is answered 408. If the body is not needed, as with files,
    /// the response is sent anyway, and the connection is closed after this time or 2 seconds
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "30", value_parser = seconds)]
    pub(crate) body_timeout: Duration,

    /// How long a connection may be idle between requests
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "60", value_parser = seconds)]
    pub(crate) idle_timeout: Duration,

    /// How long a client may take no bytes of a response before the connection is reset; in HTTP/2 the stream, and the
    /// connection if all its streams wait. Time in which --pace holds bytes back does not count
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "60", value_parser = seconds)]
    pub(crate) send_timeout: Duration,

    /// Least rate at which a client must take a response, averaged over 30 seconds of waiting for it; 0 for no limit
    #[arg(long, value_name = "BYTES/S", default_value_t = 256, value_parser = whole(0..=u32::MAX))]
    pub(crate) min_rate: u32,

    /// Least rate at which a client must send a request body, averaged over 30 seconds of waiting for it; a slower
    /// request is answered 408. Time in which an upstream takes nothing does not count. 0 for no limit
    #[arg(long, value_name = "BYTES/S", default_value_t = 256, value_parser = whole(0..=u32::MAX))]
    pub(crate) min_upload_rate: u32,
}

impl LimitOptions {
    /// Returns the limits of each connection.
    pub(crate) fn connection(&self) -> ConnectionOptions {
        let unless_zero = |time: Duration| (!time.is_zero()).then_some(time);
        ConnectionOptions {
            head: HeadLimits {
                line_bytes: self.max_line as usize,
                head_bytes: self.max_head as usize,
                fields: self.max_fields as usize,
            },
            control_frames: self.max_control_frames,
            timeouts: Timeouts {
                first_byte: unless_zero(self.first_byte_timeout),
                head: unless_zero(self.head_timeout),
                body: unless_zero(self.body_timeout),
                idle: unless_zero(self.idle_timeout),
                send: unless_zero(self.send_timeout),
                min_rate: self.min_rate,
                min_upload_rate: self.min_upload_rate,
                ..Timeouts::default()
            },
        }
    }

    /// Returns the limits of each client address.
    pub(crate) fn clients(&self) -> ClientLimits {
        ClientLimits {
            connections: self.max_client_connections,
            streams: self.max_client_streams,
        }
    }

    /// Returns the limit of connections, if the process may have `descriptors` open.
    pub(crate) fn max_connections(&self, descriptors: u64) -> usize {
        let possible = connections_for(descriptors);
        at_most(possible, self.max_connections, "--max-connections")
    }
}

/// Returns `wanted`, but at most `possible`, with a warning that names `option`; without `wanted`, as many as possible.
pub(crate) fn at_most(possible: usize, wanted: Option<NonZeroUsize>, option: &str) -> usize {
    match wanted.map(NonZeroUsize::get) {
        Some(wanted) if wanted > possible => {
            tracing::warn!(
                wanted,
                possible,
                "{option} is more than the limit of open files allows (ulimit -n)"
            );
            possible
        }
        Some(wanted) => wanted,
        None => possible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Limits {
        #[command(flatten)]
        limits: LimitOptions,
    }

    fn limits(arguments: &[&str]) -> LimitOptions {
        let arguments = ["test"].iter().chain(arguments);
        Limits::try_parse_from(arguments).unwrap().limits
    }

    #[test]
    fn connections_are_as_many_as_descriptors_allow() {
        assert_eq!(limits(&[]).max_connections(1024), 480);
        let few = limits(&["--max-connections", "7"]);
        assert_eq!(few.max_connections(1024), 7);
        let many = limits(&["--max-connections", "700"]);
        assert_eq!(many.max_connections(1024), 480);
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let (here, library) = (limits(&[]).connection(), ConnectionOptions::default());
        assert_eq!(format!("{here:?}"), format!("{library:?}"));
        assert_eq!(limits(&[]).clients(), ClientLimits::default());
    }

    #[test]
    fn zero_is_never() {
        let never = limits(&["--first-byte-timeout", "0", "--send-timeout", "0.0"]).connection();
        assert_eq!(never.timeouts.first_byte, None);
        assert_eq!(never.timeouts.send, None);
        assert!(never.timeouts.head.is_some());
    }
}
