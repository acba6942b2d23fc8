//! monoio by io_uring.

use std::io;
use std::net::SocketAddr;

use ::monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use ::monoio::net::TcpListener;
use ::monoio::{IoUringDriver, RuntimeBuilder};

use super::BUFFER;

pub(super) fn echo(address: SocketAddr) -> io::Result<()> {
    let mut runtime = RuntimeBuilder::<IoUringDriver>::new().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address)?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            ::monoio::spawn(async move {
                let mut buffer = Vec::with_capacity(BUFFER);
                loop {
                    let (read, filled) = stream.read(buffer).await;
                    if read? == 0 {
                        return io::Result::Ok(());
                    }
                    let (written, mut filled) = stream.write_all(filled).await;
                    written?;
                    filled.clear();
                    buffer = filled;
                }
            });
        }
    })
}
