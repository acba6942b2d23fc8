//! The processor's time stamp counter, if it can be trusted.

use std::fs;

use super::source::Distrust;

/// A counter that advances at a constant rate and is the same on all processors.
///
/// A value of this type is proof that [`Counter::detect`] found the counter trustworthy.
#[derive(Clone, Copy, Debug)]
pub struct Counter(());

impl Counter {
    /// Returns the counter of this machine, or the reason why it cannot be used.
    ///
    /// This relies on the kernel, which compares the counters of all processors at boot and keeps watching them. The
    /// counter is trustworthy if the kernel uses it as its own clock source. Paravirtual clock sources (kvm-clock, the
    /// Hyper-V page) do not qualify, although they read the counter: they may rescale it when the machine migrates.
    pub fn detect() -> Result<Self, Distrust> {
        arch::check()?;
        let current = current_clocksource();
        if current == arch::CLOCKSOURCE {
            Ok(Self(()))
        } else {
            Err(Distrust::KernelUses(current.leak()))
        }
    }

    /// Reads the counter. The processor may reorder the reading with the instructions around it.
    #[inline(always)]
    pub fn read(self) -> u64 {
        read_unordered()
    }

    /// Reads the counter after all earlier instructions have completed.
    #[inline]
    pub fn read_ordered(self) -> u64 {
        arch::barrier();
        arch::read()
    }
}

/// Reads the counter without proof of trust, for the conversion, which knows that the counter is in use.
#[inline(always)]
pub(super) fn read_unordered() -> u64 {
    arch::read()
}

/// Whether the counter of this architecture is the time stamp counter of x86; otherwise it is Arm's generic timer.
pub(super) const IS_TSC: bool = cfg!(target_arch = "x86_64");

fn current_clocksource() -> String {
    match fs::read_to_string(CURRENT_CLOCKSOURCE) {
        Ok(name) => name.trim().to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}

const CURRENT_CLOCKSOURCE: &str =
    "/sys/devices/system/clocksource/clocksource0/current_clocksource";

#[cfg(target_arch = "x86_64")]
mod arch {
    use core::arch::x86_64::{__cpuid, _mm_lfence, _rdtsc, CpuidResult};

    use super::Distrust;

    pub(super) const CLOCKSOURCE: &str = "tsc";

    /// Checks that the counter runs at one rate in all power states: CPUID 0x8000_0007, EDX bit 8.
    pub(super) fn check() -> Result<(), Distrust> {
        let highest = cpuid(0x8000_0000).eax;
        if highest >= 0x8000_0007 && cpuid(0x8000_0007).edx & (1 << 8) != 0 {
            Ok(())
        } else {
            Err(Distrust::NotInvariant)
        }
    }

    #[allow(unused_unsafe, reason = "the call is unsafe before Rust 1.94")]
    fn cpuid(leaf: u32) -> CpuidResult {
        // SAFETY: every x86_64 processor has CPUID.
        unsafe { __cpuid(leaf) }
    }

    #[inline(always)]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86_64 processor has RDTSC. A process that set PR_TSC_SIGSEGV for itself gets a signal here,
        // not undefined behaviour.
        unsafe { _rdtsc() }
    }

    #[inline(always)]
    pub(super) fn barrier() {
        // SAFETY: LFENCE is part of SSE2, which every x86_64 processor has.
        unsafe { _mm_lfence() }
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use core::arch::asm;

    use super::Distrust;

    pub(super) const CLOCKSOURCE: &str = "arch_sys_counter";

    /// Checks that the frequency is set. The architecture guarantees the rest: the generic timer is constant and
    /// global.
    pub(super) fn check() -> Result<(), Distrust> {
        if frequency() == 0 {
            Err(Distrust::NotInvariant)
        } else {
            Ok(())
        }
    }

    fn frequency() -> u64 {
        let hz: u64;
        // SAFETY: Linux lets user space read CNTFRQ_EL0; the instruction touches no memory.
        unsafe {
            asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags))
        };
        hz
    }

    #[inline(always)]
    pub(super) fn read() -> u64 {
        let ticks: u64;
        // SAFETY: Linux lets user space read CNTVCT_EL0 (its vDSO does so itself), or emulates it where the counter is
        // broken; the instruction touches no memory.
        unsafe {
            asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
        };
        ticks
    }

    #[inline(always)]
    pub(super) fn barrier() {
        // SAFETY: ISB only orders instructions.
        unsafe { asm!("isb", options(nomem, nostack, preserves_flags)) }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    use super::Distrust;

    pub(super) const CLOCKSOURCE: &str = "";

    pub(super) fn check() -> Result<(), Distrust> {
        Err(Distrust::NoCounter)
    }

    pub(super) fn read() -> u64 {
        0
    }

    pub(super) fn barrier() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trusted_counter_advances() {
        let Ok(counter) = Counter::detect() else {
            return;
        };
        let first = counter.read_ordered();
        let second = counter.read_ordered();
        assert!(second >= first);
    }
}
