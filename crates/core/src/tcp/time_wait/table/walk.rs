//! Looking at all records in pieces, number by number.

use super::handles::Handles;
use super::row::Row;
use super::{Distance, RecordSet, TimeWait};
use crate::tcp::time_wait::Record;

impl TimeWait {
    /// The sets of records, each in order of expiry: those of a duration and an IP version.
    pub(crate) const SETS: u8 = 2 * Distance::ALL.len() as u8;

    /// The number of the first record of a set, for [`Self::look_at`].
    pub(crate) fn first_number(&self, set: u8) -> u32 {
        let class = &self.classes[usize::from(set / 2)];
        let span =
            if set.is_multiple_of(2) { class.v4.queue.span() } else { class.v6.queue.span() };
        span.first
    }

    /// The record of that number in a set, or the first if that has been passed; and the next
    /// number that may have one.
    pub(crate) fn look_at(&self, set: u8, number: u32) -> (Option<Record>, Option<u32>) {
        let (class, handles) = (&self.classes[usize::from(set / 2)], &self.handles);
        if set.is_multiple_of(2) {
            class.v4.look_at(number, handles)
        } else {
            class.v6.look_at(number, handles)
        }
    }
}

impl<R: Row> RecordSet<R> {
    fn look_at(&self, number: u32, handles: &Handles) -> (Option<Record>, Option<u32>) {
        let Some((seen, following)) = self.queue.look_at(number) else { return (None, None) };
        let found = seen.map(|seen| self.found(&handles.tuple(seen.row), seen, handles).record());
        (found, Some(following))
    }
}
