//! The senders of quinn: on tokio and on softclock, with quinn's own socket and with a paced one.

use std::error::Error;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use quinn::{Connection, Endpoint, EndpointConfig, Runtime, TokioRuntime};
use softclock_core::Rate;
use softclock_quinn::{Limits, Pacing, SoftclockRuntime, paced, paced_by_window};

use super::settings;

/// The runtime that quinn's sender runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// tokio's runtime of the current thread.
    Tokio,
    /// softclock's.
    Softclock,
}

/// The socket through which quinn sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Socket {
    /// The runtime's own.
    Plain,
    /// A paced one with a stated rate.
    Stated,
    /// A paced one that learns the rate of each connection.
    Learnt,
}

/// The arguments of the process of a sender.
#[derive(Args, Clone, Debug)]
pub struct QuicSender {
    #[arg(value_enum)]
    pub(super) on: On,
    #[arg(value_enum)]
    pub(super) socket: Socket,
    pub(super) address: SocketAddr,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// The stated rate.
    pub(super) rate: Rate,
    /// The most datagrams that leave back to back, for a paced socket.
    pub(super) burst: u32,
}

impl QuicSender {
    /// Sends to each stream that a client opens, without end, until the process is killed. Prints a line when it
    /// listens, and one with its number of lost packets when a connection has ended.
    ///
    /// # Errors
    /// Those of the runtime, the socket and the certificate.
    pub fn run(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.on {
            On::Tokio => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let spawn = |task: Task| drop(tokio::spawn(task));
                runtime.block_on(self.serve(Arc::new(TokioRuntime), spawn))
            }
            On::Softclock => {
                let runtime = softclock::Runtime::new()?;
                let quinn = Arc::new(SoftclockRuntime::new(&runtime));
                let spawn = |task: Task| drop(softclock::spawn_local(task));
                runtime.block_on(self.serve(quinn, spawn))
            }
        }
    }

    async fn serve(
        &self,
        runtime: Arc<dyn Runtime>,
        spawn: fn(Task),
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let endpoint = self.endpoint(runtime)?;
        say("listens")?;
        while let Some(incoming) = endpoint.accept().await {
            spawn(Box::pin(async move {
                if let Ok(connection) = incoming.await {
                    send(&connection).await;
                    let path = connection.stats().path;
                    let _ = say(&path.lost_packets.to_string());
                }
            }));
        }
        Ok(())
    }

    fn endpoint(
        &self,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Endpoint, Box<dyn Error + Send + Sync>> {
        let is_observed = self.socket == Socket::Learnt;
        let config = settings::server(&self.certificate, &self.key, is_observed)?;
        let socket = settings::bind(self.address)?;
        let any = EndpointConfig::default();
        let limits = Limits {
            burst: self.burst,
            ..Limits::default()
        };
        Ok(match self.socket {
            Socket::Plain => Endpoint::new(any, Some(config), socket, runtime)?,
            Socket::Stated => {
                let pacing = Pacing::of_rate(self.rate).with_limits(limits);
                let socket = paced(socket, &*runtime, pacing)?;
                Endpoint::new_with_abstract_socket(any, Some(config), socket, runtime)?
            }
            Socket::Learnt => {
                let socket = paced_by_window(socket, &*runtime, limits)?;
                Endpoint::new_with_abstract_socket(any, Some(config), socket, runtime)?
            }
        })
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Answers the first stream until the client has left.
async fn send(connection: &Connection) {
    static BLOCK: [u8; 64 << 10] = [0; 64 << 10];
    let Ok((mut stream, _request)) = connection.accept_bi().await else {
        return;
    };
    let block = Bytes::from_static(&BLOCK);
    while stream.write_chunk(block.clone()).await.is_ok() {}
}

fn say(line: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}
