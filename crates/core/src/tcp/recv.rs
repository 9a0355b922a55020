//! The receiving half of a synchronized connection: the window that it allows, what has arrived,
//! and the ACKs that it owes.
//!
//! ```text
//!         nxt                     edge
//!   ───────┼───────────────────────┼──────────▶ sequence space (RFC 9293 Figure 4)
//!   arrived│       allowed         │ not allowed
//! ```

pub mod ack;
pub(crate) mod assembler;
pub mod buffer;
pub mod window;

use ack::{AckState, DUPLICATES_MAX};
use assembler::Assembler;
use buffer::RecvBuffer;
use window::RecvWindow;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::buffer::PagePool;
use crate::counters::Counters;
use crate::flow::Seq;
use crate::tcp::timers::Deadlines;
use crate::wire::checksum::{Sum, sum};
use crate::wire::options::{SackBlock, SackBlocks};

/// Receive sequence variables and what belongs to them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RecvHalf {
    /// RCV.NXT: the next number expected.
    pub nxt: Seq,
    /// The MSS that we announced.
    pub mss: u16,
    /// The acknowledgements that are owed.
    pub ack: AckState,
    /// The window that is promised.
    pub window: RecvWindow,
    /// Data received and not yet read.
    pub buffer: RecvBuffer,
    /// The number of the peer's FIN, once seen.
    pub fin: Option<Seq>,
    /// Data received out of order, or twice, or urgent; not there while there is none.
    pub disorder: Option<Box<Disorder>>,
}

/// What has arrived out of order, or twice, or is urgent, and what is owed for it.
#[derive(Debug, Default)]
pub(crate) struct Disorder {
    /// What has arrived beyond RCV.NXT.
    assembler: Assembler,
    /// A duplicate to report in the next ACK (RFC 2883).
    duplicate: Option<SackBlock>,
    /// The first numbers of the segments for which a duplicate ACK is owed, oldest first: each has
    /// its own block first in its ACK (RFC 2018 §4).
    triggers: VecDeque<Seq>,
    /// RCV.UP: one past the peer's last urgent byte, while it is not read.
    urgent: Option<Seq>,
}

impl Disorder {
    fn is_over(&self) -> bool {
        let is_in_order = self.assembler.is_empty() && self.triggers.is_empty();
        is_in_order && self.duplicate.is_none() && self.urgent.is_none()
    }
}

/// The effect of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// RCV.NXT has moved by so many bytes.
    InOrder(u32),
    /// It was kept beyond RCV.NXT, from this number on.
    OutOfOrder(Seq),
    /// All of it had arrived before.
    Duplicate,
    /// It was dropped for want of memory.
    Dropped,
}

impl RecvHalf {
    /// Bytes that the peer may send from RCV.NXT on.
    pub(crate) fn offered(&self) -> u32 {
        self.window.offered(self.nxt)
    }

    /// Bytes from RCV.NXT on that the buffer could take: what is offered, or more.
    pub(crate) fn possible(&self) -> u32 {
        self.offered().max(self.window.size().saturating_sub(self.buffer.len() as u32))
    }

    /// RFC 9293 §3.10.7.4, first step: the acceptability test, for a segment of `len` numbers and a
    /// window of `window` bytes.
    pub(crate) fn accepts(&self, seq: Seq, len: u32, window: u32) -> bool {
        match (len, window) {
            (0, 0) => seq == self.nxt,
            (0, _) => seq.within(self.nxt, window),
            (_, 0) => false,
            _ => seq.within(self.nxt, window) || (seq + (len - 1)).within(self.nxt, window),
        }
    }

