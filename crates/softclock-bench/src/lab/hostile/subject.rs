//! Servers under attack, each with a configuration that the results name.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::command;
use crate::servers::{Certificate, Server, free_addresses, haproxy, nginx, version, write_file};

/// A program with its settings.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The name in tables: the program, and its difference from the first row of the same program.
    pub name: &'static str,
    /// The program to start.
    pub program: Program,
    /// Options of the command softclock, lines for nginx's `http` block, or lines for HAProxy's section `defaults`.
    pub settings: &'static str,
}

/// A server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The command `softclock`.
    Softclock,
    /// nginx with one worker.
    Nginx,
    /// HAProxy with one thread.
    HaProxy,
}

/// The service of a server.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// Serves the files of a directory, under a limit of open files of 1024.
    Files(&'a Path),
    /// Passes requests to an upstream.
    Proxy {
        /// The upstream's address.
        upstream: SocketAddr,
        /// The most requests at a time.
        requests: usize,
    },
}

/// The addresses on which a server listens.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    /// HTTP/1 without TLS.
    pub plain: SocketAddr,
    /// HTTP/1 and HTTP/2 with TLS; unused by proxies.
    pub tls: SocketAddr,
    /// The server's metrics.
    pub metrics: SocketAddr,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 3] = [Self::Softclock, Self::Nginx, Self::HaProxy];

    /// Returns a report's note with the program's name and version, or that it is not installed.
    pub fn note(self) -> String {
        match (self, self.version()) {
            (Self::Softclock, _) => format!("softclock {}", env!("CARGO_PKG_VERSION")),
            (Self::Nginx, Some(version)) => format!("nginx {version}"),
            (Self::HaProxy, Some(version)) => version,
            (program, None) => format!("{program:?} is not installed: left out").to_lowercase(),
        }
    }

    /// Returns the version that the program prints, or `None` if it is not installed.
    pub fn version(self) -> Option<String> {
        match self {
            Self::Softclock => command::softclock().ok().map(|_| String::new()),
            Self::Nginx => version(nginx::program(), "-v"),
            Self::HaProxy => version(haproxy::program(), "-v"),
        }
    }
}

impl Subject {
    /// Starts the server, which accepts connections when this returns. It stays on the processor that this thread is
    /// pinned to.
    ///
    /// # Errors
    /// The server does not start; the error has its output.
    pub fn start(&self, role: Role<'_>, identity: &Identity) -> io::Result<(Server, Front)> {
        // The plain address comes from `Server::start`, which waits until the server listens there.
        let [tls, metrics] = free_addresses()?;
        let server = Server::start(|plain, directory| {
            let front = Front {
                plain,
                tls,
                metrics,
            };
            let command = match self.program {
                Program::Softclock => self.softclock(role, &front, identity)?,
                Program::Nginx => {
                    let path =
                        write_file(directory, "nginx.conf", &self.nginx(role, &front, identity))?;
                    let mut command = Command::new(nginx::program());
                    command.args(["-e", "stderr", "-p"]);
                    command.arg(directory).arg("-c").arg(path);
                    command
                }
                Program::HaProxy => {
                    let path = write_file(directory, "haproxy.cfg", &self.haproxy(role, &front))?;
                    let mut command = Command::new(haproxy::program());
                    command.arg("-db").arg("-f").arg(path);
                    command
                }
            };
            Ok(match role {
                Role::Files(_) => with_few_descriptors(&command),
                Role::Proxy { .. } => command,
            })
        })?;
        let plain = server.address();
        // The other listeners may open later than the plain one.
        if let Role::Files(_) = role {
            wait_for(if self.program == Program::HaProxy {
                metrics
            } else {
                tls
            })?;
        }
        let front = Front {
            plain,
            tls,
            metrics,
        };
        Ok((server, front))
    }

