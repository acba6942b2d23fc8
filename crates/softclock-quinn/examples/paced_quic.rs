//! Sends a megabyte over QUIC at 50 Mbit/s, in datagrams that leave one by one.

use std::{error::Error, net::UdpSocket, sync::Arc, time::Instant};

use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use rustls::{RootCertStore, pki_types::PrivatePkcs8KeyDer};
use softclock_quinn::{Pacing, paced};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (cert, key) = (own.cert.der().clone(), own.signing_key.serialize_der());
    let config =
        ServerConfig::with_single_cert(vec![cert.clone()], PrivatePkcs8KeyDer::from(key).into())?;

    // The only lines that differ from a server without pacing.
    let pacing = Pacing::of_rate("50mbit".parse()?);
    let socket = paced(UdpSocket::bind("127.0.0.1:0")?, &TokioRuntime, pacing)?;
    let (any, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
    let server = Endpoint::new_with_abstract_socket(any, Some(config), socket, runtime)?;

    let address = server.local_addr()?;
    tokio::spawn(async move {
        let connection = server.accept().await.expect("a client").await?;
        let mut stream = connection.open_uni().await?;
        stream.write_all(&[0; 1_000_000]).await?;
        Ok::<_, quinn::WriteError>(connection.closed().await)
    });

    let mut roots = RootCertStore::empty();
    roots.add(cert)?;
    let config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let connection = client.connect_with(config, address, "localhost")?.await?;
    let (start, mut stream) = (Instant::now(), connection.accept_uni().await?);
    stream.read_exact(&mut vec![0; 1_000_000]).await?;
    println!("1000000 bytes in {} ms", start.elapsed().as_millis());
    Ok(())
}
