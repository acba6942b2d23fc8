//! quinn's tasks, timers and sockets on a softclock runtime.
//!
//! - `socket`: a UDP socket that quinn may share between threads.
//! - `registration`: the runtime's registration of it, which is given back with the socket or the runtime.
//! - `timer`: soft timers for quinn.
//! - `send_timer`: those of paced sockets.
//! - `tasks`: tasks that are started outside of the runtime.

mod registration;
mod send_timer;
mod socket;
mod tasks;
mod timer;

use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Instant;

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime};
use softclock::{FireWindow, Sleep};

pub(crate) use send_timer::LoopTimer;
use tasks::Tasks;

/// Runs quinn on a softclock runtime.
///
/// Tasks of softclock stay on one thread, and quinn's objects must be `Send` and `Sync`. So this runtime holds a handle
/// of the softclock runtime, timers and sockets hold ids, and each of them is used on the thread of the runtime:
///
/// - An endpoint must be created inside the runtime, that is, within `block_on` or a task of it.
/// - Connections may be used from other threads: their tasks run on the runtime's.
///
/// # Example
/// An endpoint with a paced socket, which the loop of the runtime times:
/// ```
/// use quinn::{Endpoint, EndpointConfig};
/// use softclock_quinn::{Pacing, SoftclockRuntime, paced};
/// use std::net::UdpSocket;
/// use std::sync::Arc;
///
/// # fn main() -> std::io::Result<()> {
/// let runtime = softclock::Runtime::new()?;
/// let quinn = Arc::new(SoftclockRuntime::new(&runtime));
/// runtime.block_on(async {
///     let socket = UdpSocket::bind("127.0.0.1:0")?;
///     // Without pacing: Endpoint::new(config, None, socket, quinn). Not Endpoint::client, which looks for tokio.
///     let pacing = Pacing::of_rate("90mbit".parse().expect("a rate"));
///     let socket = paced(socket, &*quinn, pacing)?;
///     let config = EndpointConfig::default();
///     let endpoint = Endpoint::new_with_abstract_socket(config, None, socket, quinn)?;
///     endpoint.wait_idle().await;
///     Ok(())
/// })
/// # }
/// ```
///
/// # Connections outside of the runtime
/// The tasks of connections that other threads open, or this one outside `block_on`, begin when the runtime takes its next
/// turn. After the end of the runtime tasks are dropped, and connections end with an error.
#[derive(Debug)]
pub struct SoftclockRuntime {
    tasks: Tasks,
    thread: ThreadId,
}

impl SoftclockRuntime {
    /// Creates a handle for quinn to `runtime`. Call it on the runtime's thread.
    pub fn new(runtime: &softclock::Runtime) -> Self {
        Self {
            tasks: Tasks::of(runtime),
            thread: thread::current().id(),
        }
    }
}

/// Whether a socket that a runtime has just wrapped on this thread is one of a [`SoftclockRuntime`].
pub(crate) fn is_on_softclock(socket: &Arc<dyn AsyncUdpSocket>) -> bool {
    socket::Socket::is(socket)
}

/// Returns a sleep until `window` begins, on the clock of the runtime.
fn sleep_within(window: FireWindow) -> Sleep {
    let mut sleep = softclock::sleep_until(window.earliest);
    sleep.reset_within(window);
    sleep
}

impl Runtime for SoftclockRuntime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(timer::Timer::new(deadline))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        match thread::current().id() == self.thread && softclock::try_remote().is_some() {
            true => drop(softclock::spawn_local(future)),
            false => self.tasks.push(future),
        }
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        if thread::current().id() != self.thread {
            return Err(io::Error::other(registration::WRONG_THREAD));
        }
        Ok(socket::Socket::new(socket)?)
    }
}
