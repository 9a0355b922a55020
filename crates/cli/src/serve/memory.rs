//! Memory after a burst: once buffers hold much less than they did, what they have freed goes back
//! to the operating system.

use std::time::Duration;

use lightwait::allocator;
use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_core::tcp::pool::PAGE_BYTES;

/// How often is looked.
const INTERVAL: Duration = Duration::from_secs(2);
/// Less is not worth the wait.
const WORTH_BYTES: usize = 64 << 20;

/// Looks at `stack`, until the task is aborted.
pub(super) async fn watch(stack: Handle) {
    let mut peak = Peak::default();
    loop {
        lightwait::rt::sleep(INTERVAL).await;
        if peak.has_fallen(stack.with_host(Host::pages_in_use) * PAGE_BYTES) {
            allocator::give_back();
        }
    }
}

/// The most that was held since memory was given back last, in bytes.
#[derive(Debug, Default)]
struct Peak(usize);

impl Peak {
    /// True if so much less is held now that the rest should be given back. It counts anew then.
    fn has_fallen(&mut self, held: usize) -> bool {
        self.0 = self.0.max(held);
        let has_fallen = self.0 >= WORTH_BYTES && held <= self.0 / 4;
        if has_fallen {
            self.0 = held;
        }
        has_fallen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_when_a_large_peak_is_over() {
        let mut peak = Peak::default();
        let looks = [60, 0, 64, 17, 16, 0, 1000, 251, 250, 63, 100, 0];
        let given = looks.map(|mib| peak.has_fallen(mib << 20));
        let expected = [4, 8, 11];
        for (at, given) in given.into_iter().enumerate() {
            assert_eq!(given, expected.contains(&at), "look {at}");
        }
    }
}
