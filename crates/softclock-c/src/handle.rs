//! Objects that C programs hold by pointers, each of which belongs to the thread that created it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::status::Errno;

/// An object and its thread.
pub(crate) struct Handle<T> {
    owner: u64,
    object: T,
}

impl<T> Handle<T> {
    /// Moves `object` to the heap and stores the pointer to it in `out`.
    ///
    /// # Safety
    /// `out` is null or points to memory for a pointer.
    pub(crate) unsafe fn create(out: *mut *mut Self, object: T) -> Result<(), Errno> {
        if out.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let owner = this_thread();
        let pointer = Box::into_raw(Box::new(Self { owner, object }));
        // SAFETY: the caller's promise. There may be no valid pointer yet, so that a reference would not be sound.
        unsafe { out.write(pointer) };
        Ok(())
    }

    /// Returns the object; EINVAL if the pointer is null, and EPERM in another thread than its own.
    ///
    /// # Safety
    /// `pointer` is null, or came from [`create`](Self::create) and was not freed.
    pub(crate) unsafe fn access<'a>(pointer: *mut Self) -> Result<&'a mut T, Errno> {
        if pointer.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the object exists, by the caller's promise, and its owner never changes.
        if unsafe { (&raw const (*pointer).owner).read() } != this_thread() {
            return Err(Errno(libc::EPERM));
        }
        // SAFETY: only this thread gets references, and each lasts for one call from C only.
        Ok(unsafe { &mut (*pointer).object })
    }

    /// Frees the object. Does nothing if the pointer is null; returns EPERM in another thread than its own.
    ///
    /// # Safety
    /// As for [`access`](Self::access).
    pub(crate) unsafe fn free(pointer: *mut Self) -> Result<(), Errno> {
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { Self::access(pointer) }?;
        // SAFETY: it came from a box, and the caller uses it no longer.
        drop(unsafe { Box::from_raw(pointer) });
        Ok(())
    }
}

/// Returns the serial number of the thread, which no other thread of the process has or had. An address in its memory
/// would not do: a later thread may have the memory of one that has ended.
fn this_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        /// 0 before the first call.
        static SERIAL: Cell<u64> = const { Cell::new(0) };
    }
    if SERIAL.get() == 0 {
        SERIAL.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
    }
    SERIAL.get()
}

/// Stores `value` at `out`, if that is not null.
///
/// # Safety
/// `out` is null or points to memory for a value.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the caller's promise; the memory may hold no valid value yet.
        unsafe { out.write(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_threads_are_refused() {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the pointers are valid, and freed once.
        unsafe {
            Handle::create(&raw mut pointer, 7).unwrap();
            assert_eq!(Handle::access(pointer), Ok(&mut 7));
            let address = pointer.expose_provenance();
            let elsewhere = std::thread::spawn(move || {
                let pointer = std::ptr::with_exposed_provenance_mut::<Handle<i32>>(address);
                (Handle::access(pointer).err(), Handle::free(pointer).err())
            });
            let refused = Some(Errno(libc::EPERM));
            assert_eq!(elsewhere.join().unwrap(), (refused, refused));
            Handle::free(pointer).unwrap();
            let null = std::ptr::null_mut::<Handle<i32>>();
            assert_eq!(Handle::access(null), Err(Errno(libc::EINVAL)));
            assert_eq!(Handle::free(null), Ok(()));
            assert_eq!(
                Handle::create(std::ptr::null_mut(), 7),
                Err(Errno(libc::EINVAL))
            );
        }
    }

    /// A later thread has the stack and the thread-local memory of one that has ended.
    #[test]
    fn later_threads_are_refused() {
        for _ in 0..8 {
            let ended = std::thread::spawn(|| {
                let mut pointer = std::ptr::null_mut();
                // SAFETY: `pointer` is a pointer.
                unsafe { Handle::create(&raw mut pointer, 7) }.unwrap();
                pointer.expose_provenance()
            });
            let address = ended.join().unwrap();
            let later = std::thread::spawn(move || {
                let pointer = std::ptr::with_exposed_provenance_mut::<Handle<i32>>(address);
                // SAFETY: it is not freed.
                unsafe { Handle::access(pointer).err() }
            });
            assert_eq!(later.join().unwrap(), Some(Errno(libc::EPERM)));
        }
    }
}
