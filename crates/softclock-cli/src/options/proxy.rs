//! The options of `softclock proxy`.

use clap::Args;

use super::server::ServerOptions;
use super::upstream::UpstreamOptions;

/// The options of `softclock proxy`.
#[derive(Args, Clone, Debug)]
#[command(after_help = PROXY_NOTES)]
pub(crate) struct ProxyOptions {
    #[command(flatten)]
    pub(crate) upstreams: UpstreamOptions,

    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

const PROXY_NOTES: &str = "\
Upstreams take turns. An upstream that fails is left out for a while, and requests that may be repeated are sent to \
another. Bodies pass as fast as both sides allow, and only their beginning is kept (--upload-buffer). \
Connection-specific header fields are not passed on, and Forwarded only from clients on Unix sockets; Via, \
X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host are added. An upgrade that an upstream accepts (WebSocket) \
becomes a tunnel. If no upstream responds, the answer is 502, 503 or 504 with the reason.

SECONDS are a number, or a time with its unit: 500ms, 10s, 2m.

Examples:
  softclock proxy --upstream http://127.0.0.1:3000
  softclock proxy --upstream http://10.0.0.1:80 --upstream http://10.0.0.2:80 --listen :80
  softclock proxy --upstream unix:/run/app.sock --listen tls::443 --tls-cert chain.pem --tls-key key.pem
  softclock proxy --config proxy.toml          upstream = [\"http://app:3000\", \"http://app2:3000\"]
                                               listen = \":80\"
";
