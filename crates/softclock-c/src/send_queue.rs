//! Queues that send the data of a socket evenly.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::slice;

use softclock::Rate;
use softclock::embed::{Instant, QueueFull, SendOptions, SendQueue};

use crate::NEVER;
use crate::handle::Handle;
use crate::status::{Errno, status, value_or};

/// A queue that sends evenly. A name for pointers only.
#[repr(C)]
pub struct softclock_send_queue {
    _opaque: [u8; 0],
}

/// The C program owns the descriptor, and keeps it open for as long as the queue exists.
type Queue = SendQueue<BorrowedFd<'static>>;

/// The settings of a send queue. 0 stands for a default.
#[repr(C)]
pub struct softclock_send_options {
    /// The rate in bits per second; it has no default.
    pub rate_bps: u64,
    /// The rate at which the queue catches up, in bits per second.
    pub burst_bps: u64,
    /// The size of a full message, or of a piece of a stream.
    pub piece: usize,
    /// The most bytes that wait.
    pub most_bytes: usize,
    /// The most messages that wait.
    pub most_messages: usize,
}

/// Creates a send queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_send_queue_new(
    fd: c_int,
    options: *const softclock_send_options,
    queue: *mut *mut softclock_send_queue,
) -> c_int {
    // SAFETY: `options` is null or points to settings, `queue` is null or points to a pointer.
    status(|| unsafe {
        let options = options.as_ref().ok_or(Errno(libc::EINVAL))?;
        let options = settings(options)?;
        if fd < 0 {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: the header demands that it stays open. If it is not open, the next call fails.
        let fd = BorrowedFd::borrow_raw(fd);
        Handle::create(queue.cast(), Queue::new(fd, &options)?)?;
        Ok(0)
    })
}

/// Frees a send queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_send_queue_free(queue: *mut softclock_send_queue) -> c_int {
    // SAFETY: `queue` is null or came from `softclock_send_queue_new`.
    status(|| unsafe { Handle::free(queue.cast::<Handle<Queue>>()).map(|()| 0) })
}

/// Adds data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_send_queue_push(
    queue: *mut softclock_send_queue,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: as `access` demands; `data` is null or points to `length` bytes.
    status(|| unsafe {
        let queue = access(queue)?;
        if length == 0 {
            return Ok(0);
        }
        if data.is_null() || isize::try_from(length).is_err() {
            return Err(Errno(libc::EINVAL));
        }
        let data = slice::from_raw_parts(data.cast(), length);
        let pushed = queue.push(data);
        pushed.map_err(|QueueFull| Errno(libc::ENOBUFS))?;
        Ok(0)
    })
}

/// Returns when the next data is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_send_queue_next_due(
    queue: *mut softclock_send_queue,
    now_ns: u64,
) -> u64 {
    // SAFETY: as `access` demands.
    value_or(NEVER, || unsafe {
        let due = access(queue)?.next_due(Instant::from_ns(now_ns));
        Ok(due.map_or(NEVER, Instant::as_ns))
    })
}

/// Sends the data that is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_send_queue_send_due(
    queue: *mut softclock_send_queue,
    now_ns: u64,
) -> i64 {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        let sent = access(queue)?.send_due(Instant::from_ns(now_ns))?;
        Ok(sent as i64)
    })
}

/// Returns the number of bytes that wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_send_queue_length(queue: *mut softclock_send_queue) -> usize {
    // SAFETY: as `access` demands.
    value_or(0, || unsafe { Ok(access(queue)?.len()) })
}

/// # Safety
/// `queue` is null, or came from `softclock_send_queue_new` and was not freed.
unsafe fn access<'a>(queue: *mut softclock_send_queue) -> Result<&'a mut Queue, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Handle::access(queue.cast()) }
}

/// Returns the settings with their defaults. EINVAL without a rate, and for sizes above their limits.
fn settings(options: &softclock_send_options) -> Result<SendOptions, Errno> {
    let rate = Rate::from_bps(options.rate_bps).ok_or(Errno(libc::EINVAL))?;
    let default = SendOptions::of_rate(rate);
    let or = |value: usize, default: usize, most: usize| match value {
        0 => Ok(default),
        _ if value <= most => Ok(value),
        _ => Err(Errno(libc::EINVAL)),
    };
    Ok(SendOptions {
        rate,
        burst: Rate::from_bps(options.burst_bps).unwrap_or(default.burst),
        piece: or(options.piece, default.piece, MOST_BYTES)?,
        most_bytes: or(options.most_bytes, default.most_bytes, MOST_BYTES)?,
        most_messages: or(options.most_messages, default.most_messages, MOST_MESSAGES)?,
    })
}

/// The largest piece, and the most bytes that may wait.
const MOST_BYTES: usize = 1 << 30;

/// The most messages that may wait: their lengths take 128 MiB.
const MOST_MESSAGES: usize = 1 << 24;
