//! A sender of s2n-quic: sends to the first stream of each connection, without end.
//!
//! Arguments: address, certificate, key. Prints a line when it listens.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use s2n_quic::provider::congestion_controller::Cubic;
use s2n_quic::provider::io::tokio::Builder;
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls;
use s2n_quic::{Connection, Server};

/// The bytes of IP in each full packet.
const PACKET_BYTES: u16 = 1480;
/// Above the bandwidth-delay product of 200 Mbit/s and 400 ms.
const WINDOW_BYTES: u32 = 64 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("address, certificate, key");
    let (address, certificate, key) = (next()?.parse::<SocketAddr>()?, next()?, next()?);
    let tls = tls::default::Server::builder()
        .with_certificate(Path::new(&certificate), Path::new(&key))?
        .with_application_protocols(["bulk"].iter())?
        .build()?;
    let io = Builder::default()
        .with_receive_address(address)?
        .with_base_mtu(PACKET_BYTES)?
        .with_initial_mtu(PACKET_BYTES)?
        .with_max_mtu(PACKET_BYTES)?
        .build()?;
    let limits = Limits::new()
        .with_data_window(WINDOW_BYTES.into())?
        .with_max_send_buffer_size(WINDOW_BYTES)?;
    let mut server = Server::builder()
        .with_tls(tls)?
        .with_io(io)?
        .with_limits(limits)?
        .with_congestion_controller(Cubic::default())?
        .start()?;
    println!("listens");
    std::io::stdout().flush()?;
    while let Some(connection) = server.accept().await {
        tokio::spawn(send(connection));
    }
    Ok(())
}

/// Answers the first stream until the client has left.
async fn send(mut connection: Connection) {
    let block = Bytes::from_static(&[0; 64 << 10]);
    if let Ok(Some(mut stream)) = connection.accept_bidirectional_stream().await {
        while stream.send(block.clone()).await.is_ok() {}
    }
}
