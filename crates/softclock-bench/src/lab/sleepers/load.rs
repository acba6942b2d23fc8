//! Work for the thread that sleeps, as a server has it: requests that come when they like.
//!
//! The program that measures writes a byte to the sleeper's standard input each `50 us / share`. The sleeper waits for
//! it in its loop, as for a socket, and for each byte computes until it has used 50 us of CPU time; it takes one byte a
//! turn of its loop. No byte is written while four have not been taken: a thread that cannot keep up is busy
//! all the time but does not fall behind without end.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{ioctl_fionread, write};
use rustix::pipe::{PipeFlags, pipe_with};
use softclock_linux::clock::{cpu_time_ns, set_timer_slack_ns};

use super::{Finding, Order, tally};

/// A burst's CPU time.
const BURST: Duration = Duration::from_micros(50);

/// How many bytes may wait to be taken.
const WAITING: u64 = 4;

/// Runs a sleeper with a load of `percent` of its thread's time, and with a timer slack of 1 ns.
///
/// # Errors
/// When it does not start, fails, or prints what cannot be read.
pub fn run(mut program: Command, order: &Order, percent: u32) -> io::Result<Finding> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    program.args(order.arguments());
    program
        .stdin(reader)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A child inherits that of the thread that starts it; where it cannot be set, the usual one stays.
    let _ = set_timer_slack_ns(1);
    let child = program.spawn();
    let _ = set_timer_slack_ns(0);
    let child = child?;
    // It holds the reading end too.
    drop(program);
    let over = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        if percent > 0 {
            scope.spawn(|| feed(&writer, BURST * 100 / percent, &over));
        }
        let output = child.wait_with_output();
        over.store(true, Ordering::Relaxed);
        output
    })?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(complaint.trim().to_owned()));
    }
    Finding::parse(&String::from_utf8_lossy(&output.stdout)).map_err(io::Error::other)
}

/// Writes a byte each `period`, until told that it is over.
fn feed(writer: &OwnedFd, period: Duration, over: &AtomicBool) {
    // Where that is forbidden, bytes come in pairs.
    let _ = set_timer_slack_ns(1);
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        next = (next + period).max(now - period * WAITING as u32);
        thread::sleep(next.saturating_duration_since(now));
        if ioctl_fionread(writer).is_ok_and(|waiting| waiting < WAITING) {
            // A sleeper that is gone needs no load.
            let _ = write(writer, b"x");
        }
    }
}

/// The sleeper's end: standard input, not blocking.
pub(super) fn input() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Takes a byte; false when none will come any more.
pub(super) fn take(mut input: &File) -> io::Result<bool> {
    Ok(input.read(&mut [0])? > 0)
}

/// As [`take`], for runtimes that hand out a descriptor.
pub(super) fn take_from(input: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::io::read(input, &mut [0])? > 0)
}

/// Computes for the time of a burst.
pub(super) fn burst() {
    let start = cpu_time_ns();
    let mut used = 0;
    let mut number = start;
    while used < BURST.as_nanos() as u64 {
        for _ in 0..COMPUTE {
            number = black_box(number.wrapping_mul(3) + 1);
        }
        used = cpu_time_ns() - start;
    }
    tally::count_burst(used);
}

/// Steps between two looks at the clock, about a microsecond.
const COMPUTE: u32 = 500;
