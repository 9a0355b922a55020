//! The processor's cycle counter, where it can be trusted: it must tick at one rate whatever the
//! processor does ("invariant TSC").

#![allow(unsafe_code, reason = "the counter is read by an instruction that has no safe wrapper")]

/// The counter now; `None` on a processor without one that can be trusted.
#[cfg(target_arch = "x86_64")]
pub(super) fn trusted() -> bool {
    use core::arch::x86_64::__cpuid;
    // CPUID exists on every x86-64 processor; leaf 0x8000_0000 tells which further ones do.
    const LARGEST: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    #[allow(unused_unsafe, reason = "safe to call on newer toolchains")]
    // SAFETY: CPUID is part of the baseline of x86-64.
    let invariant = unsafe { __cpuid(LARGEST).eax >= POWER && __cpuid(POWER).edx & (1 << 8) != 0 };
    invariant
}

/// The counter now.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn read() -> u64 {
    // SAFETY: RDTSC is part of the baseline of x86-64, and user programs may execute it unless the
    // system forbids it, which Linux does only for those that ask (PR_SET_TSC).
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// False: no counter is known here.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn trusted() -> bool {
    false
}

/// Never called, since [`trusted`] says no.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn read() -> u64 {
    0
}
