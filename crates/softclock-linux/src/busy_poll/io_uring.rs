//! Busy polling by an io_uring (IORING_REGISTER_NAPI, io_uring_register(2), Linux 6.9).

use std::io;
use std::os::fd::AsRawFd;

use ::io_uring::IoUring;

use super::BusyPoll;

/// Makes waits of a ring poll the devices of the sockets in its requests.
///
/// # Errors
/// `Unsupported` for kernels before 6.9.
pub(crate) fn set(ring: &IoUring, to: BusyPoll) -> io::Result<()> {
    if to.time.is_zero() {
        return register(
            ring,
            UNREGISTER_NAPI,
            &mut NapiSetting::new(to, REGISTER, 0),
        );
    }
    let mut setting = NapiSetting::new(to, REGISTER, TRACKING_DYNAMIC);
    register(ring, REGISTER_NAPI, &mut setting)
}

/// Makes waits of a ring poll this instance of receive work, regardless of the sockets in its requests.
///
/// # Errors
/// `Unsupported` for kernels before 6.13.
#[cfg(feature = "experiments")]
pub(crate) fn set_instance(ring: &IoUring, id: u32, to: BusyPoll) -> io::Result<()> {
    let mut tracking = NapiSetting::new(to, REGISTER, TRACKING_STATIC);
    register(ring, REGISTER_NAPI, &mut tracking)?;
    register(ring, REGISTER_NAPI, &mut NapiSetting::new(to, ADD_ID, id))
}

fn register(ring: &IoUring, operation: u32, setting: &mut NapiSetting) -> io::Result<()> {
    // SAFETY: the kernel reads and writes the one structure behind the pointer, which outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            operation,
            std::ptr::from_mut(setting),
            1,
        )
    };
    match (result, io::Error::last_os_error()) {
        (0.., _) => Ok(()),
        (_, error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        (_, error) => Err(error),
    }
}

/// `struct io_uring_napi` (include/uapi/linux/io_uring.h).
#[repr(C)]
struct NapiSetting {
    busy_poll_us: u32,
    prefers_busy_poll: u8,
    opcode: u8,
    padding: [u8; 2],
    parameter: u32,
    reserved: u32,
}

impl NapiSetting {
    fn new(to: BusyPoll, opcode: u8, parameter: u32) -> Self {
        Self {
            busy_poll_us: to.microseconds(),
            prefers_busy_poll: to.is_preferred.into(),
            opcode,
            padding: [0; 2],
            parameter,
            reserved: 0,
        }
    }
}

const REGISTER_NAPI: u32 = 27;
const UNREGISTER_NAPI: u32 = 28;
const REGISTER: u8 = 0;
#[cfg(feature = "experiments")]
const ADD_ID: u8 = 1;
const TRACKING_DYNAMIC: u32 = 0;
#[cfg(feature = "experiments")]
const TRACKING_STATIC: u32 = 1;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_setting_that_ends_is_the_one_that_was_made() {
        let ring = match IoUring::new(2) {
            Ok(ring) => ring,
            Err(error) => softclock_testing::skip!("io_uring: {error}"),
        };
        let changed = BusyPoll {
            is_preferred: true,
            ..BusyPoll::of(Duration::from_micros(50))
        };
        match set(&ring, changed) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                softclock_testing::skip!("io_uring has no busy polling here")
            }
            result => result.unwrap(),
        }
        // Unregistering returns the setting that was in force.
        let ended = || {
            let mut setting = NapiSetting::new(BusyPoll::OFF, REGISTER, 0);
            register(&ring, UNREGISTER_NAPI, &mut setting).unwrap();
            (setting.busy_poll_us, setting.prefers_busy_poll)
        };
        assert_eq!(ended(), (50, 1));
        set(&ring, changed).unwrap();
        set(&ring, BusyPoll::OFF).unwrap();
        assert_eq!(ended(), (0, 0));
    }
}
