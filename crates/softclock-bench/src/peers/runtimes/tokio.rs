//! tokio's runtime of the current thread, which its documentation recommends for one thread.

use std::io;
use std::net::SocketAddr;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::net::{TcpListener, TcpStream};
use ::tokio::runtime::{Builder, Runtime};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use super::{BUFFER, answer};

pub(super) fn echo(address: SocketAddr) -> io::Result<()> {
    runtime()?.block_on(accept_echo(address))
}

/// Serves echo to all connections.
pub(in crate::peers) async fn accept_echo(address: SocketAddr) -> io::Result<()> {
    accept(address, |mut stream| async move {
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

pub(super) fn hello(address: SocketAddr) -> io::Result<()> {
    runtime()?.block_on(accept(address, |stream| async move {
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new());
        let connection = server.serve_connection(TokioIo::new(stream), service_fn(answer));
        connection.await.map_err(io::Error::other)
    }))
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

async fn accept<F>(address: SocketAddr, connection: impl Fn(TcpStream) -> F) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        ::tokio::spawn(connection(stream));
    }
}
