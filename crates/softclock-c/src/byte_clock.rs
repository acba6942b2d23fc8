//! Byte clocks.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use softclock::Rate;
use softclock::embed::{ByteClock, ClassId, ClassOptions, Dequeued, Instant};

use crate::NEVER;
use crate::handle::{Handle, store};
use crate::status::{Errno, status, value_or};

/// Schedules packets of several classes on one link. A name for pointers only.
#[repr(C)]
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

/// The options of a class. 0 stands for a default.
#[repr(C)]
pub struct softclock_class_options {
    /// The average rate in bits per second; it has no default.
    pub rate_bps: u64,
    /// The rate at which the class catches up, in bits per second.
    pub peak_bps: u64,
    /// The bytes that the class may make up for after it was idle.
    pub burst_bytes: u64,
    /// The time that the class may make up for after its packets were sent late.
    pub most_behind_ns: u64,
    /// The most bytes that wait.
    pub most_bytes: u64,
    /// The most packets that wait.
    pub most_packets: usize,
}

/// Creates a byte clock without classes.
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

/// Frees a byte clock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softclock_byte_clock_free(clock: *mut softclock_byte_clock) -> c_int {
    // SAFETY: `clock` is null or came from `softclock_byte_clock_new`.
    status(|| unsafe { Handle::free(clock.cast::<Handle<Link>>()).map(|()| 0) })
}

/// Delays packets so that several leave together.
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

/// Adds a class.
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

/// Changes the options of a class.
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

/// Queues a packet.
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

/// Takes the next packet that may be sent, or says when one may.
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
            Dequeued::Empty => NEVER,
        };
        store(next_ns, next);
        Ok(0)
    })
}

/// Returns the number of packets of a class that wait.
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

/// Takes all packets of a class that wait.
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
