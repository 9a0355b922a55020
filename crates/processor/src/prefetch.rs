//! Prefetching. It changes no value and causes no fault at any address. The standard library does
//! not offer it to portable code yet (`hint_prefetch`).
#![allow(unsafe_code, reason = "instructions of one processor are `unsafe`, these as well")]

/// Lets the processor fetch the cache line in which `place` begins, without waiting for it. Does
/// nothing on other processors.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    fetch(core::ptr::from_ref(place).cast());
}

/// Bytes that a processor fetches together.
const LINE_BYTES: usize = 64;

/// Prefetches all cache lines of the first `bytes` bytes of `place`, or of all of it if it is
/// shorter.
#[inline(always)]
pub fn prefetch_first<T>(place: &T, bytes: usize) {
    let bytes = bytes.min(size_of::<T>());
    let start = core::ptr::from_ref(place).cast::<u8>();
    for line in 0..bytes.div_ceil(LINE_BYTES) {
        fetch(start.wrapping_add(line * LINE_BYTES));
    }
    // A part that begins in the middle of a line may end in one more line.
    let behind = bytes.saturating_sub(1);
    if behind % LINE_BYTES >= align_of::<T>() {
        fetch(start.wrapping_add(behind));
    }
}

#[inline(always)]
fn fetch(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of every x86-64; the instruction has no visible effect.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction has no visible effect, and touches no register.
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{}]",
            in(reg) place,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}
