//! Async runtimes, each with the same two servers on one thread: TCP echo, and on softclock and tokio hyper's "hello".

mod bare;
mod compio;
mod glommio;
mod monoio;
mod smol;
pub(super) mod softclock;
pub(super) mod tokio;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::process::Command;

use ::hyper::body::{Bytes, Incoming};
use ::hyper::{Request, Response};
use clap::{Args, ValueEnum};
use http_body_util::Full;

use crate::servers::Server;

/// A runtime to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// softclock with its defaults.
    Softclock,
    /// The same, by io_uring.
    SoftclockUring,
    /// tokio's runtime of the current thread.
    Tokio,
    /// smol's reactor and its local executor.
    Smol,
    /// monoio by io_uring.
    Monoio,
    /// compio by io_uring.
    Compio,
    /// glommio's local executor, by io_uring.
    Glommio,
    /// No runtime: a loop of epoll.
    Bare,
}

impl Kind {
    /// All runtimes, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Softclock,
        Self::SoftclockUring,
        Self::Tokio,
        Self::Smol,
        Self::Monoio,
        Self::Compio,
        Self::Glommio,
        Self::Bare,
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softclock => "softclock, epoll",
            Self::SoftclockUring => "softclock, io_uring",
            Self::Tokio => "tokio",
            Self::Smol => "smol",
            Self::Monoio => "monoio",
            Self::Compio => "compio",
            Self::Glommio => "glommio",
            Self::Bare => "epoll, no runtime",
        }
    }

    /// Returns whether a name in tables is one of softclock's.
    pub fn is_ours(name: &str) -> bool {
        name.starts_with("softclock")
    }

    /// Returns whether a name in tables is that of another runtime.
    pub fn is_peer(name: &str) -> bool {
        !Self::is_ours(name) && name != Self::Bare.name()
    }

    /// Returns whether the runtime has this service.
    pub fn has(self, service: Service) -> bool {
        match service {
            Service::Echo => true,
            Service::Hello => matches!(self, Self::Softclock | Self::SoftclockUring | Self::Tokio),
        }
    }

    /// Starts a server in another process of this program. It stays on the processor that this thread is pinned to.
    ///
    /// # Errors
    /// The server does not listen, as where the runtime needs io_uring and a sandbox forbids it; the error has its
    /// output.
    pub fn start(self, service: Service) -> io::Result<Server> {
        Server::start(|address, _| {
            let options = RuntimeServer {
                runtime: self,
                service,
                address,
            };
            options.command()
        })
    }
}

/// The work of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Service {
    /// Sends back the bytes that it receives.
    Echo,
    /// Answers each request of HTTP/1.1 with a short text, by hyper.
    Hello,
}

/// The arguments of the process of such a server.
#[derive(Args, Clone, Copy, Debug)]
pub struct RuntimeServer {
    #[arg(value_enum)]
    runtime: Kind,
    #[arg(value_enum)]
    service: Service,
    address: SocketAddr,
}

impl RuntimeServer {
    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "runtime-server".to_owned(),
            word(self.runtime),
            word(self.service),
            self.address.to_string(),
        ]);
        Ok(command)
    }

    /// Serves until the process is killed.
    ///
    /// # Errors
    /// Those of creating the runtime and of listening.
    pub fn run(&self) -> io::Result<()> {
        let address = self.address;
        match (self.runtime, self.service) {
            (Kind::Softclock, Service::Echo) => softclock::echo(false, address),
            (Kind::SoftclockUring, Service::Echo) => softclock::echo(true, address),
            (Kind::Tokio, Service::Echo) => tokio::echo(address),
            (Kind::Smol, Service::Echo) => smol::echo(address),
            (Kind::Monoio, Service::Echo) => monoio::echo(address),
            (Kind::Compio, Service::Echo) => compio::echo(address),
            (Kind::Glommio, Service::Echo) => glommio::echo(address),
            (Kind::Bare, Service::Echo) => bare::echo(address),
            (Kind::Softclock, Service::Hello) => softclock::hello(false, address),
            (Kind::SoftclockUring, Service::Hello) => softclock::hello(true, address),
            (Kind::Tokio, Service::Hello) => tokio::hello(address),
            (_, Service::Hello) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Returns the word of a value among arguments.
pub(super) fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is skipped");
    value.get_name().to_owned()
}

async fn answer(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello\n"))))
}

/// The size of the buffer of each connection.
const BUFFER: usize = 8192;
