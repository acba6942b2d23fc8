//! nginx: a master and its workers, of which there is one if a process can hold all connections.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::write_file;

/// Returns Debian's path, which is not in every user's `PATH`, if it exists.
pub(crate) fn program() -> &'static str {
    let debians = "/usr/sbin/nginx";
    if Path::new(debians).exists() {
        debians
    } else {
        "nginx"
    }
}

/// A method of sending files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// `tcp_nopush on` and `sendfile on`, as in Debian's `nginx.conf`.
    Sendfile,
    /// The same, with files kept open for a second: nginx's best for large files.
    SendfileCached,
    /// `sendfile off`, with files kept open for a second: nginx's best for small files, which it reads into the head's
    /// buffer and writes together with it in one call.
    ReadCached,
}

pub(super) fn command(
    files: Files,
    root: &Path,
    address: SocketAddr,
    directory: &Path,
) -> io::Result<Command> {
    let root = root.display();
    let lines = files.lines();
    let server = format!("{lines} server {{ listen {address} backlog=1024; root {root}; }}");
    start(&configuration(1, 2048, &server), directory)
}

/// Returns the command of a server that holds this number of connections, silent ones for an hour, with as few workers
/// as `descriptors` for each of them allow.
pub(crate) fn of_many(
    files: Files,
    root: &Path,
    address: SocketAddr,
    connections: usize,
    descriptors: u64,
    directory: &Path,
) -> io::Result<Command> {
    let (lines, root) = (files.lines(), root.display());
    let server = format!(
        "{lines} client_header_timeout 1h; keepalive_timeout 1h;
             server {{ listen {address} backlog=4096 reuseport; root {root}; }}"
    );
    // The other descriptors are for files, listeners and logs.
    let of_worker = descriptors.saturating_sub(100).max(1);
    // The kernel chooses a worker for a connection by a hash of its addresses, and not evenly.
    let workers = match connections as u64 {
        few if few <= of_worker => 1,
        many => (many + many / 8).div_ceil(of_worker),
    };
    start(&configuration(workers, of_worker, &server), directory)
}

impl Files {
    const fn lines(self) -> &'static str {
        match self {
            Self::Sendfile => SENDFILE,
            Self::SendfileCached => {
                "sendfile on; tcp_nopush on; open_file_cache max=1000; open_file_cache_valid 1s;"
            }
            Self::ReadCached => "sendfile off; open_file_cache max=1000; open_file_cache_valid 1s;",
        }
    }
}

/// The settings of Debian's `nginx.conf`.
pub(crate) const SENDFILE: &str = "sendfile on; tcp_nopush on;";

/// Returns the command of a proxy that keeps as many upstream connections as softclock, and keeps silent clients for an
/// hour.
pub(super) fn proxy(
    address: SocketAddr,
    upstream: SocketAddr,
    descriptors: u64,
    directory: &Path,
) -> io::Result<Command> {
    let server = format!(
        "{SENDFILE} client_header_timeout 1h; keepalive_timeout 1h;
             upstream u {{ server {upstream}; keepalive 1024; keepalive_requests 1000000000; }}
             server {{
                 listen {address} backlog=1024;
                 location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
             }}"
    );
    start(&configuration(1, descriptors, &server), directory)
}

fn start(configuration: &str, directory: &Path) -> io::Result<Command> {
    let path = write_file(directory, "nginx.conf", configuration)?;
    let mut command = Command::new(program());
    command.args(["-e", "stderr", "-p"]);
    command.arg(directory).arg("-c").arg(path);
    Ok(command)
}

/// Returns nginx's defaults with the compared settings, `multi_accept`, and no limit of requests per connection.
fn configuration(workers: u64, connections: u64, server: &str) -> String {
    let descriptors = connections.max(4096);
    format!(
        "daemon off; worker_processes {workers}; worker_rlimit_nofile {descriptors}; pid nginx.pid;
         events {{ worker_connections {connections}; multi_accept on; }}
         http {{
             access_log off; keepalive_requests 1000000000;
             client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
             {server}
         }}"
    )
}
