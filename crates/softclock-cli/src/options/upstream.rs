//! The options of a proxy toward its upstreams.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use softclock_http::{HealthOptions, ProxyOptions, UpstreamTimeouts, UpstreamUrl, ViaName};

use super::limits::at_most;
use crate::values::{seconds, whole};

/// Options of a proxy toward its upstreams. A timeout of 0 is none.
#[derive(Args, Clone, PartialEq, Debug)]
#[command(next_help_heading = "Upstreams")]
pub(crate) struct UpstreamOptions {
    /// Server to forward requests to: http://HOST:PORT, http://HOST:PORT/PREFIX to put a prefix before paths, or
    /// unix:PATH; repeatable, upstreams take turns
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    pub(crate) upstream: Vec<UpstreamUrl>,

    /// Send the upstream's name in Host instead of the client's
    #[arg(long)]
    pub(crate) rewrite_host: bool,

    /// Name of this proxy in Via. A request that already has it is in a loop and is answered 508, so chained proxies
    /// need different names [default: unique to the process]
    #[arg(long, value_name = "NAME")]
    pub(crate) via: Option<ViaName>,

    /// Most upstreams to try for one request (1 to 100). Unreachable ones do not count while others are up. After a part
    /// of the request was sent, only GET, HEAD, OPTIONS, PUT, DELETE and TRACE are tried again; and none once a part of
    /// the response has arrived, or more of the body was read than --upload-buffer holds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(1..=100u32))]
    pub(crate) tries: u32,

    /// Leave an upstream out after this many failures in a row, counted by each thread; 0 for never. A response that
    /// breaks off is a failure
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(0..=u32::MAX))]
    pub(crate) max_fails: u32,

    /// How long an upstream is left out. Then one request tries it, and moves to another upstream if that fails. If all
    /// are left out, requests are sent to them anyway
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "10", value_parser = seconds)]
    pub(crate) fail_time: Duration,

    /// How long connecting to an upstream may take; 0 turns this or any other timeout off
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "5", value_parser = seconds)]
    pub(crate) connect_timeout: Duration,

    /// How long an upstream may take no bytes of a request
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "60", value_parser = seconds)]
    pub(crate) upstream_send_timeout: Duration,

    /// How long an upstream may take from the end of a request to the first byte of its response
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "60", value_parser = seconds)]
    pub(crate) response_timeout: Duration,

    /// How long an upstream may pause in a response
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "60", value_parser = seconds)]
    pub(crate) upstream_read_timeout: Duration,

    /// How long a tunnel, such as a WebSocket, may be idle
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "600", value_parser = seconds)]
    pub(crate) tunnel_timeout: Duration,

    /// Idle connections to keep to each upstream, over all threads; 0 for none. Each thread keeps its share, rounded
    /// down, but at least one. With fewer than there are requests at a time, the others connect anew each time
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = whole(0usize..))]
    pub(crate) keep: usize,

    /// How long to keep idle connections; best shorter than the upstreams do
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "30", value_parser = seconds)]
    pub(crate) keep_time: Duration,

    /// Most requests at a time to each upstream, over all threads; 0 for no limit. If all upstreams are at the limit,
    /// the answer is 503
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0usize..))]
    pub(crate) max_requests: usize,

    /// Most connections to all upstreams at a time, over all threads, including tunnels and idle ones. At the limit,
    /// idle ones are closed to make room, else the answer is 503. Each active HTTP/2 stream takes one. More than the
    /// default is lowered to it, with a warning [default: what the limit of open files leaves beside --max-connections]
    #[arg(long, value_name = "N", value_parser = whole(NonZeroUsize::MIN..))]
    pub(crate) max_upstream_connections: Option<NonZeroUsize>,

    /// Finish requests whose clients have closed their sending side
    ///
    /// Without this option, when the client closes the connection or its sending side (FIN) before the response begins,
    /// the request is abandoned and its connection to the upstream closed: the proxy cannot tell these apart. The
    /// access log then has the status 499. Once a response has begun, and in tunnels, the connection is closed when the
    /// other side is silent for 5 seconds. Clients that close their sending side after the request and then wait for
    /// the response, such as nc -N, need this option.
    #[arg(long)]
    pub(crate) half_close: bool,

    /// How much of a request body to read before an upstream is chosen (at most 16777216); a shorter body is read
    /// completely, so clients that send slowly occupy no upstream. Each request with a body may take this much memory.
    /// 0 passes each piece on as it arrives, for clients and upstreams that answer each other within a short body.
    /// Requests with longer bodies get half of the places with upstreams; further ones wait for --connect-timeout, and
    /// are then answered 503
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10, value_parser = whole(0u32..=16 << 20))]
    pub(crate) upload_buffer: u32,

    /// How often to resolve the names of upstreams again; 0 to resolve them on SIGHUP only
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "30", value_parser = seconds)]
    pub(crate) resolve: Duration,
}

impl UpstreamOptions {
    /// Returns the options of the proxy, if `possible` connections to upstreams can be open.
    pub(crate) fn proxy(&self, possible: usize) -> ProxyOptions {
        let unless_zero = |time: Duration| (!time.is_zero()).then_some(time);
        ProxyOptions {
            rewrite_host: self.rewrite_host,
            via: self.via.clone(),
            tries: self.tries,
            health: HealthOptions {
                max_fails: self.max_fails,
                fail_time: self.fail_time,
            },
            timeouts: UpstreamTimeouts {
                connect: unless_zero(self.connect_timeout),
                send: unless_zero(self.upstream_send_timeout),
                first_byte: unless_zero(self.response_timeout),
                read: unless_zero(self.upstream_read_timeout),
            },
            idle_connections: self.keep,
            idle_time: self.keep_time,
            upload_buffer: self.upload_buffer as usize,
            max_connections: self.max_requests,
            max_upstream_connections: at_most(
                possible,
                self.max_upstream_connections,
                "--max-upstream-connections",
            ),
            tunnel_idle: unless_zero(self.tunnel_timeout),
            half_close: self.half_close,
            resolve_every: self.resolve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        upstream: UpstreamOptions,
        #[arg(long)]
        config: bool,
    }

    fn proxy(arguments: &[&str]) -> ProxyOptions {
        let arguments = ["test", "--upstream=http://a"].iter().chain(arguments);
        let only = Only::try_parse_from(arguments).unwrap();
        assert!(!only.config);
        only.upstream.proxy(POSSIBLE)
    }

    const POSSIBLE: usize = 10_000;

    #[test]
    fn defaults_are_those_of_the_library() {
        assert_eq!(proxy(&[]), ProxyOptions::default());
    }

    #[test]
    fn connections_are_at_most_those_possible() {
        let connections = |wanted| {
            let option = format!("--max-upstream-connections={wanted}");
            proxy(&[&option]).max_upstream_connections
        };
        assert_eq!((connections(7), connections(POSSIBLE + 1)), (7, POSSIBLE));
    }

    #[test]
    fn zero_is_never() {
        let never = proxy(&["--connect-timeout=0", "--tunnel-timeout=0"]);
        assert_eq!((never.timeouts.connect, never.tunnel_idle), (None, None));
        assert!(never.timeouts.read.is_some());
    }
}
