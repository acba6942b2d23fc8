//! softclock's runtime.

use std::io;
use std::net::SocketAddr;

use ::softclock::events::Mechanism;
use ::softclock::hyper::SoftTimer;
use ::softclock::net::{TcpListener, TcpStream};
use ::softclock::{Runtime, spawn_local};
use hyper::server::conn::http1;
use hyper::service::service_fn;

use super::{BUFFER, answer};

pub(super) fn echo(by_uring: bool, address: SocketAddr) -> io::Result<()> {
    runtime(by_uring)?.block_on(accept_echo(address))
}

/// Serves echo to all connections.
pub(in crate::peers) async fn accept_echo(address: SocketAddr) -> io::Result<()> {
    accept(address, |stream| async move {
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = stream.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            stream.write_all(&buffer[..length]).await?;
        }
    })
    .await
}

pub(super) fn hello(by_uring: bool, address: SocketAddr) -> io::Result<()> {
    runtime(by_uring)?.block_on(accept(address, |stream| async move {
        let mut server = http1::Builder::new();
        server.timer(SoftTimer);
        let served = server.serve_connection(stream, service_fn(answer)).await;
        served.map_err(io::Error::other)
    }))
}

fn runtime(by_uring: bool) -> io::Result<Runtime> {
    match by_uring {
        true => Runtime::builder().events(Mechanism::IoUring).build(),
        false => Runtime::new(),
    }
}

async fn accept<F>(address: SocketAddr, connection: impl Fn(TcpStream) -> F) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + 'static,
{
    let listener = TcpListener::bind(address)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        drop(spawn_local(connection(stream)));
    }
}
