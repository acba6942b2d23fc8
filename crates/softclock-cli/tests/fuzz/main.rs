//! Whole connections at random, against the real program: clients of HTTP/1 and HTTP/2 that send anything, and
//! upstreams that answer anything.
//!
//! A *round* starts the server with options of its seed's choice, and runs many *sessions* against it, each a
//! connection whose [plan](http1) the session's seed determines. Sessions know which of their requests were well-formed
//! and what must answer them; [`invariants`] know what the process must have given back in the end.
//!
//! A minute in all by default; an hour by hand:
//! `SOFTCLOCK_FUZZ_SECONDS=3600 cargo test --release -p softclock-cli --test fuzz -- --nocapture`.
//! A [violation](recorder) names the file that describes it, and the command that repeats its round or its session.

use std::cell::RefCell;
use std::env;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

mod asked;
#[allow(dead_code, reason = "shared with the tests of serve")]
#[path = "../serve/client.rs"]
mod client;
mod http1;
mod http2;
mod invariants;
mod limits;
#[allow(dead_code, reason = "shared with the tests of serve")]
#[path = "../serve/own_stack.rs"]
mod own_stack;
mod random;
mod recorder;
#[allow(dead_code, unused_imports, reason = "shared with the tests of serve")]
#[path = "../serve/server.rs"]
mod server;
mod target;
mod transport;
mod upstream;

use asked::{FILES, Mode, Reply, file_name};
use invariants::{Bystander, Held, judge, settle};
use random::{Random, derive};
use recorder::{Recorder, count};
use softclock::{spawn_local, timeout};
use target::{Subject, Target};

#[test]
fn serve_keeps_its_invariants() {
    fuzz(Mode::Serve);
}

#[test]
fn servetls_keeps_its_invariants() {
    fuzz(Mode::ServeTls);
}

#[test]
fn proxy_keeps_its_invariants() {
    fuzz(Mode::Proxy);
}

#[test]
fn proxytls_keeps_its_invariants() {
    fuzz(Mode::ProxyTls);
}

/// Rounds until the time of this mode is over; the modes take turns.
fn fuzz(mode: Mode) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let number = |name| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("SOFTCLOCK_FUZZ_SEED") {
        return round(mode, seed, number("SOFTCLOCK_FUZZ_SESSION"));
    }
    let seconds = number("SOFTCLOCK_FUZZ_SECONDS").unwrap_or(60);
    let end = Instant::now() + Duration::from_secs(seconds) / MODES;
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut seeds = Random::new(time.map_or(0, |time| time.as_nanos() as u64));
    loop {
        let begun = Instant::now();
        round(mode, seeds.next() >> 16, None);
        // Another would end later than half a round behind the end.
        if Instant::now() + begun.elapsed() / 2 > end {
            return;
        }
    }
}

/// One server, and all sessions of this seed, or the only one given.
fn round(mode: Mode, seed: u64, only: Option<u64>) {
    eprintln!("{mode:?}: SOFTCLOCK_FUZZ_SEED={seed}");
    let begun = Instant::now();
    let recorder = Rc::new(Recorder::new(mode, seed));
    // Memory and descriptors that a server keeps after its first connections are no leak.
    let (first, then) = match only {
        Some(session) => (session..session, session..session + 1),
        None => (0..FIRST, FIRST..SESSIONS),
    };
    let runtime = softclock::Runtime::new().expect("a runtime");
    let (subject, beside) = runtime.block_on(async {
        let beating = Rc::clone(&recorder);
        let _beating = spawn_local(async move { beating.beat().await });
        let upstream = upstream::start(&recorder, seed).expect("an upstream");
        let subject = Subject::start(mode, upstream, &mut Random::new(seed));
        let target = Rc::new(subject.target(mode, &recorder));
        let fresh = Held::of(&subject);
        sessions(&target, seed, first).await;
        let baseline = settle(&subject, &fresh, &recorder).await;
        let bystander = Bystander::start(&subject, bystanders_target(mode), BYSTANDER.0);
        sessions(&target, seed, then).await;
        let beside = bystander.finish(&subject, &recorder).await;
        let end = settle(&subject, &fresh, &recorder).await;
        judge(&subject, &baseline, &end, begun.elapsed(), &recorder);
        (subject, beside)
    });
    let took = begun.elapsed();
    eprintln!("  {}", subject.options.join(" "));
    eprintln!("  {took:.1?}: {}", recorder.tally);
    eprintln!("  the bystander's turns, median and worst: {beside:?}");
    recorder.finish(&subject.server.log());
}

/// Runs the sessions of these numbers, many at a time.
async fn sessions(target: &Rc<Target>, seed: u64, numbers: Range<u64>) {
    let numbers = Rc::new(RefCell::new(numbers));
    let lanes: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let (target, numbers) = (Rc::clone(target), Rc::clone(&numbers));
            spawn_local(async move {
                while !target.recorder.is_full() {
                    let next = numbers.borrow_mut().next();
                    let Some(number) = next else { break };
                    session(&target, seed, number).await;
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await;
    }
}

async fn session(target: &Target, seed: u64, number: u64) {
    count(&target.recorder.tally.sessions);
    let mut random = Random::new(derive(seed, number));
    let is_http2 = target.mode.is_tls() && random.chance(80);
    let mut again = random.clone();
    let run = async {
        match is_http2 {
            true => http2::run(target, number, &mut random).await,
            false => http1::run(target, number, &mut random).await,
        }
    };
    if timeout(SESSION, run).await.is_err() {
        let plan = match is_http2 {
            true => http2::describe(target, number, &mut again),
            false => http1::describe(target, number, &mut again),
        };
        let what = "the session does not end";
        target.recorder.violation(Some(number), what, &plan);
    }
}

fn bystanders_target(mode: Mode) -> String {
    let (id, len) = BYSTANDER;
    match mode.is_proxy() {
        true => format!("/{}/{id}/{len}", Reply::Sized as usize),
        false => file_name(id, len),
    }
}

const MODES: u32 = 4;

/// Sessions before the baseline is taken, and of a round in all.
const FIRST: u64 = 100;
const SESSIONS: u64 = 1_000;

const AT_A_TIME: usize = 100;

/// Longer than a session's own waits.
const SESSION: Duration = Duration::from_secs(60);

/// The bystander's id and length, also of a file.
const BYSTANDER: (u64, usize) = FILES[4];