    /// Takes in the bytes `data` at `seq`, already cut to the window.
    pub(crate) fn on_text(
        &mut self,
        seq: Seq,
        data: &[u8],
        pool: &mut PagePool,
        counters: &mut Counters,
    ) -> Text {
        let end = seq + data.len() as u32;
        if end.at_or_before(self.nxt) || self.assembler().is_some_and(|held| held.holds(seq, end)) {
            self.note_duplicate(SackBlock { start: seq, end });
            counters.duplicates += 1;
            return Text::Duplicate;
        }
        let known = self.nxt.distance(seq).max(0) as usize;
        // RFC 2883 §4: the first duplicate piece of a segment is reported.
        if known > 0 {
            self.note_duplicate(SackBlock { start: seq, end: self.nxt });
        } else if let Some(block) = self.assembler().and_then(|held| held.overlap(seq, end)) {
            self.note_duplicate(block);
        }
        let (seq, data) = (seq + known as u32, &data[known..]);
        if seq != self.nxt && self.assembler().is_some_and(|held| !held.accepts(seq, end)) {
            counters.assembler_full += 1;
            return Text::Dropped;
        }
        let written = if seq == self.nxt {
            self.write_in_order(data, pool)
        } else {
            // The last quarter of the pool is for what can be read at once, and for sending.
            !pool.is_scarce() && self.buffer.write(seq.since(self.nxt) as usize, data, pool)
        };
        if !written {
            counters.receive_pool_empty += 1;
            return Text::Dropped;
        }
        if seq != self.nxt {
            self.disorder.get_or_insert_default().assembler.insert(seq, end);
            counters.out_of_order += 1;
            return Text::OutOfOrder(seq);
        }
        let held = self.disorder.as_mut().map(|disorder| &mut disorder.assembler);
        let next = held.map_or(end, |held| held.advance(end));
        let advanced = next.since(self.nxt);
        self.buffer.advance(advanced as usize);
        self.nxt = next;
        Text::InOrder(advanced)
    }

    /// What has arrived beyond RCV.NXT, if anything is out of order.
    fn assembler(&self) -> Option<&Assembler> {
        self.disorder.as_ref().map(|disorder| &disorder.assembler)
    }

    /// True if there is something beyond RCV.NXT.
    pub(crate) fn has_holes(&self) -> bool {
        self.assembler().is_some_and(|held| !held.is_empty())
    }

    /// What `block` holds has arrived twice: the next ACK reports it.
    pub(crate) fn note_duplicate(&mut self, block: SackBlock) {
        self.disorder.get_or_insert_default().duplicate = Some(block);
    }

    /// RCV.UP: one past the peer's last urgent byte, while it is not read.
    pub(crate) fn urgent(&self) -> Option<Seq> {
        self.disorder.as_ref()?.urgent
    }

    /// RCV.UP moves to `up`.
    pub(crate) fn note_urgent(&mut self, up: Seq) {
        self.disorder.get_or_insert_default().urgent = Some(up);
    }

    /// Everything before `read_to` has been read, urgent or not.
    pub(crate) fn forget_urgent(&mut self, read_to: Seq) {
        self.with_disorder(|held| held.urgent = held.urgent.filter(|up| up.after(read_to)));
    }

    /// Has `act` change what is out of order, if anything is, and frees it once nothing is.
    fn with_disorder(&mut self, act: impl FnOnce(&mut Disorder)) {
        let Some(disorder) = &mut self.disorder else { return };
        act(disorder);
        if disorder.is_over() {
            self.disorder = None;
        }
    }

    /// Takes in the bytes `data` at RCV.NXT when nothing is held beyond. False, and nothing has
    /// happened, if there is no memory for them.
    #[inline(always)]
    pub(crate) fn on_next_text(&mut self, data: &[u8], pool: &mut PagePool) -> bool {
        let is_written = self.buffer.append(data, pool);
        if is_written {
            self.nxt += data.len() as u32;
        }
        is_written
    }

    /// Takes in `data` at RCV.NXT if `is_right` accepts its sum, which is taken while the bytes are
    /// copied.
    pub(crate) fn on_next_text_if(
        &mut self,
        data: &[u8],
        pool: &mut PagePool,
        is_right: impl Fn(Sum) -> bool,
    ) -> bool {
        let Some(total) = self.buffer.write_and_sum(data, pool) else {
            return is_right(sum(data)) && self.on_next_text(data, pool);
        };
        if !is_right(total) {
            self.buffer.truncate(pool);
            return false;
        }
        self.buffer.advance(data.len());
        self.nxt += data.len() as u32;
        true
    }

