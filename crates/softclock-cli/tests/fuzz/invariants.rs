//! Invariants of the process that hold for all behaviour of its clients and upstreams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::asked::Mode;
use crate::client::Client;
use crate::limits::SETTLED;
use crate::own_stack;
use crate::random::content;
use crate::recorder::Recorder;
use crate::target::Subject;

/// Resources that the process holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    descriptors: usize,
    connections: f64,
    events: f64,
    active: f64,
    resident_kb: u64,
}

impl Held {
    pub(crate) fn of(subject: &Subject) -> Self {
        let page = scrape(subject.server.metrics());
        Self {
            connections: sum(&page, "softclock_connections_open"),
            events: sum(&page, "softclock_events_pending"),
            active: sum(&page, "softclock_upstream_active"),
            descriptors: subject.server.descriptors(),
            resident_kb: subject.server.resident_kb(),
        }
    }

    /// Whether it holds no more than at the baseline, apart from memory.
    fn is_back_at(&self, baseline: &Self) -> bool {
        self.descriptors <= baseline.descriptors + 1
            && self.connections <= baseline.connections
            // A few late timers are harmless; one for each session would be a leak.
            && self.events <= baseline.events + FEW
            && self.active <= baseline.active
    }
}

/// Waits until the process has released everything that it took since `baseline`.
pub(crate) async fn settle(subject: &Subject, baseline: &Held, recorder: &Recorder) -> Held {
    let deadline = Instant::now() + SETTLED;
    loop {
        let held = Held::of(subject);
        if held.is_back_at(baseline) {
            return held;
        }
        if Instant::now() > deadline {
            let what =
                format!("{SETTLED:?} after the last session: {held:?}, before: {baseline:?}");
            recorder.violation(None, &what, &described(subject));
            return held;
        }
        softclock::sleep(Duration::from_millis(50)).await;
    }
}

/// Compares memory and log with their limits.
pub(crate) fn judge(
    subject: &Subject,
    baseline: &Held,
    end: &Held,
    took: Duration,
    recorder: &Recorder,
) {
    let grown = end.resident_kb.saturating_sub(baseline.resident_kb);
    if grown > MORE_RESIDENT_KB {
        recorder.violation(
            None,
            &format!("{grown} KB more are resident"),
            &described(subject),
        );
    }
    let peak = subject.server.peak_resident_kb();
    if peak > PEAK_KB {
        recorder.violation(
            None,
            &format!("{peak} KB were resident"),
            &described(subject),
        );
    }
    let log = subject.server.log();
    if panics(&log) {
        recorder.violation(None, "a panic", &log);
    }
    let most = LOG_BYTES + LOG_BYTES_A_SECOND * took.as_secs() as usize;
    if log.len() > most {
        recorder.violation(
            None,
            &format!("{} bytes of log in {took:?}", log.len()),
            &log,
        );
    }
}

/// The crate h2 asserts in debug builds that a connection is not dropped before its streams. That happens here when a
/// client leaves.
fn panics(log: &str) -> bool {
    let mut lines = log.lines().filter(|line| line.contains("panicked"));
    lines.any(|line| !line.contains("/h2-") || !line.contains("/streams/counts.rs"))
}

fn described(subject: &Subject) -> String {
    format!(
        "options: {:?}\nlog:\n{}",
        subject.options,
        subject.server.log()
    )
}

/// A well-behaved client on a separate connection.
pub(crate) struct Bystander {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<Vec<u64>, String>>,
}

