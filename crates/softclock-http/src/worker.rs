//! One thread's share of a server: accept loops and connections on the current runtime.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use softclock::net::TcpListener;

use crate::connection::{ConnectionOptions, serve_member};
use crate::members::Members;
use crate::service::Site;

/// How a thread serves.
#[derive(Clone, Copy, Debug)]
pub struct WorkerOptions {
    /// Connections at a time; more wait in the kernel's queue.
    pub max_connections: usize,
    /// How long connections in progress may take to end.
    pub drain: Duration,
    /// How connections are treated.
    pub connection: ConnectionOptions,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            drain: Duration::from_secs(10),
            connection: ConnectionOptions::default(),
        }
    }
}

/// Serves `site` to all who connect, on the current runtime, until `shutdown` is ready; then stops accepting, closes
/// idle connections, and waits for the others as long as `options.drain` allows.
///
/// Gives the number of connections that were still busy then. They end with the runtime.
pub async fn serve(
    listeners: Vec<TcpListener>,
    site: Rc<Site>,
    options: WorkerOptions,
    shutdown: impl Future<Output = ()>,
) -> usize {
    let members = Members::new(options.max_connections);
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let (site, members) = (Rc::clone(&site), Rc::clone(&members));
            softclock::spawn_local(accept_loop(listener, site, members, options.connection))
        })
        .collect();
    shutdown.await;
    accepting.into_iter().for_each(|task| task.abort());
    members.end();
    let _ = softclock::timeout(options.drain, members.empty()).await;
    members.count()
}

/// Accepts for ever. No error ends it: most concern one connection that is gone already, and the others, such as
/// descriptors running out, pass.
///
/// At the limit of connections one more is accepted and held: it shows that somebody waits for room.
async fn accept_loop(
    listener: TcpListener,
    site: Rc<Site>,
    members: Rc<Members>,
    options: ConnectionOptions,
) {
    let mut failing = false;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, peer)) => {
                tracing::trace!(%peer, "accepted");
                stream
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "cannot accept; trying again");
                }
                members.shed(softclock::now());
                softclock::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        failing = false;
        let membership = members.admit().await;
        // Without it the last segment of a response may wait for the client's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let site = Rc::clone(&site);
        softclock::spawn_local(async move {
            if let Err(error) = serve_member(stream, site, &options, Some(membership)).await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}

/// After an error in accepting that would come again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