    fn softclock(&self, role: Role<'_>, front: &Front, identity: &Identity) -> io::Result<Command> {
        let mut command = Command::new(command::softclock()?);
        let listen = front.plain.to_string();
        match role {
            Role::Files(root) => command
                .args(["serve", "--listen", &listen])
                .args(["--listen", &format!("tls:{}", front.tls)])
                .args(["--metrics", &front.metrics.to_string()])
                .arg("--tls-cert")
                .arg(identity.certificate.chain())
                .arg("--tls-key")
                .arg(identity.certificate.key())
                .arg(root),
            Role::Proxy { upstream, requests } => command
                .args(["proxy", "--listen", &listen])
                .args(["--upstream", &format!("http://{upstream}")])
                .args(["--max-requests", &requests.to_string()]),
        };
        command
            .args(["--drain", "0"])
            .args(self.settings.split_whitespace());
        Ok(command)
    }

    fn nginx(&self, role: Role<'_>, front: &Front, identity: &Identity) -> String {
        let Front {
            plain,
            tls,
            metrics,
        } = front;
        let (connections, servers) = match role {
            Role::Files(root) => (
                768,
                format!(
                    "sendfile on; tcp_nopush on;
                     ssl_certificate {}; ssl_certificate_key {};
                     server {{
                         listen {plain} backlog=1024 reuseport; listen {tls} ssl http2 backlog=1024 reuseport;
                         root {};
                     }}
                     server {{ listen {metrics}; location = /metrics {{ stub_status; }} }}",
                    identity.certificate.chain().display(),
                    identity.certificate.key().display(),
                    root.display(),
                ),
            ),
            Role::Proxy { upstream, requests } => (
                4096,
                format!(
                    "upstream u {{ server {upstream} max_conns={requests}; keepalive 1024; }}
                     server {{
                         listen {plain} backlog=1024 reuseport;
                         location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
                     }}"
                ),
            ),
        };
        format!(
            "daemon off; worker_processes 1; pid nginx.pid;
             events {{ worker_connections {connections}; multi_accept on; }}
             http {{
                 access_log off;
                 client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
                 {}
                 {servers}
             }}",
            self.settings
        )
    }

    /// Returns the configuration of HAProxy. It cannot serve files, and has only its metrics in that role.
    fn haproxy(&self, role: Role<'_>, front: &Front) -> String {
        let Front { plain, metrics, .. } = front;
        let (most, backend) = match role {
            Role::Files(_) => (400, "http-request return status 200".to_owned()),
            Role::Proxy { upstream, requests } => {
                (2000, format!("server s {upstream} maxconn {requests}"))
            }
        };
        format!(
            "global
    nbthread 1
    maxconn {most}
defaults
    mode http
    http-reuse safe
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout http-request 10s
    timeout http-keep-alive 60s
    {}
frontend f
    bind {plain} backlog 1024
    default_backend b
backend b
    {backend}
frontend m
    bind {metrics}
    http-request use-service prometheus-exporter if {{ path /metrics }}
",
            self.settings
        )
    }
}

/// Runs a command with the limit of open files that shells and services usually have.
fn with_few_descriptors(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    shell
}

fn wait_for(address: SocketAddr) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(_) => return Ok(()),
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A certificate, and a client configuration that trusts it.
#[derive(Debug)]
pub struct Identity {
    certificate: Certificate,
    /// For clients that speak HTTP/2 only.
    pub clients: Arc<ClientConfig>,
}

impl Identity {
    /// Generates the certificate.
    ///
    /// # Errors
    /// Its files cannot be written.
    pub fn new() -> io::Result<Self> {
        let certificate = Certificate::new()?;
        let mut roots = RootCertStore::empty();
        let trusted = roots.add(certificate.der().clone());
        trusted.map_err(io::Error::other)?;
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self {
            certificate,
            clients: Arc::new(config),
        })
    }
}

/// The longest time from a server's first listener to its second.
const PATIENCE: Duration = Duration::from_secs(5);
