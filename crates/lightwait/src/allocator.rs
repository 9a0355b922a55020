//! Memory that was freed goes back to the operating system.
//!
//! The C library keeps what lies below something that is still in use, however much it is. After an
//! attack or a burst that may be a gigabyte.

#![allow(unsafe_code, reason = "malloc_trim has no safe wrapper")]

/// Gives what this process has freed back to the operating system, as far as its allocator can.
/// Other threads that allocate wait meanwhile: a tenth of a second for a gigabyte.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of this process that lie in memory.
    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn what_lies_below_something_in_use_is_given_back() {
        const BYTES: usize = 64 << 20;
        let before = resident();
        let pages: Vec<Box<[u8; 4096]>> = (0..BYTES / 4096).map(|_| Box::new([7; 4096])).collect();
        let above = Box::new([7; 4096]);
        drop(pages);
        give_back();
        let kept = resident().saturating_sub(before);
        assert!(kept < BYTES / 2, "{kept}");
        assert_eq!(above[0], 7);
    }
}
