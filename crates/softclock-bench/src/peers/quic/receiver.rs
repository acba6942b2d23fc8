//! The receiver of all transfers: quinn on tokio.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use quinn::{Endpoint, EndpointConfig, TokioRuntime};
use tokio::time::timeout_at;

use super::settings;
use crate::servers::Certificate;

/// The arguments of the process of the receiver.
#[derive(Args, Clone, Debug)]
pub struct QuicReceiver {
    pub(super) sender: SocketAddr,
    pub(super) certificate: PathBuf,
    /// The time of the transfer, in milliseconds.
    pub(super) during: u64,
    /// The window of the stream and the connection, in bytes.
    pub(super) window: u32,
}

impl QuicReceiver {
    /// Requests a transfer, and receives for the given time from then on. Prints the number of bytes.
    ///
    /// # Errors
    /// Those of the connection and the certificate.
    pub fn run(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let bytes = runtime.block_on(self.receive())?;
        println!("{bytes}");
        Ok(())
    }

    async fn receive(&self) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let socket = settings::bind((Ipv4Addr::UNSPECIFIED, 0).into())?;
        let (any, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
        let endpoint = Endpoint::new(any, None, socket, runtime)?;
        let config = settings::client(&self.certificate, self.window)?;
        let connecting = endpoint.connect_with(config, self.sender, Certificate::NAME)?;
        let connection = connecting.await?;
        let (mut request, mut answer) = connection.open_bi().await?;
        request.write_all(b"s").await?;
        let end = Instant::now() + Duration::from_millis(self.during);
        let mut bytes = 0;
        // In any order: quinn keeps at most 1024 pieces of a stream that wait for a lost one.
        while let Ok(read) = timeout_at(end.into(), answer.read_chunk(1 << 20, false)).await {
            bytes += read?.ok_or("the sender has ended the stream")?.bytes.len() as u64;
        }
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        Ok(bytes)
    }
}
