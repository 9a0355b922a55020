//! What the compiler cannot know: which branches are taken rarely. It then lays their code out
//! behind the function's end, so that what runs for every segment lies together and fits into the
//! processor's first cache (32 KiB), and it spills registers there rather than on the way.
//!
//! Only what is rare in every workload is told: an allocation, an overflow, a limit reached, a
//! segment lost. What one workload seldom does and another always is told nothing. A choice of
//! configuration that is not the default may be: the code is laid out for the default. Where the
//! branch is no `bool`, `core::hint::cold_path` stands at the beginning of the rare arm.

use core::hint::cold_path;

/// `condition`, which seldom holds.
#[inline(always)]
pub(crate) const fn unlikely(condition: bool) -> bool {
    if condition {
        cold_path();
    }
    condition
}
