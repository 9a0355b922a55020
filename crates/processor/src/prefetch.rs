//! Reading ahead. No value changes and no fault comes of it, whatever the address; the standard
//! library does not offer it to portable code yet (`hint_prefetch`).
#![allow(unsafe_code, reason = "instructions of one processor are `unsafe`, these as well")]

/// Lets the processor fetch the cache line where `place` begins, without waiting for it. Where it
/// cannot be asked to, nothing happens.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    let place = core::ptr::from_ref(place);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of every x86-64; the instruction reads nothing that could be seen.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction reads nothing that could be seen, and touches no register.
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
