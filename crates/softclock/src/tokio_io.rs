//! Implements tokio's I/O traits for the streams (feature `tokio-io`). They need nothing of tokio's runtime.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::{TcpStream, UnixStream};

macro_rules! implement {
    ($carrier:ty, $stream:ty) => {
        impl AsyncRead for $stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                // Clears memory that was never initialised, once in the life of a `ReadBuf`.
                let free = buffer.initialize_unfilled();
                let length = ready!(<$carrier>::poll_read(&self, cx, free))?;
                buffer.advance(length);
                Poll::Ready(Ok(()))
            }
        }

        impl AsyncWrite for $stream {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                <$carrier>::poll_write(&self, cx, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                <$carrier>::poll_write_vectored(&self, cx, buffers)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_allowance(cx).map(Ok)
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                // As with tokio's own streams, a connection that has ended is shut down already.
                Poll::Ready(match self.shutdown(Shutdown::Write) {
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
                    result => result,
                })
            }
        }
    };
}

implement!(TcpStream, TcpStream);
implement!(TcpStream, &TcpStream);
implement!(UnixStream, UnixStream);
implement!(UnixStream, &UnixStream);
