//! One thread's state of an upstream.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use softclock::net::{TcpStream, UnixStream};
use softclock::{Histogram, Instant};

use super::budget::{Budget, CountedCarrier};
use super::failure::Failure;
use super::health::{Health, HealthOptions};
use super::link::Link;
use super::options::ProxyOptions;
use super::pool::Pool;
use super::target::Target;
use super::url::UpstreamAddress;
use crate::net::carrier::Carrier;
use crate::net::late_timer::timeout;
use crate::observe::limit::Limit;
use crate::observe::telemetry::{UpstreamCounts, UpstreamReport};

/// The health, connections and counters of one upstream in one thread.
pub(crate) struct Upstream {
    /// The upstream's addresses. A reload replaces them.
    target: RefCell<Arc<Target>>,
    /// The index of the address that answered last.
    preferred: Cell<usize>,
    health: Cell<Health>,
    pub(super) pool: Rc<Pool>,
    /// The limit of connections to all upstreams, of all threads.
    budget: Arc<Budget>,
    /// The number of requests in progress, of this thread.
    active: Cell<usize>,
    /// The number of requests in progress, of all threads.
    active_in_all: Arc<AtomicUsize>,
    counts: Cell<UpstreamCounts>,
    response_times: RefCell<Histogram>,
    /// The time until which no further warning is logged, and the number of warnings suppressed since the last one.
    quiet: Cell<(Option<Instant>, u32)>,
}

impl Upstream {
    pub(super) fn new(target: Arc<Target>, budget: Arc<Budget>) -> Rc<Self> {
        Rc::new(Self {
            active_in_all: Arc::clone(&target.active),
            target: RefCell::new(target),
            preferred: Cell::new(0),
            health: Cell::default(),
            pool: Pool::new(Arc::clone(&budget)),
            budget,
            active: Cell::new(0),
            counts: Cell::default(),
            response_times: RefCell::default(),
            quiet: Cell::default(),
        })
    }

    pub(super) fn target(&self) -> Arc<Target> {
        Arc::clone(&self.target.borrow())
    }

    /// Replaces the addresses after a reload. Requests are still counted in the counter of the first target, which all
    /// threads share.
    pub(super) fn set_target(&self, target: Arc<Target>) {
        self.target.replace(target);
    }

    pub(super) fn health(&self) -> Health {
        self.health.get()
    }

    /// Returns whether `limit` requests are in progress at the upstream; never if `limit` is 0.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        limit > 0 && self.active_in_all.load(Ordering::Relaxed) >= limit
    }

    /// Logs a warning about the upstream, at most one each second, as writing the log may block the thread. Calls `log`
    /// with the number of warnings that were suppressed before this one, if any.
    pub(super) fn warn(&self, log: impl FnOnce(Option<u32>)) {
        let now = softclock::now();
        let (until, held_back) = self.quiet.get();
        if until.is_some_and(|until| now < until) {
            self.quiet.set((until, held_back.saturating_add(1)));
            return;
        }
        self.quiet.set((Some(now + WARNING_PAUSE), 0));
        log((held_back > 0).then_some(held_back));
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut UpstreamCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    pub(super) fn report(&self) -> UpstreamReport {
        UpstreamReport {
            name: self.to_string(),
            counts: self.counts.get(),
            active: self.active.get(),
            idle: self.pool.len(),
            is_up: self.health.get().is_up(),
            response_times: self.response_times.borrow().clone(),
        }
    }

    /// Opens a new connection. Fails with [`Failure::NoRoom`] at the limit of connections to all upstreams.
    pub(super) async fn open(&self, options: &ProxyOptions) -> Result<Box<Link>, Failure> {
        // Taken before the socket is created, and freed after it is closed.
        let permit = self.budget.take().await.ok_or(Failure::NoRoom)?;
        let carrier = self.connect(options).await?;
        self.count(|counts| counts.connections += 1);
        Ok(Link::new(CountedCarrier { carrier, permit }))
    }

    /// Connects to the first address that accepts, beginning with the one that answered last.
    async fn connect(&self, options: &ProxyOptions) -> Result<Carrier, Failure> {
        let target = self.target();
        if let UpstreamAddress::Unix(path) = &target.url.address {
            let connect = async { connect_unix(path).await.map(Carrier::Unix) };
            return in_time(options.timeouts.connect, connect).await;
        }
        let addresses = target.addresses(options.resolve_every);
        let count = addresses.len();
        // Each address has an equal share of the time, so that a silent one leaves time for the others.
        let share = options.timeouts.connect.map(|limit| limit / count as u32);
        let mut failed = None;
        for step in 0..count {
            let place = (self.preferred.get() + step) % count;
            match in_time(share, connect_tcp(addresses[place])).await {
                Ok(carrier) => {
                    self.preferred.set(place);
                    return Ok(carrier);
                }
                // Other addresses would fail in the same way.
                Err(failure @ Failure::Exhausted(_)) => return Err(failure),
                Err(failure) => failed = Some(failure.after(failed)),
            }
        }
        Err(failed.unwrap_or(Failure::ConnectLate))
    }

    /// Counts a request if fewer than `limit` are in progress, or if `limit` is 0. Returns whether it was counted.
    fn take_place(&self, limit: usize) -> bool {
        let more = |active| (limit == 0 || active < limit).then_some(active + 1);
        let all = &self.active_in_all;
        let has_room = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if has_room.is_ok() {
            self.active.set(self.active.get() + 1);
        }
        has_room.is_ok()
    }

    /// Ends the count of a request.
    fn on_released(&self) {
        self.active.set(self.active.get() - 1);
        self.active_in_all.fetch_sub(1, Ordering::Relaxed);
    }

    fn change_health<R>(&self, change: impl FnOnce(&mut Health) -> R) -> R {
        let mut health = self.health.get();
        let result = change(&mut health);
        self.health.set(health);
        result
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.borrow().url.fmt(f)
    }
}

