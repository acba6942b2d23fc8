//! compio by io_uring.

use std::io;
use std::net::SocketAddr;

use ::compio::BufResult;
use ::compio::io::{AsyncRead, AsyncWriteExt};
use ::compio::net::TcpListener;
use ::compio::runtime::Runtime;

use super::BUFFER;

pub(super) fn echo(address: SocketAddr) -> io::Result<()> {
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let connection = async move {
                let mut buffer = Vec::with_capacity(BUFFER);
                loop {
                    let BufResult(read, filled) = stream.read(buffer).await;
                    if read? == 0 {
                        return io::Result::Ok(());
                    }
                    let BufResult(written, mut filled) = stream.write_all(filled).await;
                    written?;
                    filled.clear();
                    buffer = filled;
                }
            };
            ::compio::runtime::spawn(connection).detach();
        }
    })
}
