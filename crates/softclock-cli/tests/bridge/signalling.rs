//! How a bridge learns of frames: it looks for arrivals when a frame leaves, and arrivals wake it otherwise.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde_json::{Value, json};

use crate::lab::{Bridge, Lab, Place, lab};
use crate::ping::ping;

/// Arrivals that do not wake the bridge are neither lost nor reordered, and leave at the same times.
#[test]
fn arrivals_are_looked_at_when_a_frame_leaves() {
    let lab = lab!();
    let run = |policy| {
        let arguments = ["--signalling", policy, "--signalling-latency", "5ms"];
        pass(&lab, &PACED, 1, &arguments)
    };
    let mut compared = Vec::new();
    for _ in 0..ATTEMPTS {
        let [each, looked] = ["interrupt", "automatic=timer"].map(run);
        for passed in [&each, &looked] {
            passed.check();
        }
        if looked.waits < 0.75 * each.waits {
            return;
        }
        compared.push([each.waits, looked.waits]);
    }
    panic!("waits for each frame, by interrupts and without them: {compared:?}");
}

/// Frames that are due within the tolerance leave by one call, and none leaves much later than that.
#[test]
fn a_wait_serves_the_frames_of_a_tolerance() {
    let lab = lab!();
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        let arguments = ["--tolerance", "5ms", "--signalling-latency", "10ms"];
        let passed = pass(&lab, &PACED, 20, &arguments);
        passed.check();
        let late = passed.median_late();
        if passed.waits < 0.5 && late < Duration::from_millis(10) {
            return;
        }
        found.push((passed.waits, late));
    }
    panic!("waits for each frame, and median lateness: {found:?}");
}

/// Frames on an emulated link that are due within the tolerance leave by one call: in order, late by no more than that,
/// and none before its delay is over.
#[test]
fn a_wait_serves_the_delayed_frames_of_a_tolerance() {
    let lab = lab!();
    let run = |tolerance| {
        let arguments = ["--tolerance", tolerance, "--signalling-latency", "10ms"];
        pass(&lab, &DELAYED, 1, &arguments)
    };
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        let [exact, late] = ["0", "5ms"].map(run);
        for passed in [&exact, &late] {
            passed.check_order();
            let least = passed.delays.iter().min().unwrap();
            assert!(*least >= DELAY, "{least:?}");
        }
        let settings = &late.report["directions"][0]["settings"];
        assert_eq!(settings["tolerance"], json!(["5ms"]), "{settings}");
        let added = late.median_delay().saturating_sub(exact.median_delay());
        if late.waits < 0.5 * exact.waits && added < Duration::from_millis(5) {
            return;
        }
        found.push(([exact.waits, late.waits], added));
    }
    panic!(
        "waits for each frame without a tolerance and with it, and the delay that it adds: {found:?}"
    );
}

/// An idle bridge passes a frame at once, whatever the latency bound.
#[test]
fn an_idle_bridge_wakes_at_once() {
    let lab = lab!();
    let arguments = ["--class", "rate 100mbit", "--signalling-latency", "10ms"];
    let bridge = lab.bridge("pace", &arguments);
    let echoes = ping(&lab, "10.77.0.2", 20);
    bridge.end();
    assert_eq!(echoes.numbers.len(), 20);
    // If the bridge looked once per bound, each of the two passages would take 5 ms on average.
    assert!(echoes.median_ms() < 5.0, "{} ms", echoes.median_ms());
}

/// The passage of numbered datagrams through a bridge.
struct Passed {
    numbers: Vec<u32>,
    /// The times of arrival, from the first on.
    times: Vec<Duration>,
    /// The time from sending each datagram to its arrival.
    delays: Vec<Duration>,
    /// Waits of the bridge for each frame.
    waits: f64,
    /// The summary of the bridge.
    report: Value,
}