/// A request in progress at an upstream. Counts as such, and reports to the upstream's health, until dropped.
pub(super) struct Attempt {
    pub(super) upstream: Rc<Upstream>,
    begun: Instant,
    stage: Stage,
    /// Shared with the task that finishes the upload, if there is one.
    share: Option<Rc<Share>>,
}

/// The evidence about the upstream's health that an attempt has reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Nothing,
    /// The head of a response has come, but not its end.
    Head,
    /// Success or failure was reported.
    Judged,
}

/// A share in an [`Attempt`]: the request counts as in progress until the last share is dropped.
pub(super) struct Share(Rc<Upstream>);

impl Attempt {
    /// Begins an attempt. Returns `None` if `limit` requests of all threads are in progress at the upstream; a limit of
    /// 0 allows any number.
    pub(super) fn begin(upstream: &Rc<Upstream>, limit: usize) -> Option<Self> {
        if !upstream.take_place(limit) {
            return None;
        }
        upstream.change_health(Health::on_attempt);
        Some(Self {
            upstream: Rc::clone(upstream),
            begun: softclock::now(),
            stage: Stage::Nothing,
            share: None,
        })
    }

    /// Restarts the attempt, because the request is sent once more to the same upstream.
    pub(super) fn begin_again(&mut self) {
        self.begun = softclock::now();
        self.upstream.count(|counts| {
            counts.requests += 1;
            counts.retries += 1;
        });
    }

    /// Returns a share for a task that uses the connection beyond the end of the attempt.
    pub(super) fn share(&mut self) -> Rc<Share> {
        let new = || Rc::new(Share(Rc::clone(&self.upstream)));
        Rc::clone(self.share.get_or_insert_with(new))
    }

    /// Records the head of a response.
    pub(super) fn on_head(&mut self, options: HealthOptions) {
        self.stage = Stage::Head;
        let (begun, now) = (self.begun, softclock::now());
        let upstream = &self.upstream;
        let mut times = upstream.response_times.borrow_mut();
        times.record(now.ns_since(begun));
        upstream.change_health(|health| health.on_head(begun, now, options));
    }

    /// Records a complete response.
    pub(super) fn on_success(&mut self) {
        self.stage = Stage::Judged;
        let begun = self.begun;
        if self
            .upstream
            .change_health(|health| health.on_success(begun))
        {
            tracing::info!(upstream = %self.upstream, "answers again");
        }
    }

    /// Records that the response is missing or incomplete.
    pub(super) fn on_failure(&mut self, options: HealthOptions) {
        self.stage = Stage::Judged;
        self.upstream.count(|counts| counts.failures += 1);
        let (begun, now) = (self.begun, softclock::now());
        if self
            .upstream
            .change_health(|health| health.on_failure(begun, now, options))
        {
            Limit::MaxFails.count_one();
            let limit = Limit::MaxFails.name();
            tracing::warn!(limit, upstream = %self.upstream, "left out for a while");
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.share.is_none() {
            self.upstream.on_released();
        }
        match self.stage {
            Stage::Nothing => {
                let begun = self.begun;
                self.upstream
                    .change_health(|health| health.on_abandoned(begun));
            }
            // The client has left during the response, which was correct until then.
            Stage::Head => self.on_success(),
            Stage::Judged => {}
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.on_released();
    }
}

async fn connect_tcp(address: SocketAddr) -> io::Result<Carrier> {
    let stream = TcpStream::connect(address).await?;
    // Without TCP_NODELAY the last segment of a request may wait for the upstream's delayed acknowledgement.
    stream.set_nodelay(true)?;
    Ok(Carrier::Tcp(stream))
}

/// Connects to a Unix socket. Polls while the listener's queue is full, as the kernel does not report when there is
/// room.
async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                softclock::sleep(QUEUE_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Awaits `connect` for at most `limit`, and classifies its error.
async fn in_time(
    limit: Option<Duration>,
    connect: impl Future<Output = io::Result<Carrier>>,
) -> Result<Carrier, Failure> {
    let result = match limit {
        None => connect.await,
        Some(limit) => timeout(limit, connect).await.map_err(|_| {
            // The failure is logged with the upstream.
            Limit::ConnectTimeout.count_one();
            Failure::ConnectLate
        })?,
    };
    result.map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable => Failure::NoLocalAddress(error),
        _ => match softclock::fs::Failure::of(&error) {
            softclock::fs::Failure::Exhausted => Failure::Exhausted(error),
            _ => Failure::Connect(error),
        },
    })
}

/// The pause between two tries to connect to a Unix socket whose queue is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(1);

/// The shortest time between two warnings about one upstream.
const WARNING_PAUSE: Duration = Duration::from_secs(1);
