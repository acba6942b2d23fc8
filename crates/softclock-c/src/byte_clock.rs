//! Byte clocks.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use softclock::Rate;
use softclock::embed::{ByteClock, ClassId, ClassOptions, Dequeued, Instant};

use crate::handle::{Handle, store};
use crate::library::SOFTCLOCK_NEVER;
use crate::status::{Errno, status, value_or};

/// A byte clock: when to send the packets of several classes on one link, each class at its own rate.
pub struct softclock_byte_clock {
    _opaque: [u8; 0],
}

/// A clock, and its classes by their numbers.
struct Link {
    clock: ByteClock<*mut c_void>,
    classes: Vec<ClassId>,
}

impl Link {
    fn class(&self, number: u32) -> Result<ClassId, Errno> {
        let class = self.classes.get(number as usize).copied();
        class.ok_or(Errno(libc::EINVAL))
    }
}

/// The options of a class. 0 stands for the default in parentheses.
#[repr(C)]
pub struct softclock_class_options {
    /// The average rate in bits per second; it has no default. Limited to the link's.
    pub rate_bps: u64,
    /// The rate at which it catches up (that of the link).
    pub peak_bps: u64,
    /// The bytes to make up for after it was idle (up to seven packets).
    pub burst_bytes: u64,
    /// The time to make up for after late packets (up to seven packets).
    pub most_behind_ns: u64,
    /// The most bytes that wait (1 MiB).
    pub most_bytes: u64,
    /// The most packets that wait (1000), up to 2^24.
    pub most_packets: usize,
}

/// Creates a byte clock without classes for a link of `link_bps` bits per second, from the time `start_ns` on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_new(
    link_bps: u64,
    start_ns: u64,
    clock: *mut *mut softclock_byte_clock,
) -> c_int {
    // SAFETY: `clock` is null or points to a pointer.
    status(|| unsafe {
        let rate = Rate::from_bps(link_bps).ok_or(Errno(libc::EINVAL))?;
        let link = Link {
            clock: ByteClock::new(rate, Instant::from_ns(start_ns)),
            classes: Vec::new(),
        };
        Handle::create(clock.cast(), link)?;
        Ok(0)
    })
}

/// Frees a byte clock. NULL is allowed. The memory of packets that wait stays the program's: take them by
/// softclock_byte_clock_drain() before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_free(clock: *mut softclock_byte_clock) -> c_int {
    // SAFETY: `clock` is null or came from `softclock_byte_clock_new`.
    status(|| unsafe { Handle::free(clock.cast::<Handle<Link>>()).map(|()| 0) })
}

/// Delays packets by up to `tolerance_ns` after the first due time, so that all that are due by then leave together.
/// The default is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_set_tolerance(
    clock: *mut softclock_byte_clock,
    tolerance_ns: u64,
) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        let tolerance = Duration::from_nanos(tolerance_ns);
        access(clock)?.clock.set_tolerance(tolerance);
        Ok(0)
    })
}

/// Adds a class, and stores its number in `*class_number` unless that is NULL. The first has the number 0. -ENOBUFS for
/// more than 2^16. If the rates of the classes that have packets add up to more than the link's, each gets its share.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_add_class(
    clock: *mut softclock_byte_clock,
    options: *const softclock_class_options,
    class_number: *mut u32,
) -> c_int {
    // SAFETY: as `access` demands; `options` is null or points to options, `class_number` is null or points to a
    // number.
    status(|| unsafe {
        let link = access(clock)?;
        let options = class_options(options)?;
        if link.classes.len() >= MOST_CLASSES {
            return Err(Errno(libc::ENOBUFS));
        }
        let number = link.classes.len() as u32;
        link.classes.push(link.clock.add_class(options));
        store(class_number, number);
        Ok(0)
    })
}

/// Changes the options of a class from its next packet on. Packets that wait stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_set_options(
    clock: *mut softclock_byte_clock,
    class_number: u32,
    options: *const softclock_class_options,
) -> c_int {
    // SAFETY: as `access` demands; `options` is null or points to options.
    status(|| unsafe {
        let link = access(clock)?;
        let class = link.class(class_number)?;
        link.clock.set_options(class, class_options(options)?);
        Ok(0)
    })
}

