//! Hot clients: an open loop of requests, at a rate that does not depend on the answers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use hdrhistogram::Histogram;
use softclock::net::TcpStream;
use softclock::{Elapsed, Instant, Runtime, sleep_until, spawn_local, timeout};

use super::exchange::{Answer, Failure, ask, connect};
use super::target::Target;

/// The parameters of hot clients.
#[derive(Clone, Debug)]
pub struct HotOptions {
    /// The resource to request.
    pub target: Target,
    /// Requests a second, evenly spaced.
    pub rate: f64,
    /// How long counted requests are sent.
    pub duration: Duration,
    /// How long uncounted requests are sent before them.
    pub warm_up: Duration,
    /// The most requests outstanding; a further one is not sent and counts as an error.
    pub most_outstanding: usize,
    /// Whether connections are reused in turn; otherwise each request opens one, as with S-Clients.
    pub keep_alive: bool,
    /// Connections to open before the first request, if connections are reused.
    pub connections: usize,
    /// The time after which a request has failed.
    pub patience: Duration,
}

impl HotOptions {
    /// Returns options for one second of `rate` requests per second on reused connections.
    pub fn new(target: Target, rate: f64) -> Self {
        Self {
            target,
            rate,
            duration: Duration::from_secs(1),
            warm_up: Duration::ZERO,
            most_outstanding: 4096,
            keep_alive: true,
            connections: 0,
            patience: Duration::from_secs(10),
        }
    }
}

/// The results of hot clients.
#[derive(Clone, Debug)]
pub struct HotResult {
    /// Requests that the rate and duration ask for.
    pub intended: u64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Failed requests by reason.
    pub errors: BTreeMap<String, u64>,
    /// Requests sent a second time, because the server had closed the reused connection of the first attempt.
    pub retries: u64,
    /// Latency of complete responses in microseconds, from the time at which the request was due.
    pub latency_us: Histogram<u64>,
    /// Those of the responses whose status is not 200, which are among `latency_us`.
    pub refused_us: Histogram<u64>,
    /// The time from the first request to the last response.
    pub elapsed: Duration,
}

impl HotResult {
    pub(super) fn new() -> Self {
        // From a microsecond to ten minutes, with three significant digits.
        let latency_us = Histogram::new_with_bounds(1, 600_000_000, 3).expect("constant bounds");
        Self {
            intended: 0,
            statuses: BTreeMap::new(),
            errors: BTreeMap::new(),
            retries: 0,
            refused_us: latency_us.clone(),
            latency_us,
            elapsed: Duration::ZERO,
        }
    }

    /// Returns the number of complete responses.
    pub fn completed(&self) -> u64 {
        self.latency_us.len()
    }

    /// Returns the number of failed requests.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Returns the requests without a response of status 200, as a share of all.
    pub fn lost(&self) -> f64 {
        let good = self.statuses.get(&200).copied().unwrap_or(0);
        self.intended.saturating_sub(good) as f64 / self.intended.max(1) as f64
    }

    /// Returns the responses per second.
    pub fn throughput(&self) -> f64 {
        self.completed() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the latency in microseconds that `share` (0 to 1) of the responses did not exceed.
    pub fn latency_us(&self, share: f64) -> u64 {
        self.latency_us.value_at_quantile(share)
    }
}

/// Sends the load from this thread, on a new runtime. Calls `progress` about five times a second.
///
/// # Errors
/// The runtime or the first connections cannot be created.
pub fn run(
    options: &HotOptions,
    mut progress: impl FnMut(Duration, &HotResult),
) -> io::Result<HotResult> {
    let runtime = Runtime::builder().spin_cap(SPIN_CAP).build()?;
    let clients = Rc::new(Clients {
        request: options.target.request(if options.keep_alive {
            "keep-alive"
        } else {
            "close"
        }),
        options: options.clone(),
        idle: RefCell::default(),
        buffers: RefCell::default(),
        outstanding: Cell::new(0),
        result: RefCell::new(HotResult::new()),
    });
    runtime.block_on(async {
        clients.open_first().await?;
        clients.send(&mut progress).await;
        io::Result::Ok(())
    })?;
    let result = clients.result.borrow().clone();
    Ok(result)
}

struct Clients {
    options: HotOptions,
    request: Vec<u8>,
    idle: RefCell<VecDeque<TcpStream>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    outstanding: Cell<usize>,
    result: RefCell<HotResult>,
}

impl Clients {
    async fn open_first(&self) -> io::Result<()> {
        let wanted = if self.options.keep_alive {
            self.options.connections
        } else {
            0
        };
        for _ in 0..wanted {
            let stream = connect(&self.options.target).await?;
            self.idle.borrow_mut().push_back(stream);
        }
        Ok(())
    }

