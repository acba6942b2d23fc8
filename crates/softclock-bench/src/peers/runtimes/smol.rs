//! smol: the reactor of async-io, and the local executor of async-executor.

use std::io;
use std::net::{SocketAddr, TcpListener};

use async_executor::LocalExecutor;
use async_io::Async;
use futures_lite::{AsyncReadExt, AsyncWriteExt};

use super::BUFFER;

pub(super) fn echo(address: SocketAddr) -> io::Result<()> {
    let executor = LocalExecutor::new();
    // Unlike futures-lite's, this waits in the reactor on the thread itself.
    async_io::block_on(executor.run(async {
        let listener = Async::<TcpListener>::bind(address)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.get_ref().set_nodelay(true)?;
            let connection = async move {
                let mut stream = stream;
                let mut buffer = vec![0; BUFFER];
                loop {
                    let length = stream.read(&mut buffer).await?;
                    if length == 0 {
                        return io::Result::Ok(());
                    }
                    stream.write_all(&buffer[..length]).await?;
                }
            };
            executor.spawn(connection).detach();
        }
    }))
}
