//! Pages of datagrams that wait to be read, or to be sent.

use super::{PAGE, Page, PagePool, Purpose, UNIT_BYTES};

/// The part of the limit that datagrams may have: one in so many.
pub const PART_OF_DATAGRAMS: usize = 4;

impl PagePool {
    /// A page for datagrams, or `None` if they have their part, or there is none at all. The
    /// caller then drops the datagram: nothing else has to make room.
    pub(crate) fn take_for_datagrams(&mut self) -> Option<Page> {
        let most = (self.limit / PART_OF_DATAGRAMS).max(PAGE);
        let is_within = self.by_datagrams + PAGE <= most
            && self.in_use + PAGE <= self.limits[Purpose::Receive as usize];
        is_within.then(|| {
            self.by_datagrams += PAGE;
            self.in_use += PAGE;
            self.take_charged()
        })
    }

    /// Gives such a page back.
    pub(crate) fn put_of_datagrams(&mut self, page: Page) {
        self.by_datagrams -= PAGE;
        self.in_use -= PAGE;
        self.free.put(page, self.in_use * UNIT_BYTES);
    }

    /// Pages that datagrams hold.
    pub fn held_by_datagrams(&self) -> usize {
        self.by_datagrams.div_ceil(self.per_page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_have_their_part_and_not_a_page_more() {
        let mut pool = PagePool::new(64);
        let pages: alloc::vec::Vec<Page> =
            (0..16).map(|_| pool.take_for_datagrams().unwrap()).collect();
        assert_eq!((pool.held_by_datagrams(), pool.in_use()), (16, 16));
        assert!(pool.take_for_datagrams().is_none() && !pool.was_refused());
        pages.into_iter().for_each(|page| pool.put_of_datagrams(page));
        assert_eq!((pool.held_by_datagrams(), pool.in_use()), (0, 0));
        // Where streams have all, datagrams have nothing.
        assert!(pool.charge(64, Purpose::Receive));
        assert!(pool.take_for_datagrams().is_none());
    }
}
