//! Queues that send the data of a socket evenly.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::slice;

use softclock::Rate;
use softclock::embed::{Instant, QueueFull, SendOptions, SendQueue};

use crate::handle::Handle;
use crate::library::SOFTCLOCK_NEVER;
use crate::status::{Errno, status, value_or};

/// A queue that sends the data of a socket evenly.
pub struct softclock_send_queue {
    _opaque: [u8; 0],
}

/// The C program owns the descriptor, and keeps it open for as long as the queue exists.
type Queue = SendQueue<BorrowedFd<'static>>;

/// The settings of a send queue. 0 stands for the default in parentheses.
#[repr(C)]
pub struct softclock_send_options {
    /// The rate in bits per second, of the data without headers; it has no default.
    pub rate_bps: u64,
    /// The rate at which it catches up after late events (twice the rate).
    pub burst_bps: u64,
    /// The bytes of a full message, or of a piece of a stream (1448), up to 1 GiB; a longer message is sent whole, and
    /// delays the next one.
    pub piece: usize,
    /// The most bytes that wait (256 KiB), up to 1 GiB.
    pub most_bytes: usize,
    /// The most messages that wait (1024), up to 2^24.
    pub most_messages: usize,
}

/// Creates a queue for a connected socket, which stays the program's: keep it open until the queue is freed. -ENOTSOCK
/// for other descriptors, and -ENOMEM if there is no memory for the data that may wait: `most_bytes`, and for messages
/// 8 bytes more for each of `most_messages`.
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

/// Frees a queue; the data that waits is lost. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_send_queue_free(queue: *mut softclock_send_queue) -> c_int {
    // SAFETY: `queue` is null or came from `softclock_send_queue_new`.
    status(|| unsafe { Handle::free(queue.cast::<Handle<Queue>>()).map(|()| 0) })
}

/// Adds a copy of the data: one message, or the next bytes of a stream. -ENOBUFS if there is no room for all of it;
/// then nothing is added.
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

/// Returns the time for which to schedule an event that calls softclock_send_queue_send_due(); SOFTCLOCK_NEVER if no
/// data waits, and after an error. While the socket has no room (-EAGAIN), the time is past: wait for the socket
/// instead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_send_queue_next_due(
    queue: *mut softclock_send_queue,
    now_ns: u64,
) -> u64 {
    // SAFETY: as `access` demands.
    value_or(SOFTCLOCK_NEVER, || unsafe {
        let due = access(queue)?.next_due(Instant::from_ns(now_ns));
        Ok(due.map_or(SOFTCLOCK_NEVER, Instant::as_ns))
    })
}

/// Sends the data that is due at `now_ns` without waiting, and returns the number of bytes sent. -EAGAIN if the socket
/// has no room: call it again once the socket is writable. Other errors are those of sendmsg(); a message that causes
/// one is removed, and the data of a stream stays. If other data was sent before the error, this call returns the
/// number of its bytes and the next call the error; until then the message waits.
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

/// Returns the number of bytes that wait; 0 after an error.
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