/// Queues a packet of a class that takes `bytes` on the wire. `packet` is a value of the program. -ENOBUFS if the queue
/// of the class has no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_enqueue(
    clock: *mut softclock_byte_clock,
    class_number: u32,
    packet: *mut c_void,
    bytes: u64,
    now_ns: u64,
) -> c_int {
    // SAFETY: as `access` demands.
    status(|| unsafe {
        let link = access(clock)?;
        let class = link.class(class_number)?;
        let queued = (link.clock).enqueue(class, packet, bytes, Instant::from_ns(now_ns));
        queued.map_err(|_| Errno(libc::ENOBUFS))?;
        Ok(0)
    })
}

/// Stores a packet that may be sent at `now_ns` in `*packet` and returns 1. If there is none, stores the time for which
/// to schedule the next call in `*next_ns`, SOFTCLOCK_NEVER if no packet waits, and returns 0. Call it until it returns
/// 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_dequeue(
    clock: *mut softclock_byte_clock,
    now_ns: u64,
    packet: *mut *mut c_void,
    next_ns: *mut u64,
) -> c_int {
    // SAFETY: as `access` demands; `packet` and `next_ns` are null or point to memory for their values.
    status(|| unsafe {
        let link = access(clock)?;
        if packet.is_null() || next_ns.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let next = match link.clock.dequeue(Instant::from_ns(now_ns)) {
            Dequeued::Send(_, taken) => {
                store(packet, taken);
                return Ok(1);
            }
            Dequeued::Wait(next) => next.as_ns(),
            Dequeued::Empty => SOFTCLOCK_NEVER,
        };
        store(next_ns, next);
        Ok(0)
    })
}

/// Returns the number of packets of a class that wait; 0 after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_queued(
    clock: *mut softclock_byte_clock,
    class_number: u32,
) -> usize {
    // SAFETY: as `access` demands.
    value_or(0, || unsafe {
        let link = access(clock)?;
        let class = link.class(class_number)?;
        Ok(link.clock.statistics(class).queued_packets)
    })
}

/// Takes all packets of a class that wait: stores them in `packets`, which has room for `room`, and returns their
/// number. -ENOBUFS if there are more; then none is taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_drain(
    clock: *mut softclock_byte_clock,
    class_number: u32,
    packets: *mut *mut c_void,
    room: usize,
) -> i64 {
    // SAFETY: as `access` demands; `packets` is null or points to memory for `room` pointers.
    status(|| unsafe {
        let link = access(clock)?;
        let class = link.class(class_number)?;
        let count = link.clock.statistics(class).queued_packets;
        if count > room {
            return Err(Errno(libc::ENOBUFS));
        }
        if count > 0 && packets.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        for (place, packet) in link.clock.drain(class).enumerate() {
            packets.add(place).write(packet);
        }
        Ok(count as i64)
    })
}

/// # Safety
/// `options` is null or points to options.
unsafe fn class_options(options: *const softclock_class_options) -> Result<ClassOptions, Errno> {
    // SAFETY: the caller's promise.
    let options = unsafe { options.as_ref() }.ok_or(Errno(libc::EINVAL))?;
    let rate = Rate::from_bps(options.rate_bps).ok_or(Errno(libc::EINVAL))?;
    let default = ClassOptions::of_rate(rate);
    let stated = |value: u64| (value > 0).then_some(value);
    let most_packets = match options.most_packets {
        0 => default.most_packets,
        1..=MOST_PACKETS => options.most_packets,
        _ => return Err(Errno(libc::EINVAL)),
    };
    Ok(ClassOptions {
        peak: Rate::from_bps(options.peak_bps),
        burst_bytes: stated(options.burst_bytes),
        most_behind: stated(options.most_behind_ns).map(Duration::from_nanos),
        most_packets,
        most_bytes: stated(options.most_bytes).unwrap_or(default.most_bytes),
        ..default
    })
}

/// # Safety
/// `clock` is null, or came from `softclock_byte_clock_new` and was not freed.
unsafe fn access<'a>(clock: *mut softclock_byte_clock) -> Result<&'a mut Link, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Handle::access(clock.cast()) }
}

/// The most classes of a clock.
const MOST_CLASSES: usize = 1 << 16;

/// The most packets of a class that wait.
const MOST_PACKETS: usize = 1 << 24;
