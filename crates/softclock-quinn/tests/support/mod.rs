//! Endpoints with a certificate of their own, and a relay between them that records datagrams.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod relay;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use quinn::congestion::{ControllerFactory, CubicConfig};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::RootCertStore;
use rustls::pki_types::PrivatePkcs8KeyDer;

/// The name in the certificate.
pub(crate) const NAME: &str = "localhost";

/// A task for any runtime.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The configurations of a server and of a client that trusts it. The congestion controllers of both are made by
/// `controller`.
pub(crate) fn configs(
    controller: Arc<dyn ControllerFactory + Send + Sync>,
) -> (ServerConfig, ClientConfig) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(controller);
    let transport = Arc::new(transport);
    let mut server = ServerConfig::with_single_cert(vec![cert.der().clone()], key.into()).unwrap();
    server.transport_config(transport.clone());
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    client.transport_config(transport);
    (server, client)
}

/// quinn's own controller.
pub(crate) fn cubic() -> Arc<dyn ControllerFactory + Send + Sync> {
    Arc::new(CubicConfig::default())
}

/// Answers each stream of each connection by as many bytes as its request asks for, until the endpoint is closed.
pub(crate) async fn serve(endpoint: Endpoint, spawn: impl Fn(Task)) {
    while let Some(incoming) = endpoint.accept().await {
        spawn(Box::pin(async move {
            let Ok(connection) = incoming.await else {
                return;
            };
            while let Ok((mut answer, mut request)) = connection.accept_bi().await {
                let bytes = request.read_to_end(8).await.unwrap();
                let bytes = u64::from_be_bytes(bytes.try_into().unwrap());
                let body = vec![0xA5; bytes as usize];
                if answer.write_all(&body).await.is_ok() {
                    let _ = answer.finish();
                }
            }
        }));
    }
}

/// Fetches `bytes` from a server that runs [`serve`].
pub(crate) async fn fetch(connection: &Connection, bytes: u64) {
    let (mut request, mut answer) = connection.open_bi().await.unwrap();
    request.write_all(&bytes.to_be_bytes()).await.unwrap();
    request.finish().unwrap();
    let body = answer.read_to_end(bytes as usize).await.unwrap();
    assert_eq!(body.len() as u64, bytes);
    assert!(body.iter().all(|byte| *byte == 0xA5));
}
