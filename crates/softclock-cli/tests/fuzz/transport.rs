//! Connections to the server under test, plain or by TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use futures_lite::io::split;
use futures_rustls::TlsConnector;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use softclock::net::TcpStream;

pub(crate) type Reader = Box<dyn AsyncRead + Unpin>;
pub(crate) type Writer = Box<dyn AsyncWrite + Unpin>;

/// The root certificates for clients of both versions of HTTP.
#[derive(Clone)]
pub(crate) struct Trust(Arc<RootCertStore>);

impl Trust {
    pub(crate) fn only(certificate: CertificateDer<'static>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a certificate of our own");
        Self(Arc::new(roots))
    }

    fn connector(&self, protocol: &str) -> TlsConnector {
        let mut config = ClientConfig::builder()
            .with_root_certificates(Arc::clone(&self.0))
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.into()];
        Arc::new(config).into()
    }
}

/// Connects; with `protocol` by TLS. The connection is reset when it is closed, if `resets`.
pub(crate) async fn connect(
    address: SocketAddr,
    tls: Option<(&Trust, &str)>,
    resets: bool,
) -> io::Result<(Reader, Writer)> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    if resets {
        stream.set_linger(Some(Duration::ZERO))?;
    }
    let Some((trust, protocol)) = tls else {
        let (reader, writer) = split(stream);
        return Ok((Box::new(reader), Box::new(writer)));
    };
    let name = ServerName::IpAddress(address.ip().into());
    let stream = trust.connector(protocol).connect(name, stream).await?;
    let (reader, writer) = split(stream);
    Ok((Box::new(reader), Box::new(writer)))
}
