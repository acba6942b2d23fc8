//! glommio's local executor, by io_uring.

use std::io;
use std::net::SocketAddr;

use ::glommio::net::TcpListener;
use ::glommio::{LocalExecutorBuilder, spawn_local};
use futures_lite::{AsyncReadExt, AsyncWriteExt};

use super::BUFFER;

pub(super) fn echo(address: SocketAddr) -> io::Result<()> {
    let executor = LocalExecutorBuilder::default().make();
    let executor = executor.map_err(|error| io::Error::other(error.to_string()))?;
    executor.run(async {
        let listener = TcpListener::bind(address)?;
        loop {
            let mut stream = listener.accept().await?;
            stream.set_nodelay(true)?;
            let connection = async move {
                let mut buffer = vec![0; BUFFER];
                loop {
                    let length = stream.read(&mut buffer).await?;
                    if length == 0 {
                        return io::Result::Ok(());
                    }
                    stream.write_all(&buffer[..length]).await?;
                }
            };
            spawn_local(connection).detach();
        }
    })
}
