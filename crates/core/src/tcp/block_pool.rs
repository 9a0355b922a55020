//! Keeps the blocks of connections that are gone, for later connections.
//!
//! A tick may end thousands of connections at once, and as many begin before the next. A block from
//! here is warmer than one from the allocator. The pool keeps no more than a share of the blocks in
//! use, so that little memory stays behind when a burst is over or its connections rest. A
//! connection that wakes allocates a block of its own; the block counts as in use only when the
//! connection has stayed awake for a while.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lightwait_processor::prefetch_first;

use crate::tcp::Connection;

/// Blocks that are kept in any case: some 70 KB.
const AT_LEAST: usize = 128;

/// One block is kept for so many in use.
const ONE_IN: usize = 4;

/// Blocks that no connection is in.
#[derive(Debug, Default)]
pub(crate) struct BlockPool {
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    kept: Vec<Box<Connection>>,
    /// Blocks taken, or adopted, and not given back.
    in_use: usize,
}

impl BlockPool {
    /// A block for a connection to begin in; `make` makes one if none is left.
    #[inline(always)]
    pub(crate) fn take(&mut self, make: impl FnOnce() -> Box<Connection>) -> Box<Connection> {
        self.in_use += 1;
        let block = self.kept.pop();
        if self.kept.len() > AT_LEAST {
            self.prefetch();
        }
        match block {
            Some(block) => block,
            None => make(),
        }
    }

    /// Fetches the next block: with many of them, it has long left the nearest cache.
    fn prefetch(&self) {
        if let Some(next) = self.kept.last() {
            prefetch_first::<Connection>(next, size_of::<Connection>());
        }
    }

    /// A block that was not taken here is in use as if it had been.
    pub(crate) fn adopt(&mut self) {
        self.in_use += 1;
    }

    /// Takes a block that is not needed any more, and is clear. `lent`: it was taken here, or
    /// adopted.
    #[inline(always)]
    pub(crate) fn put_back(&mut self, block: Box<Connection>, lent: bool) {
        self.in_use -= usize::from(lent);
        if self.kept.len() < self.wanted() {
            self.kept.push(block);
            return;
        }
        // There are enough. If there is one too many, that goes as well: of however many were in
        // use, `AT_LEAST` are left when all are back.
        drop(block);
        if self.kept.len() > self.wanted() {
            self.kept.pop();
        }
    }

    /// How many are to be kept.
    fn wanted(&self) -> usize {
        AT_LEAST.max(self.in_use / ONE_IN)
    }

    /// Blocks taken and not given back.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::config::TcpConfig;
    use crate::tcp::SocketOptions;

    fn blank() -> Box<Connection> {
        Box::new(Connection::blank(Arc::new(SocketOptions::new(&TcpConfig::default()))))
    }

    #[test]
    fn blocks_freed_at_once_are_kept_up_to_a_quarter_of_the_rest() {
        let mut block_pool = BlockPool::default();
        let mut taken: Vec<_> = (0..5000).map(|_| block_pool.take(blank)).collect();
        taken.drain(..1000).for_each(|block| block_pool.put_back(block, true));
        let found = (0..1000).filter(|_| {
            let mut is_found = true;
            taken.push(block_pool.take(|| {
                is_found = false;
                blank()
            }));
            is_found
        });
        assert_eq!(found.count(), 1000);
        taken.drain(..).for_each(|block| block_pool.put_back(block, true));
        assert_eq!((block_pool.kept.len(), block_pool.in_use()), (AT_LEAST, 0));
    }

    proptest! {
        #[test]
        fn what_is_kept_is_bounded_by_what_is_in_use(
            steps in prop::collection::vec((any::<bool>(), 0_usize..3000), 1..20),
        ) {
            let mut block_pool = BlockPool::default();
            let mut taken = Vec::new();
            for (takes, count) in steps {
                for _ in 0..count {
                    if takes {
                        taken.push(block_pool.take(blank));
                    } else if let Some(block) = taken.pop() {
                        block_pool.put_back(block, true);
                    } else {
                        block_pool.put_back(blank(), false);
                    }
                    prop_assert_eq!(block_pool.in_use(), taken.len());
                    prop_assert!(block_pool.kept.len() <= AT_LEAST.max(taken.len() / ONE_IN));
                }
            }
        }
    }
}
