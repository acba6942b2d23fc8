//! A load for the thread that sleeps, like a server's: requests that arrive independently of the sleeps.
//!
//! The measuring program writes a byte to the sleeper's standard input every `50 us / share`. The sleeper waits for it
//! in its loop, as for a socket, and for each byte computes until it has used 50 us of processor time, one byte per
//! turn of its loop. No byte is written while four wait: a thread that cannot keep up is busy all the time, but its
//! backlog is bounded.

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
use softclock::Transfer;
use softclock_linux::clock::{cpu_time_ns, set_timer_slack_ns};

use super::{Finding, Order, tally};

/// The processor time of a burst.
const BURST: Duration = Duration::from_micros(50);

/// The most bytes that wait in the pipe.
const WAITING: u64 = 4;

/// Runs a sleeper with a load of `percent` of its thread's time, and with a timer slack of 1 ns.
///
/// # Errors
/// The sleeper does not start, fails, or prints lines that cannot be parsed.
pub fn run(mut program: Command, order: &Order, percent: u32) -> io::Result<Finding> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    program.args(order.arguments());
    program
        .stdin(reader)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A child inherits the timer slack of the thread that starts it. If it cannot be set, the usual slack remains.
    let _ = set_timer_slack_ns(1);
    let child = program.spawn();
    let _ = set_timer_slack_ns(0);
    let child = child?;
    // The command still holds the pipe's reading end, which would keep it open after the sleeper ends.
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

/// Writes a byte every `period` until the run is over.
fn feed(writer: &OwnedFd, period: Duration, over: &AtomicBool) {
    // If this is forbidden, bytes may arrive in pairs.
    let _ = set_timer_slack_ns(1);
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        // Catch up with missed bytes, but only with as many as may wait.
        next = (next + period).max(now - period * WAITING as u32);
        thread::sleep(next.saturating_duration_since(now));
        if ioctl_fionread(writer).is_ok_and(|waiting| waiting < WAITING) {
            // An error means that the sleeper has ended.
            let _ = write(writer, b"x");
        }
    }
}

/// Returns the sleeper's end of the pipe: its non-blocking standard input.
pub(super) fn input() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Takes a byte; returns false at the end of the input.
pub(super) fn take(mut input: &File) -> io::Result<bool> {
    Ok(input.read(&mut [0])? > 0)
}

/// Like [`take`], for runtimes that pass a descriptor.
pub(super) fn take_from(input: BorrowedFd<'_>) -> io::Result<Transfer<bool>> {
    let is_one = rustix::io::read(input, &mut [0])? > 0;
    Ok(Transfer::full(is_one))
}

/// Computes for the time of a burst, and counts it.
pub(super) fn burst() {
    burst_of(BURST);
}

/// Computes until this thread has used `length` of processor time, and counts that as a burst.
pub(in crate::lab) fn burst_of(length: Duration) {
    let start = cpu_time_ns();
    let mut used = 0;
    let mut number = start;
    while used < length.as_nanos() as u64 {
        for _ in 0..COMPUTE {
            number = black_box(number.wrapping_mul(3) + 1);
        }
        used = cpu_time_ns() - start;
    }
    tally::count_burst(used);
}

/// Steps between two clock readings, about a microsecond.
const COMPUTE: u32 = 500;
