//! Results as C programs expect them: error numbers as negative values.

use std::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error number of errno(3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        let otherwise = match error.kind() {
            io::ErrorKind::OutOfMemory => libc::ENOMEM,
            _ => libc::EIO,
        };
        Self(error.raw_os_error().unwrap_or(otherwise))
    }
}

/// Calls `call`, and returns its result, or the negative error number. A panic becomes ENOTRECOVERABLE.
pub(crate) fn status<T: From<c_int>>(call: impl FnOnce() -> Result<T, Errno>) -> T {
    // After a panic the caller learns that the object is not usable; it has to free it.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno(libc::ENOTRECOVERABLE)));
    result.unwrap_or_else(|Errno(number)| T::from(-number))
}

/// Calls `call`, and returns its result, or `otherwise` after an error or a panic.
pub(crate) fn value_or<T>(otherwise: T, call: impl FnOnce() -> Result<T, Errno>) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(_)) | Err(_) => otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_panics_are_negative() {
        assert_eq!(status(|| Ok(3)), 3);
        assert_eq!(status::<i64>(|| Err(Errno(libc::EINVAL))), -22);
        assert_eq!(status::<c_int>(|| panic!("a bug")), -libc::ENOTRECOVERABLE);
        assert_eq!(value_or(7, || panic!("a bug")), 7);
    }

    #[test]
    fn a_refused_allocation_is_enomem() {
        let refused = Vec::<u8>::new().try_reserve(usize::MAX).unwrap_err();
        assert_eq!(Errno::from(io::Error::from(refused)), Errno(libc::ENOMEM));
        let full = io::Error::from_raw_os_error(libc::EAGAIN);
        assert_eq!(Errno::from(full), Errno(libc::EAGAIN));
    }
}