    /// The piece size of a large segment of `len` bytes whose pieces are not known: our MSS is
    /// assumed.
    pub(crate) fn whole_piece(&self, len: usize) -> u16 {
        len.min(self.mss.into()) as u16
    }

    /// FIN has come, with that number, perhaps before what precedes it. The first one stands: a
    /// stream has one end, and nothing counts behind it.
    pub(crate) fn on_fin(&mut self, fin: Seq) {
        if self.fin.is_none() {
            self.fin = Some(fin);
            self.with_disorder(|disorder| disorder.assembler.cut(fin));
        }
    }

    /// Data in order goes before data out of order: if no page is free, what lies beyond RCV.NXT is
    /// dropped for it (RFC 2018 §8 allows that; it was never acknowledged).
    fn write_in_order(&mut self, data: &[u8], pool: &mut PagePool) -> bool {
        self.buffer.write(0, data, pool) || {
            self.with_disorder(|disorder| disorder.assembler.clear());
            self.buffer.truncate(pool);
            self.buffer.write(0, data, pool)
        }
    }

    /// A segment that begins at `seq` lies beyond RCV.NXT: a duplicate ACK is owed for it.
    pub(crate) fn on_out_of_order(&mut self, seq: Seq) {
        self.ack.on_out_of_order();
        let triggers = &mut self.disorder.get_or_insert_default().triggers;
        if triggers.len() < DUPLICATES_MAX.into() {
            triggers.push_back(seq);
        }
    }

    /// RCV.NXT has moved: duplicate ACKs owed for the hole are owed no more.
    #[inline(always)]
    pub(crate) fn on_advance(&mut self) {
        self.ack.on_advance();
        self.with_disorder(|disorder| disorder.triggers = VecDeque::new());
    }

    /// The first number of the segment for which the next duplicate ACK is owed.
    pub(crate) fn trigger(&self) -> Option<Seq> {
        self.disorder.as_ref()?.triggers.front().copied()
    }

    /// A duplicate ACK has left.
    pub(crate) fn on_duplicate_sent(&mut self) {
        self.ack.duplicates -= 1;
        self.with_disorder(|disorder| {
            disorder.triggers.pop_front();
        });
    }

    /// The window field of an ACK of everything before `ack`. Where that is not RCV.NXT, what came
    /// behind it is not unread yet.
    pub(crate) fn announce(&mut self, ack: Seq) -> u16 {
        let unread = self.buffer.len() as u32;
        let behind = (self.read_position() + unread).distance(ack).max(0) as u32;
        self.window.announce(ack, unread.saturating_sub(behind), self.mss)
    }

    /// An ACK has left with a segment.
    pub(crate) fn on_acknowledged(&mut self, deadlines: &mut Deadlines) {
        self.with_disorder(|disorder| disorder.duplicate = None);
        self.ack.on_sent(self.nxt, deadlines);
    }

    /// True if there are SACK blocks to send.
    pub(crate) fn has_sack_blocks(&self) -> bool {
        let tells = |held: &Disorder| held.duplicate.is_some() || !held.assembler.is_empty();
        self.disorder.as_deref().is_some_and(tells)
    }

    /// SACK blocks to send: a duplicate first, then the block that holds it (RFC 2883 §4), then
    /// that which `trigger` belongs to, then what else lies beyond RCV.NXT.
    pub(crate) fn sack_blocks(&self, trigger: Option<Seq>) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        let Some(disorder) = &self.disorder else { return blocks };
        if let Some(duplicate) = disorder.duplicate {
            blocks.push(duplicate);
        }
        let holder = disorder.duplicate.map(|duplicate| duplicate.start);
        disorder.assembler.sack_blocks([holder, trigger], &mut blocks);
        blocks
    }

    /// The number of the next byte to be read.
    pub(crate) fn read_position(&self) -> Seq {
        self.nxt - u32::from(self.is_finished()) - self.buffer.len() as u32
    }

    /// True if the peer has sent everything: FIN has been reached.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt.after(fin))
    }
}