impl Bystander {
    /// Requests `target`, with the content of `id`, until [finished](Self::finish).
    pub(crate) fn start(subject: &Subject, target: String, id: u64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (address, metrics) = (subject.beside(), subject.server.metrics());
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || probe(address, metrics, &target, id, &over));
        Self { is_over, thread }
    }

    /// Judges the number of loop turns for each request; returns the median, and the maximum over windows of the
    /// window's best.
    pub(crate) async fn finish(self, subject: &Subject, recorder: &Recorder) -> Option<(u64, u64)> {
        self.is_over.store(true, Ordering::SeqCst);
        // The bystander may wait for the upstream, which runs on this thread.
        while !self.thread.is_finished() {
            softclock::sleep(Duration::from_millis(5)).await;
        }
        let turns = match self
            .thread
            .join()
            .unwrap_or_else(|_| Err("its connection broke".into()))
        {
            Ok(turns) => turns,
            Err(fault) => {
                recorder.violation(None, &format!("the bystander: {fault}"), "");
                return None;
            }
        };
        // The loop keeps turning while this program waits for a processor, but hardly each time.
        let best = |window: &[u64]| window.iter().copied().min().expect("not empty");
        let worst = turns.windows(WINDOW).map(best).max()?;
        // A paced server turns for each piece of others' responses, and while it spins until the next. A stack paces
        // all connections.
        let is_paced = subject.is_paced() || own_stack::is_chosen();
        let allowed = turns_allowed(recorder.mode) * subject.threads as u64;
        if worst > allowed && !is_paced {
            let what =
                format!("the bystander waited for {worst} turns or more, {WINDOW} times in a row");
            recorder.violation(None, &what, &format!("{turns:?}"));
        }
        let mut sorted = turns;
        sorted.sort_unstable();
        Some((sorted[sorted.len() / 2], worst))
    }
}

/// The turns of the loops around each request.
fn probe(
    address: SocketAddr,
    metrics: SocketAddr,
    target: &str,
    id: u64,
    over: &AtomicBool,
) -> Result<Vec<u64>, String> {
    let mut client = Client::connect(address);
    let mut scraper = Client::connect(metrics);
    let mut turns = |count: &str| {
        let page = scraper.get("/metrics");
        sum(page.text(), count) as u64
    };
    let field = format!("X-Fuzz: {id}");
    let mut all = Vec::new();
    let mut late = 0;
    while !over.load(Ordering::SeqCst) {
        let before = turns("softclock_turns_total");
        let response = client.request("GET", target, &[&field]);
        let after = turns("softclock_turns_total");
        match response.status {
            200 if response.body == content(id, response.body.len()) => {}
            // The upstream, in this program, may have had no processor for as long as the proxy waits.
            504 if late < MOST_LATE => late += 1,
            status => return Err(format!("got {status} and {} bytes", response.body.len())),
        }
        all.push(after - before);
        thread::sleep(Duration::from_millis(10));
    }
    Ok(all)
}

fn scrape(address: SocketAddr) -> String {
    Client::connect(address).get("/metrics").text().to_owned()
}

/// The sum of the samples of this name, over all labels.
fn sum(page: &str, name: &str) -> f64 {
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_whole = rest.starts_with([' ', '{']);
        let value = rest.rsplit(' ').next()?;
        is_whole.then(|| value.parse::<f64>().expect("a number"))
    });
    values.sum()
}

/// Answers of 504 that the bystander may get.
const MOST_LATE: usize = 2;

/// Soft events that may be pending in addition.
const FEW: f64 = 8.0;

/// The allocator may return freed memory late.
const MORE_RESIDENT_KB: u64 = 64 << 10;

/// Some hundred connections of some hundred kilobytes.
const PEAK_KB: u64 = 400 << 10;

/// Of log: at most a line a second for each thing that can go wrong.
const LOG_BYTES: usize = 64 << 10;
const LOG_BYTES_A_SECOND: usize = 16 << 10;

/// Turns of a thread's loop around a request, those of two scrapes included. In a proxy they go on while the upstream,
/// which is in this program, has other work: 100 ms where the machine is busy.
const fn turns_allowed(mode: Mode) -> u64 {
    if mode.is_proxy() { 5_000 } else { 60 }
}

/// Probes in a row of which one must have been within that.
const WINDOW: usize = 8;
