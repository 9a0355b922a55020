//! Gives freed memory back to the operating system after a burst, once the buffers hold much less
//! than they did.

use std::time::Duration;

use lightwait::allocator;
use lightwait::shard::Handle;

/// How often the task checks. A connection keeps what requests need for a second behind its last
/// one, so that no peak of many goes by between two checks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Freeing fewer bytes is not worth the wait.
const WORTH_BYTES: usize = 16 << 20;
/// This many checks later, the memory of the connections themselves is free as well.
const AGAIN_AFTER: u32 = 60;

/// Watches `stack` until the task is aborted. Kept files hold a part of the stack's memory.
pub(super) async fn watch(stack: Handle, kept_bytes: impl Fn() -> u64) {
    let mut peak = Peak::default();
    loop {
        lightwait::rt::sleep(INTERVAL).await;
        let held = stack.with_host(|host| host.pages_in_use() * host.pool_info().page_bytes);
        let held = held.saturating_sub(kept_bytes() as usize);
        if peak.has_fallen(held) {
            allocator::give_back();
        }
    }
}

/// The most bytes held since the program last gave memory back.
#[derive(Debug, Default)]
struct Peak {
    bytes: usize,
    /// Bytes held at the last check.
    last: usize,
    /// Checks left until the program gives memory back once more; 0: it will not.
    again_in: u32,
}

impl Peak {
    /// True if so much less is held now, and no less than at the last check, that the program
    /// should give memory back. The maximum then starts anew.
    fn has_fallen(&mut self, held: usize) -> bool {
        self.bytes = self.bytes.max(held);
        let falls = held < std::mem::replace(&mut self.last, held);
        let has_fallen = self.bytes >= WORTH_BYTES && held <= self.bytes / 4 && !falls;
        let is_again = self.again_in == 1;
        self.again_in = self.again_in.saturating_sub(1);
        if has_fallen {
            *self = Peak { bytes: held, last: held, again_in: AGAIN_AFTER };
        }
        has_fallen || is_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_after_a_large_peak_and_when_all_is_free() {
        let mut peak = Peak::default();
        let looks = [15, 0, 0, 16, 5, 4, 4, 1000, 251, 250, 250, 63, 63, 100, 0, 0];
        let idle = [0; 100];
        let given = looks.iter().chain(&idle).map(|mib| peak.has_fallen(mib << 20));
        let given: Vec<usize> =
            given.enumerate().filter_map(|(at, is_given)| is_given.then_some(at)).collect();
        assert_eq!(given, [6, 10, 15, 15 + AGAIN_AFTER as usize]);
    }
}
