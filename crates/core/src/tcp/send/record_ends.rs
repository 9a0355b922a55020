//! Where records of the application end (MSG_EOR of `send(2)`). A segment ends with the last byte
//! of a record: text of the next record begins another segment, also where it is sent again.
//!
//! ```text
//!      una         nxt                data_end
//!   ────┼─────┬──────┼────┬───────────────┼────▶
//!       │     │      │    │     not ended │
//!             ▲           ▲
//!             └ ends, kept until they are acknowledged
//! ```

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::SendHalf;
use crate::flow::Seq;

/// Ends kept at most. The buffer of a connection does not count them. With so many, the next record
/// waits as for room: Linux as well counts more memory for a record than its bytes.
const ENDS_MAX: usize = 4096;

/// One past the last byte of each record that ended and is not acknowledged, oldest first; never
/// none.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordEnds(VecDeque<Seq>);

impl RecordEnds {
    /// The first end behind `seq`.
    fn after(&self, seq: Seq) -> Option<Seq> {
        self.0.get(self.index_after(seq)).copied()
    }

    /// The last end before `seq`.
    fn before(&self, seq: Seq) -> Option<Seq> {
        let index = self.0.partition_point(|end| end.before(seq));
        self.0.get(index.checked_sub(1)?).copied()
    }

    fn index_after(&self, seq: Seq) -> usize {
        self.0.partition_point(|end| end.at_or_before(seq))
    }

    fn is_full(&self) -> bool {
        self.0.len() >= ENDS_MAX
    }

    /// The ends behind `una`, if there are any.
    pub(super) fn rest(mut self: Box<Self>, una: Seq) -> Option<Box<Self>> {
        self.0.drain(..self.index_after(una));
        (!self.0.is_empty()).then_some(self)
    }

    /// The ends up to `last`, if there are any.
    fn up_to(mut self: Box<Self>, last: Seq) -> Option<Box<Self>> {
        self.0.truncate(self.index_after(last));
        (!self.0.is_empty()).then_some(self)
    }
}

impl SendHalf {
    /// True if no further record may end before the peer has acknowledged some.
    pub(crate) fn is_full_of_records(&self) -> bool {
        self.record_ends().is_some_and(RecordEnds::is_full)
    }

    /// The last byte queued ends a record.
    pub(crate) fn end_record(&mut self) {
        let end = self.data_end();
        self.rare_mut().record_ends.get_or_insert_default().0.push_back(end);
    }

    /// How many of `len` bytes from `start` may be one segment: those up to the end of a record.
    pub(crate) fn within_record(&self, start: Seq, len: u32) -> u32 {
        let end = self.record_ends().and_then(|ends| ends.after(start));
        end.map_or(len, |end| end.since(start).min(len))
    }

    /// Where the last record of what lies from `start` to `end` begins; `start`, if all of it is
    /// of one.
    pub(super) fn last_record_start(&self, start: Seq, end: Seq) -> Seq {
        // FIN is of the last record.
        let last = end.min(self.data_end());
        let before = self.record_ends().and_then(|ends| ends.before(last));
        before.map_or(start, |before| before.max(start))
    }

    /// True if a record ends there.
    pub(crate) fn ends_record(&self, end: Seq) -> bool {
        self.record_ends().is_some_and(|ends| ends.after(end - 1) == Some(end))
    }

    /// What was queued last is not to be sent: no record ends there.
    pub(crate) fn forget_record_ends(&mut self) {
        let last = self.data_end();
        if let Some(rare) = &mut self.rare {
            rare.record_ends = rare.record_ends.take().and_then(|ends| ends.up_to(last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{context, synchronized};
    use super::*;
    use crate::buffer::PagePool;

    fn with_records(lens: &[usize]) -> SendHalf {
        with_records_of(&mut context(10).pool, lens)
    }

    /// Records of that many bytes are written.
    fn with_records_of(pool: &mut PagePool, lens: &[usize]) -> SendHalf {
        let mut send = synchronized().send;
        for len in lens {
            send.buffer.write(&std::vec![0; *len], pool);
            send.end_record();
        }
        send
    }

    #[test]
    fn a_segment_ends_with_a_record() {
        let send = with_records(&[10, 5]);
        let una = send.una;
        assert_eq!([100, 10, 9].map(|len| send.within_record(una, len)), [10, 10, 9]);
        assert_eq!(send.within_record(una + 9, 100), 1);
        assert_eq!(send.within_record(una + 10, 100), 5);
        assert_eq!(send.within_record(una + 15, 100), 100, "no record has ended behind that");
        assert_eq!(
            [0, 9, 10, 11, 15].map(|at| send.ends_record(una + at)),
            [false, false, true, false, true]
        );
    }

    #[test]
    fn the_last_record_of_a_range() {
        let send = with_records(&[10, 5]);
        let start = |from, to| send.last_record_start(send.una + from, send.una + to) - send.una.0;
        assert_eq!(start(0, 10), Seq(0));
        assert_eq!(start(0, 11), Seq(10));
        assert_eq!((start(0, 15), start(12, 15)), (Seq(10), Seq(12)));
        assert_eq!(start(3, 16), Seq(10), "FIN is of the last record");
    }

    #[test]
    fn ends_go_once_they_are_acknowledged_and_take_no_memory_then() {
        let mut send = with_records(&[10, 5]);
        let una = send.una;
        send.pass_marks(una + 9);
        assert!(send.ends_record(una + 10));
        send.pass_marks(una + 10);
        assert!(!send.ends_record(una + 10) && send.ends_record(una + 15));
        send.pass_marks(una + 15);
        assert!(send.record_ends().is_none());
    }

    #[test]
    fn ends_of_what_is_taken_back_are_forgotten() {
        let mut pool = context(10).pool;
        let mut send = with_records_of(&mut pool, &[10, 5_000, 5_000]);
        let taken = send.buffer.cut(5_010, usize::MAX, &mut pool);
        send.forget_record_ends();
        let left = 10_010 - taken;
        assert!(taken > 0);
        for end in [10, 5010, 10_010] {
            assert_eq!(send.ends_record(send.una + end), end as usize <= left, "{end} of {left}");
        }
    }

    #[test]
    fn so_many_records_may_wait_and_no_more() {
        let mut send = with_records(&[1; ENDS_MAX - 1]);
        assert!(!send.is_full_of_records());
        send.buffer.write(&[0], &mut context(10).pool);
        send.end_record();
        assert!(send.is_full_of_records());
        send.pass_marks(send.una + 1);
        assert!(!send.is_full_of_records());
    }
}
