//! nginx: a master and one worker.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::write_file;

/// Where Debian has it is not in everybody's path.
pub(crate) fn program() -> &'static str {
    let debians = "/usr/sbin/nginx";
    if Path::new(debians).exists() {
        debians
    } else {
        "nginx"
    }
}

/// How it sends files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// `sendfile on`.
    Sendfile,
    /// `sendfile off`: it reads and writes them.
    Read,
    /// `sendfile on`, and files stay open for a second.
    Cached,
}

pub(super) fn command(
    files: Files,
    root: &Path,
    address: SocketAddr,
    directory: &Path,
) -> io::Result<Command> {
    let files = match files {
        Files::Sendfile => "sendfile on;",
        Files::Read => "sendfile off;",
        Files::Cached => {
            "sendfile on; open_file_cache max=1000; open_file_cache_valid 1s; open_file_cache_min_uses 1;"
        }
    };
    let root = root.display();
    let server = format!("{files} server {{ listen {address} backlog=1024; root {root}; }}");
    start(&configuration(2048, &server), directory)
}

/// Passes requests on, with as many connections kept as ours keeps, and with patience for clients that send none.
pub(super) fn proxy(
    address: SocketAddr,
    upstream: SocketAddr,
    descriptors: u64,
    directory: &Path,
) -> io::Result<Command> {
    let server = format!(
        "client_header_timeout 1h; keepalive_timeout 1h;
             upstream u {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; }}
             server {{
                 listen {address} backlog=1024;
                 location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
             }}"
    );
    start(&configuration(descriptors, &server), directory)
}

fn start(configuration: &str, directory: &Path) -> io::Result<Command> {
    let path = write_file(directory, "nginx.conf", configuration)?;
    let mut command = Command::new(program());
    command.args(["-e", "stderr", "-p"]);
    command.arg(directory).arg("-c").arg(path);
    Ok(command)
}

/// Its defaults, but for what is compared, and for connections that may carry any number of requests.
fn configuration(connections: u64, server: &str) -> String {
    let descriptors = connections.max(4096);
    format!(
        "daemon off; worker_processes 1; worker_rlimit_nofile {descriptors}; pid nginx.pid;
         events {{ worker_connections {connections}; }}
         http {{
             access_log off; keepalive_requests 1000000000;
             client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
             {server}
         }}"
    )
}
