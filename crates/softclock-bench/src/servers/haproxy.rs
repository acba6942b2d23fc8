//! HAProxy with one thread, as a proxy.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::write_file;

/// Returns Debian's path, which is not in every user's `PATH`, if it exists.
pub(crate) fn program() -> &'static str {
    let debians = "/usr/sbin/haproxy";
    if Path::new(debians).exists() {
        debians
    } else {
        "haproxy"
    }
}

pub(super) fn proxy(
    address: SocketAddr,
    upstream: SocketAddr,
    descriptors: u64,
    global: &str,
    directory: &Path,
) -> io::Result<Command> {
    let configuration = configuration(address, upstream, descriptors, global);
    let path = write_file(directory, "haproxy.cfg", &configuration)?;
    let mut command = Command::new(program());
    command.arg("-db").arg("-f").arg(path);
    Ok(command)
}

/// Returns the configuration. Connections to the upstream are kept and reused by any request, also when most
/// descriptors are in use, which HAProxy would otherwise prevent; silent clients are kept for an hour. HAProxy reserves
/// two descriptors for each possible connection. `global` is one more line of that section.
fn configuration(
    address: SocketAddr,
    upstream: SocketAddr,
    descriptors: u64,
    global: &str,
) -> String {
    let connections = descriptors.saturating_sub(FOR_ITSELF) / 2;
    format!(
        "global
    nbthread 1
    maxconn {connections}
    tune.pool-low-fd-ratio 100
    tune.pool-high-fd-ratio 100
    {global}
defaults
    mode http
    option http-keep-alive
    http-reuse always
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout http-request 1h
    timeout http-keep-alive 1h
frontend f
    bind {address} backlog 1024
    default_backend b
backend b
    server s {upstream}
"
    )
}

/// Descriptors that are not for connections.
const FOR_ITSELF: u64 = 200;
