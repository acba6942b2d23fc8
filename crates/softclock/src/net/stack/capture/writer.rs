//! The buffer between the stack's thread and the file, and the thread that empties it.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock_wire::capture::whole_blocks;

use super::{CaptureEnd, CaptureReport};

/// Blocks that wait for the disk, whole ones only.
pub(super) struct Buffered {
    limit_bytes: u64,
    buffer_bytes: usize,
    state: Mutex<State>,
    /// Wakes the writer.
    wake: Condvar,
}

struct State {
    blocks: Vec<u8>,
    report: CaptureReport,
    /// The frames missed since the last one that was captured.
    missed_since: u64,
    /// Whether the writer waits for blocks, and must be woken for the first.
    is_idle: bool,
    /// Whether nothing more is taken.
    is_closed: bool,
    /// Whether the writer has ended.
    is_written: bool,
    /// The tasks that wait for the end.
    waiting: Vec<Waker>,
}

impl Buffered {
    /// `start` is the length of what the file has already.
    pub(super) fn new(limit_bytes: u64, buffer_bytes: usize, start: usize) -> Self {
        let report = CaptureReport {
            frames: 0,
            bytes: start as u64,
            missed: 0,
            end: None,
        };
        Self {
            limit_bytes,
            buffer_bytes,
            state: Mutex::new(State {
                blocks: Vec::new(),
                report,
                missed_since: 0,
                is_idle: false,
                is_closed: false,
                is_written: false,
                waiting: Vec::new(),
            }),
            wake: Condvar::new(),
        }
    }

    /// Whether nothing more is taken.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_closed
    }

    /// Takes the block of a frame, which `encode` appends, given the number of frames missed before it. Does not wait
    /// for the disk; wakes the writer if it has nothing to do.
    pub(super) fn push(&self, encode: impl FnOnce(u64, &mut Vec<u8>)) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.is_closed {
            return;
        }
        let before = state.blocks.len();
        // A full buffer costs no encoding.
        if before < self.buffer_bytes {
            encode(state.missed_since, &mut state.blocks);
        }
        let bytes = state.report.bytes + (state.blocks.len() - before) as u64;
        if bytes > self.limit_bytes {
            state.blocks.truncate(before);
            state.report.end = Some(CaptureEnd::Limit);
            state.is_closed = true;
            self.wake.notify_one();
        } else if before >= self.buffer_bytes || state.blocks.len() > self.buffer_bytes {
            state.blocks.truncate(before);
            state.report.missed += 1;
            state.missed_since += 1;
        } else {
            state.report.bytes = bytes;
            state.report.frames += 1;
            state.missed_since = 0;
            // A writer that gathers blocks comes by itself, but early if half of the room is taken.
            if state.is_idle || state.blocks.len() > self.buffer_bytes / 2 {
                state.is_idle = false;
                self.wake.notify_one();
            }
        }
    }

    /// Takes nothing more. The writer ends when it has written what is buffered.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.wake.notify_one();
    }

    pub(super) fn report(&self) -> CaptureReport {
        self.lock().report.clone()
    }

    /// Ready when the capture has ended early, and the file is written.
    pub(super) fn poll_ended(&self, cx: &Context<'_>) -> Poll<CaptureEnd> {
        let mut state = self.lock();
        match &state.report.end {
            Some(end) if state.is_written => Poll::Ready(end.clone()),
            _ => {
                state.waiting.retain(|old| !old.will_wake(cx.waker()));
                state.waiting.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Writes the blocks to the file, which has `position` bytes, until the capture ends.
    pub(super) fn write_to(&self, file: &mut File, mut position: u64) {
        let mut blocks = Vec::new();
        while self.next(&mut blocks) {
            match write(file, &blocks) {
                Ok(()) => position += blocks.len() as u64,
                Err((error, written)) => {
                    // The part of a block would make readers report a damaged file. If it cannot be cut off, they do.
                    position += whole_blocks(&blocks, written) as u64;
                    let _ = file.set_len(position);
                    let mut state = self.lock();
                    state.report.bytes = position;
                    state.report.end = Some(CaptureEnd::Failed(Arc::new(error)));
                    state.is_closed = true;
                    break;
                }
            }
        }
        let mut state = self.lock();
        state.blocks = Vec::new();
        state.is_written = true;
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for blocks and exchanges them for `blocks`, which were written. False if the capture has ended.
    fn next(&self, blocks: &mut Vec<u8>) -> bool {
        blocks.clear();
        let mut state = self.lock();
        while state.blocks.is_empty() && !state.is_closed {
            state.is_idle = true;
            state = self
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.is_idle = false;
        // Many frames for one wake-up and one write: a busy stack does not pay for a switch of threads at each.
        let is_little =
            |state: &mut State| !state.is_closed && state.blocks.len() <= self.buffer_bytes / 2;
        let gathered = self.wake.wait_timeout_while(state, GATHERING, is_little);
        let (mut state, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut state.blocks, blocks);
        !blocks.is_empty()
    }

    /// The data is whole even after a panic, as each change is made by calls that do not panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes all bytes, or returns the error and the number of bytes before it.
fn write(file: &mut File, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return Err((ErrorKind::WriteZero.into(), written)),
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err((error, written)),
        }
    }
    Ok(())
}

/// How long the writer gathers blocks after the first. As much of a capture is lost if the process is killed.
const GATHERING: Duration = Duration::from_millis(10);
