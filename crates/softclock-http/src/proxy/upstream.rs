//! An upstream as one thread knows it.

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

/// One upstream: its health, connections and counters.
pub(crate) struct Upstream {
    /// A reload brings a new one.
    target: RefCell<Arc<Target>>,
    /// Which of its addresses answered last.
    preferred: Cell<usize>,
    health: Cell<Health>,
    pub(super) pool: Rc<Pool>,
    /// The connections to all upstreams, of all threads.
    budget: Arc<Budget>,
    active: Cell<usize>,
    /// The same of all threads.
    active_in_all: Arc<AtomicUsize>,
    counts: Cell<UpstreamCounts>,
    response_times: RefCell<Histogram>,
    /// Until when no warning about it is logged, and how many were held back.
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

    /// Takes the addresses that a reload has found. Requests are counted where they were before, as all threads do.
    pub(super) fn set_target(&self, target: Arc<Target>) {
        self.target.replace(target);
    }

    pub(super) fn health(&self) -> Health {
        self.health.get()
    }

    /// Whether it has as many requests as it may, `limit` or with 0 any number.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        limit > 0 && self.active_in_all.load(Ordering::Relaxed) >= limit
    }

    /// Logs a warning about it, by `log` with the number of those held back before; but for one a second, as each waits for
    /// who reads the log.
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

    /// Connects, if there is room for one more connection.
    pub(super) async fn open(&self, options: &ProxyOptions) -> Result<Box<Link>, Failure> {
        // Before the socket, which it outlives.
        let permit = self.budget.take().await.ok_or(Failure::NoRoom)?;
        let carrier = self.connect(options).await?;
        self.count(|counts| counts.connections += 1);
        Ok(Link::new(CountedCarrier { carrier, permit }))
    }

    async fn connect(&self, options: &ProxyOptions) -> Result<Carrier, Failure> {
        let target = self.target();
        if let UpstreamAddress::Unix(path) = &target.url.address {
            let connect = async { connect_unix(path).await.map(Carrier::Unix) };
            return in_time(options.timeouts.connect, connect).await;
        }
        let addresses = target.addresses(options.resolve_every);
        let count = addresses.len();
        // Each has its share of the time, so that one that is silent leaves some to the others.
        let share = options.timeouts.connect.map(|limit| limit / count as u32);
        let mut last = Failure::ConnectLate;
        for step in 0..count {
            let place = (self.preferred.get() + step) % count;
            match in_time(share, connect_tcp(addresses[place])).await {
                Ok(carrier) => {
                    self.preferred.set(place);
                    return Ok(carrier);
                }
                Err(failure @ Failure::Exhausted(_)) => return Err(failure),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// A request is sent, if fewer than `limit` are there, or with 0 any number.
    fn take_place(&self, limit: usize) -> bool {
        let more = |active| (limit == 0 || active < limit).then_some(active + 1);
        let all = &self.active_in_all;
        let has_room = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if has_room.is_ok() {
            self.active.set(self.active.get() + 1);
        }
        has_room.is_ok()
    }

    /// A connection is in use no more.
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

/// A request that is with an upstream, until it is dropped.
pub(super) struct Attempt {
    pub(super) upstream: Rc<Upstream>,
    begun: Instant,
    stage: Stage,
    /// With who goes on with its connection.
    share: Option<Rc<Share>>,
}

/// What an attempt has told about the upstream's health.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Nothing,
    /// The head of a response, but not its end.
    Head,
    Judged,
}

/// A part in an [`Attempt`]: it counts until the last of them is dropped.
pub(super) struct Share(Rc<Upstream>);

impl Attempt {
    /// Nothing if there are `limit` of them in all threads; 0 is any number.
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

    /// The request is sent once more.
    pub(super) fn begin_again(&mut self) {
        self.begun = softclock::now();
        self.upstream.count(|counts| {
            counts.requests += 1;
            counts.retries += 1;
        });
    }

    /// For who may go on with the connection when the attempt is over.
    pub(super) fn share(&mut self) -> Rc<Share> {
        let new = || Rc::new(Share(Rc::clone(&self.upstream)));
        Rc::clone(self.share.get_or_insert_with(new))
    }

    /// The head of a response has come.
    pub(super) fn on_head(&mut self, options: HealthOptions) {
        self.stage = Stage::Head;
        let (begun, now) = (self.begun, softclock::now());
        let upstream = &self.upstream;
        let mut times = upstream.response_times.borrow_mut();
        times.record(now.ns_since(begun));
        upstream.change_health(|health| health.on_head(begun, now, options));
    }

    /// It was answered to the end.
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

    /// It was not, or not to the end.
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
            // The client has left, and until then all went well.
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
    // Without it the last segment of a request may wait for the upstream's delayed acknowledgement.
    stream.set_nodelay(true)?;
    Ok(Carrier::Tcp(stream))
}

/// The kernel does not tell when there is room in a listener's queue.
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
        // No port is left for the connection's own end.
        io::ErrorKind::AddrNotAvailable => Failure::Exhausted(error),
        _ => match softclock::fs::Failure::of(&error) {
            softclock::fs::Failure::Exhausted => Failure::Exhausted(error),
            _ => Failure::Connect(error),
        },
    })
}

const QUEUE_PAUSE: Duration = Duration::from_millis(1);

const WARNING_PAUSE: Duration = Duration::from_secs(1);