    async fn send(self: &Rc<Self>, progress: &mut impl FnMut(Duration, &HotResult)) {
        let HotOptions {
            rate,
            duration,
            warm_up,
            ..
        } = self.options;
        let begin = softclock::now();
        let first = (warm_up.as_secs_f64() * rate).round() as u64;
        let total = first + (duration.as_secs_f64() * rate).round() as u64;
        let start = begin + Duration::from_secs_f64(first as f64 / rate);
        let mut shown = start;
        for number in 0..total {
            let intended = begin + Duration::from_secs_f64(number as f64 / rate);
            // A late request is sent at once, but not so many in a row that responses are left unread.
            if intended > softclock::now() {
                sleep_until(intended).await;
            } else if number % BURST == 0 {
                softclock::yield_now().await;
            }
            self.start(intended, number >= first);
            let now = softclock::now();
            if now.since(shown) >= PROGRESS {
                shown = now;
                progress(now.since(start), &self.result.borrow());
            }
        }
        // All requests are sent; each ends with its response or its timeout.
        while self.outstanding.get() > 0 {
            softclock::sleep(Duration::from_millis(1)).await;
        }
        self.result.borrow_mut().elapsed = softclock::now().since(start);
        // Close the connections inside the runtime.
        self.idle.take();
    }

    fn start(self: &Rc<Self>, intended: Instant, counts: bool) {
        self.result.borrow_mut().intended += u64::from(counts);
        // An open loop has no natural bound; this one protects descriptors and memory.
        if self.outstanding.get() >= self.options.most_outstanding {
            if counts {
                self.on_error("too many outstanding".into());
            }
            return;
        }
        self.outstanding.set(self.outstanding.get() + 1);
        let clients = Rc::clone(self);
        spawn_local(async move {
            let answer = timeout(clients.options.patience, clients.exchange()).await;
            if counts {
                clients.on_end(intended, answer);
            }
            clients.outstanding.set(clients.outstanding.get() - 1);
        });
    }

    fn on_end(&self, intended: Instant, answer: Result<io::Result<u16>, Elapsed>) {
        match answer {
            Ok(Ok(status)) => {
                let late = softclock::now().since(intended);
                let mut result = self.result.borrow_mut();
                *result.statuses.entry(status).or_default() += 1;
                let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                result.latency_us.saturating_record(us.max(1));
                if status != 200 {
                    result.refused_us.saturating_record(us.max(1));
                }
            }
            Ok(Err(error)) => self.on_error(error.kind().to_string()),
            Err(_) => self.on_error("no answer in time".into()),
        }
    }

    async fn exchange(&self) -> io::Result<u16> {
        let mut buffer = self.buffers.borrow_mut().pop().unwrap_or_default();
        let kept = self.idle.borrow_mut().pop_front();
        let answer = match kept {
            Some(stream) => match ask(&stream, &self.request, &mut buffer).await {
                Ok(answer) => Ok((stream, answer)),
                // The server may have closed the connection in the meantime; then it did not take the request.
                Err(Failure::Unanswered(_)) => {
                    self.result.borrow_mut().retries += 1;
                    self.ask_anew(&mut buffer).await
                }
                Err(Failure::Broken(error)) => Err(error),
            },
            None => self.ask_anew(&mut buffer).await,
        };
        self.buffers.borrow_mut().push(buffer);
        let (stream, answer) = answer?;
        if answer.reusable && self.options.keep_alive {
            self.idle.borrow_mut().push_back(stream);
        }
        Ok(answer.status)
    }

    async fn ask_anew(&self, buffer: &mut Vec<u8>) -> io::Result<(TcpStream, Answer)> {
        let stream = connect(&self.options.target).await?;
        let answer = ask(&stream, &self.request, buffer).await?;
        Ok((stream, answer))
    }

    fn on_error(&self, reason: String) {
        *self.result.borrow_mut().errors.entry(reason).or_default() += 1;
    }
}

/// Late requests that are sent in a row.
const BURST: u64 = 16;

/// The share of the time that the runtime may spin: low, because the clients may share the server's processor.
const SPIN_CAP: f64 = 0.02;

/// The time between two calls of `progress`.
const PROGRESS: Duration = Duration::from_millis(200);