/// Sends `at_once` datagrams at a time, with a quarter of [`APART`] in between, through a bridge of this kind.
fn pass(lab: &Lab, kind: &[&str; 3], at_once: u32, arguments: &[&str]) -> Passed {
    let bridge = lab.bridge(kind[0], &[&kind[1..], arguments].concat());
    // The hosts learn each other's link addresses.
    assert_eq!(ping(lab, "10.77.0.2", 1).numbers.len(), 1);
    let before = waits(&bridge);
    let (sent, arrived) = thread::scope(|scope| {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let east = lab.namespace(Place::East);
        let received = scope.spawn(move || {
            east.inside(|| {
                let socket = UdpSocket::bind("10.77.0.2:7").unwrap();
                // Room for all datagrams: other load may delay the receiver.
                set_socket_recv_buffer_size_force(&socket, 4 << 20).unwrap();
                ready.send(()).unwrap();
                receive(&socket)
            })
            .unwrap()
        });
        is_ready.recv().unwrap();
        let sent = lab.namespace(Place::West).inside(|| send(at_once)).unwrap();
        (sent, received.join().unwrap())
    });
    let waits = (waits(&bridge) - before) as f64 / f64::from(FRAMES);
    let report = bridge.end();
    let lost = &report["directions"][0]["port_drops"]["not taken in time"];
    assert_eq!(lost.as_u64().unwrap_or(0), 0, "{report}");
    let since = |before: Instant| move |at: Instant| at.duration_since(before);
    let delay = |&(number, at): &(u32, Instant)| since(sent[number as usize])(at);
    let times = arrived.iter().map(|&(_, at)| at);
    Passed {
        numbers: arrived.iter().map(|&(number, _)| number).collect(),
        delays: arrived.iter().map(delay).collect(),
        times: times.map(since(arrived[0].1)).collect(),
        waits,
        report,
    }
}

/// Returns the times at which the datagrams were sent.
fn send(at_once: u32) -> Vec<Instant> {
    let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
    let mut data = [0; DATA_BYTES];
    let mut sent = Vec::new();
    for number in 0..FRAMES {
        data[..4].copy_from_slice(&number.to_be_bytes());
        sent.push(Instant::now());
        socket.send_to(&data, "10.77.0.2:7").unwrap();
        if number % at_once == 0 {
            thread::sleep(APART / 4);
        }
    }
    sent
}

/// Receives until all have arrived, or none for a second; returns the numbers and times.
fn receive(socket: &UdpSocket) -> Vec<(u32, Instant)> {
    let mut arrived = Vec::new();
    let mut data = [0; DATA_BYTES];
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    while arrived.len() < FRAMES as usize && socket.recv(&mut data).is_ok() {
        let number = u32::from_be_bytes(data[..4].try_into().unwrap());
        arrived.push((number, Instant::now()));
    }
    arrived
}

/// The times that the bridge has waited so far.
fn waits(bridge: &Bridge) -> u64 {
    let pid = bridge.pid().as_raw_nonzero();
    softclock_testing::waits_of_thread(format!("/proc/{pid}")).unwrap()
}

impl Passed {
    /// Checks that all frames have arrived, in order.
    fn check_order(&self) {
        assert!(
            self.numbers.iter().copied().eq(0..FRAMES),
            "{:?}",
            self.numbers
        );
    }

    /// Checks that all frames of a paced class have arrived, in order and not above its rate.
    fn check(&self) {
        self.check_order();
        let took = *self.times.last().unwrap();
        let least = APART * (FRAMES - 20);
        assert!(took >= least, "{took:?} instead of {least:?}");
    }

    /// The median lateness against a clock of the rate that begins with the first frame.
    fn median_late(&self) -> Duration {
        let due = (0..).map(|number| APART * number);
        let late = self.times.iter().zip(due);
        median(late.map(|(at, due)| at.saturating_sub(due)).collect())
    }

    fn median_delay(&self) -> Duration {
        median(self.delays.clone())
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A class that sends a frame in [`APART`].
const PACED: [&str; 3] = ["pace", "--class-ab", "rate 24mbit limit 5000"];
/// A link that delays frames by [`DELAY`].
const DELAYED: [&str; 3] = ["wan", "--delay", "20ms,0"];
const DELAY: Duration = Duration::from_millis(20);
const FRAMES: u32 = 1000;
/// With all headers, a frame of 1500 bytes.
const DATA_BYTES: usize = 1458;
/// The time that a frame takes at the rate of the class.
const APART: Duration = Duration::from_micros(500);
/// Other load on the machine may keep a bridge from waiting.
const ATTEMPTS: usize = 5;
