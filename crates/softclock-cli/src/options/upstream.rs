//! Where a proxy passes requests on to, and how.

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
    /// Server that requests are passed on to: http://HOST:PORT, http://HOST:PORT/PREFIX to put a prefix before paths,
    /// or unix:PATH; repeatable, they take turns
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    pub(crate) upstream: Vec<UpstreamUrl>,

    /// Name the upstream in Host, in place of what the client asked for
    #[arg(long)]
    pub(crate) rewrite_host: bool,

    /// Name of this proxy in Via. A request that has it already goes round in a loop, and is answered 508; so proxies
    /// that are chained need different names [default: one that is unique to the process]
    #[arg(long, value_name = "NAME")]
    pub(crate) via: Option<ViaName>,

    /// Most upstreams to send one request to. Those that cannot be reached do not count while others are up. After
    /// something was sent, GET, HEAD, OPTIONS, PUT, DELETE and TRACE are tried again, others are not; none is once part
    /// of a response has come, or more of the body was taken than --upload-buffer
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(1..=100u32))]
    pub(crate) tries: u32,

    /// Leave an upstream out after so many failures in a row, as each thread sees it; 0 for never. A response that
    /// breaks off is a failure
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(0..=u32::MAX))]
    pub(crate) max_fails: u32,

    /// For how long; then one request tries it again, and is sent to one that is up if that fails. If all are left out
    /// they are asked all the same
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "10", value_parser = seconds)]
    pub(crate) fail_time: Duration,

    /// How long connecting to an upstream may take; 0 turns this and the other timeouts off
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "5", value_parser = seconds)]
    pub(crate) connect_timeout: Duration,

    /// How long an upstream may take nothing of a request
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "60", value_parser = seconds)]
    pub(crate) upstream_send_timeout: Duration,

    /// How long an upstream may take from the end of a request to the first byte of its response
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "60", value_parser = seconds)]
    pub(crate) response_timeout: Duration,

    /// How long an upstream may pause in a response
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "60", value_parser = seconds)]
    pub(crate) upstream_read_timeout: Duration,

    /// How long nothing may pass through a tunnel, such as a WebSocket
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "600", value_parser = seconds)]
    pub(crate) tunnel_timeout: Duration,

    /// Idle connections to keep to each upstream, all threads together; 0 for none. Each thread keeps its share,
    /// rounded down, but one at least
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole(0usize..))]
    pub(crate) keep: usize,

    /// How long to keep them; less than upstreams do is best
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "30", value_parser = seconds)]
    pub(crate) keep_time: Duration,

    /// Requests at a time with each upstream, all threads together; 0 for any number. If all upstreams have so many,
    /// the answer is 503
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0usize..))]
    pub(crate) max_requests: usize,

    /// Connections to all upstreams together at a time, all threads together, with tunnels and idle ones. At so many, idle
    /// ones are closed to make room, and else the answer is 503. Each stream of HTTP/2 that is answered takes one [default:
    /// what the limit of open files leaves beside --max-connections]
    #[arg(long, value_name = "N", value_parser = whole(NonZeroUsize::MIN..))]
    pub(crate) max_upstream_connections: Option<NonZeroUsize>,

    /// Finish requests whose clients have ended their side of the connection
    ///
    /// Without this option a request is given up, and its connection to the upstream closed, when the client closes or
    /// ends its side (FIN) before the response begins: both look the same. The access log then has the status 499.
    /// Once a response has begun, and in tunnels, the connection is closed when the other side is silent for 5 seconds.
    /// Clients that end their side behind their request and then wait for the response, such as nc -N, need this option.
    #[arg(long)]
    pub(crate) half_close: bool,

    /// How much of a request's body to read before an upstream is chosen, and all of a shorter one; so clients that
    /// send slowly occupy no upstream. Each request with a body may take this much memory. 0 passes each piece on as it
    /// arrives, for clients and upstreams that answer each other within a short body. Requests whose clients send more
    /// behind that get half of the places with upstreams; others wait for --connect-timeout, and then the answer is 503
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10, value_parser = whole(0u32..=16 << 20))]
    pub(crate) upload_buffer: u32,

    /// How often to resolve the names of upstreams again; 0 for at SIGHUP only
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "30", value_parser = seconds)]
    pub(crate) resolve: Duration,
}

impl UpstreamOptions {
    /// How requests are passed on, where so many connections to upstreams are possible.
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
