//! The synthetic handler of *Soft Timers*, section 5.1, which displaces as many cache lines as a real handler would.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::safe::{AlarmSafe, Firing};

/// An alarm-safe handler that touches 50 data cache lines, going round 4 pages so that each firing touches a different
/// set; and 2 instruction cache lines on 2 separate pages.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct SyntheticHandler {
    lines: [Line; LINES],
    next: AtomicUsize,
    fired: AtomicU64,
}

/// A cache line of data.
#[derive(Debug)]
#[repr(C, align(64))]
struct Line(AtomicU64);

impl SyntheticHandler {
    /// Creates a handler. It is 5 pages large and meant for a `static`.
    #[expect(
        clippy::new_without_default,
        reason = "a value this large should not be created implicitly"
    )]
    pub const fn new() -> Self {
        Self {
            lines: [const { Line(AtomicU64::new(0)) }; LINES],
            next: AtomicUsize::new(0),
            fired: AtomicU64::new(0),
        }
    }

    /// Touches the next set of lines, like a firing. For callers that need no alarm.
    #[inline]
    pub fn touch(&self) {
        let first = self.next.load(Relaxed);
        for line in first..first + LINES_A_TIME {
            let line = &self.lines[line % LINES].0;
            line.store(line.load(Relaxed).wrapping_add(1), Relaxed);
        }
        self.next.store((first + LINES_A_TIME) % LINES, Relaxed);
        // SAFETY: each of the two functions, defined below, consists of a return instruction.
        unsafe {
            softclock_synthetic_page_1();
            softclock_synthetic_page_2();
        }
        self.fired.store(self.fired.load(Relaxed) + 1, Relaxed);
    }

    /// The number of times that it touched a set of lines.
    pub fn fires(&self) -> u64 {
        self.fired.load(Relaxed)
    }
}

// SAFETY: accesses atomics, at indices below the array's length, and calls two functions that only return.
unsafe impl AlarmSafe for SyntheticHandler {
    fn fire(&self, _: &Firing) {
        self.touch();
    }
}

/// The number of lines in 4 pages.
const LINES: usize = 4 * 4096 / size_of::<Line>();
const LINES_A_TIME: usize = 50;

const _: () = assert!(LINES == 256 && size_of::<SyntheticHandler>() == 5 * 4096);

// Two functions, each alone on a page of code, so that calling them takes two instruction cache lines and TLB entries.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
std::arch::global_asm!(
    ".pushsection .text.softclock_synthetic, \"ax\", @progbits",
    ".p2align 12",
    ".globl softclock_synthetic_page_1",
    ".hidden softclock_synthetic_page_1",
    "softclock_synthetic_page_1:",
    "ret",
    ".p2align 12",
    ".globl softclock_synthetic_page_2",
    ".hidden softclock_synthetic_page_2",
    "softclock_synthetic_page_2:",
    "ret",
    ".p2align 12",
    ".popsection",
);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
unsafe extern "C" {
    fn softclock_synthetic_page_1();
    fn softclock_synthetic_page_2();
}

/// On other architectures the compiler chooses the functions' places.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(never)]
unsafe extern "C" fn softclock_synthetic_page_1() {}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(never)]
unsafe extern "C" fn softclock_synthetic_page_2() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_different_set_of_50_lines_each_time() {
        static HANDLER: SyntheticHandler = SyntheticHandler::new();
        let touched = || -> Vec<u64> {
            let lines = HANDLER.lines.iter();
            lines.map(|line| line.0.load(Relaxed)).collect()
        };
        for _ in 0..5 {
            HANDLER.touch();
        }
        // Five times touch 250 lines once each; the sixth touches the remaining 6 and begins again.
        assert_eq!(touched().iter().sum::<u64>(), 250);
        assert!(touched().iter().all(|&count| count <= 1));
        HANDLER.touch();
        assert!(touched().iter().all(|&count| count >= 1));
        assert_eq!(touched().iter().filter(|&&count| count == 2).count(), 44);
        assert_eq!(HANDLER.fires(), 6);
    }

    #[test]
    fn the_code_is_on_two_pages() {
        let page = |function: unsafe extern "C" fn()| (function as usize) / 4096;
        let (one, two) = (softclock_synthetic_page_1, softclock_synthetic_page_2);
        assert_ne!(page(one), page(two));
    }
}
