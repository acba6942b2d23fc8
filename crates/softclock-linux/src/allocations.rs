//! An allocator that counts, for tests of code that is to allocate nothing.
//!
//! ```
//! use softclock_linux::allocations::{Counted, of_this_thread};
//!
//! #[global_allocator]
//! static COUNTED: Counted = Counted;
//!
//! let before = of_this_thread();
//! drop(Box::new([0u8; 100]));
//! assert_eq!(of_this_thread() - before, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts for each thread how often it is asked for memory.
#[derive(Debug)]
pub struct Counted;

thread_local! {
    /// Without a destructor, so that it can be counted until the thread's end.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has asked for memory, or for more of it.
pub fn of_this_thread() -> u64 {
    COUNT.get()
}

fn count() {
    COUNT.set(COUNT.get() + 1);
}

// SAFETY: all is done by the system's allocator; counting allocates nothing and cannot panic.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}
