//! The settings of both ends of a transfer.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use quinn::congestion::{ControllerFactory, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, ServerConfig, TransportConfig, VarInt};
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use softclock_quinn::observed;

/// The protocol that both ends name in their handshake (ALPN).
pub(super) const PROTOCOL: &[u8] = b"bulk";

/// The bytes of UDP in each full packet: no search for a larger MTU.
pub(super) const PACKET_BYTES: u16 = 1452;

/// The most bytes that a sender keeps until they are acknowledged, above all windows of receivers.
const SEND_WINDOW_BYTES: u64 = 64 << 20;

/// The buffers of the sockets.
const BUFFER_BYTES: usize = 7 << 20;

/// Opens a socket with large buffers, so that only the bottleneck loses packets.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    // Beyond the host's limit only with the right to it.
    let _ = set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
    let _ = set_socket_send_buffer_size_force(&socket, BUFFER_BYTES);
    Ok(socket)
}

/// Returns the settings of a sender with CUBIC, whose window a paced socket may observe.
pub(super) fn server(
    certificate: &Path,
    key: &Path,
    is_observed: bool,
) -> Result<ServerConfig, Box<dyn Error + Send + Sync>> {
    let chain = vec![CertificateDer::from_pem_file(certificate)?];
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let cubic = CubicConfig::default();
    let mut transport = transport(match is_observed {
        true => observed(cubic),
        false => Arc::new(cubic),
    });
    transport.send_window(SEND_WINDOW_BYTES);
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Returns the settings of a receiver that trusts a certificate, and whose stream and connection have this window.
pub(super) fn client(
    certificate: &Path,
    window: u32,
) -> Result<ClientConfig, Box<dyn Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let mut tls = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let mut transport = transport(Arc::new(CubicConfig::default()));
    transport
        .receive_window(VarInt::from_u32(window))
        .stream_receive_window(VarInt::from_u32(window));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

fn transport(controller: Arc<dyn ControllerFactory + Send + Sync>) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(controller)
        .initial_mtu(PACKET_BYTES)
        .mtu_discovery_config(None);
    transport
}
