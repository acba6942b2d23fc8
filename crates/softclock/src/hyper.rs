//! Implements hyper's `rt` traits, so that hyper runs on a softclock runtime unchanged (feature `hyper`).
//!
//! Streams are passed to hyper as they are. Its builders take a [`SoftTimer`] for the timeouts, and those for HTTP/2 a
//! [`LocalExecutor`].
//!
//! # Example
//! ```
//! use std::convert::Infallible;
//!
//! use http_body_util::{BodyExt, Empty};
//! use hyper::body::{Bytes, Incoming};
//! use hyper::server::conn::http1;
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use softclock::hyper::SoftTimer;
//! use softclock::net::{TcpListener, TcpStream};
//!
//! async fn answer(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
//!     Ok(Response::new("hello".into()))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! softclock::Runtime::new()?.block_on(async {
//!     let listener = TcpListener::bind(([127, 0, 0, 1], 0))?;
//!     let address = listener.local_addr()?;
//!     softclock::spawn_local(async move {
//!         while let Ok((stream, _)) = listener.accept().await {
//!             let connection = http1::Builder::new()
//!                 .timer(SoftTimer)
//!                 .serve_connection(stream, service_fn(answer));
//!             softclock::spawn_local(connection);
//!         }
//!     });
//!
//!     let stream = TcpStream::connect(address).await?;
//!     let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
//!     softclock::spawn_local(connection);
//!     let request = Request::get("/").header("Host", "localhost").body(Empty::<Bytes>::new())?;
//!     let response = sender.send_request(request).await?;
//!     assert_eq!(response.into_body().collect().await?.to_bytes(), "hello");
//!     Ok(())
//! })
//! # }
//! ```

use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Executor, Read, ReadBufCursor, Timer, Write};

use crate::net::{TcpStream, UnixStream};
use crate::time::{Sleep, from_std, to_std};

/// Implements hyper's timers by soft timers.
#[derive(Clone, Copy, Default, Debug)]
pub struct SoftTimer;

/// hyper uses timers for timeouts, few of which expire, so they may end late by a fraction of their duration.
impl Timer for SoftTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(crate::sleep(duration).with_slack(slack(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        let deadline = from_std(deadline);
        let ahead = deadline.since(crate::now());
        Box::pin(crate::sleep_until(deadline).with_slack(slack(ahead)))
    }

    fn now(&self) -> Instant {
        to_std(crate::now())
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(sleep) => sleep.get_mut().reset(from_std(new_deadline)),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

/// Returns how late a timeout of this duration may end.
fn slack(duration: Duration) -> Duration {
    duration / 64
}

impl hyper::rt::Sleep for Sleep {}

/// Runs hyper's tasks on the current thread's runtime.
#[derive(Clone, Copy, Default, Debug)]
pub struct LocalExecutor;

impl<F> Executor<F> for LocalExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        drop(crate::spawn_local(future));
    }
}

macro_rules! implement {
    ($stream:ty) => {
        impl Read for $stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                mut buffer: ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                // hyper's buffer may be uninitialised. Copying the few hundred bytes of a request is cheaper than
                // clearing it.
                self.poll_read_with(cx, buffer.remaining(), |bytes| buffer.put_slice(bytes))
            }
        }

        impl Write for $stream {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                <$stream>::poll_write(&self, cx, bytes)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_allowance(cx).map(Ok)
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                // A connection that has ended, such as by a reset behind the response, is shut down already.
                Poll::Ready(match self.shutdown(Shutdown::Write) {
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
                    result => result,
                })
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffers: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                <$stream>::poll_write_vectored(&self, cx, buffers)
            }
        }
    };
}

implement!(TcpStream);
implement!(UnixStream);
