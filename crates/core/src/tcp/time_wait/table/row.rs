//! A record as it lies in a block.
//!
//! ```text
//!    0         4       6       8         12        16        20       22     24
//!   ┌─────────┬───────┬───────┬─────────┬─────────┬─────────┬────────┬──────┐  IPv6: 16 bytes of
//!   │ remote  │ local │remote │ SND.NXT │ RCV.NXT │TS.Recent│ handle │ word │  remote address, 36
//!   │ address │ port  │ port  │         │         │         │        │      │  together
//!   └─────────┴───────┴───────┴─────────┴─────────┴─────────┴────────┴──────┘
//!
//!   handle   our address and the window: see `handles`
//!   word     │ marked │ holder │ stamped │    0     │ 12 bits: when it expires │
//!            │ marked │ holder │ stamped │ 1: moved │ late │ 11 bits: the same │
//! ```
//!
//! Expiry is counted from the block's base in ms (in powers of two of them if records last for
//! more than 131 s); if the record was `moved`, which is out of the order of its block, from 2·MSL
//! before the base, in steps of a 511th of 2·MSL at most, a power of two as well. Both are rounded
//! up, and what they are counted from is a multiple of them: what has been rounded once stays what
//! it is, whatever block the record comes to. One that is `late` was restarted in its place: those
//! behind it do not wait for it.

use crate::flow::Tuple;
use crate::tcp::connection::FinalState;
use crate::tcp::time_wait::Record;

const DELTA: u16 = 0x0fff;
const MOVED: u16 = 0x1000;
/// Set in a moved record that was restarted in its place.
const LATE: u16 = 0x0800;
/// Expiry of a record that was moved, in steps.
const STEPS: u16 = 0x07ff;
const STAMPED: u16 = 0x2000;
const HOLDER: u16 = 0x4000;
const MARKED: u16 = 0x8000;
/// Its record was removed.
const DEAD: u16 = MOVED | DELTA;

/// The most units into which 2·MSL may be divided, as records in order count them. A block tells
/// 4095, so that fewer than 40 blocks are begun in 2·MSL however few records there are: numbers
/// are spent on what is left over in each.
const UNITS: u64 = 1 << 17;

/// What records of both IP versions have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    ports: u32,
    snd_nxt: u32,
    rcv_nxt: u32,
    stamp: u32,
    handle: u16,
    word: u16,
}

/// A record of one IP version.
pub(super) trait Row: Copy {
    /// Whether it is of IPv6.
    const IPV6: bool;
    /// Our address in `tuple`, which is of this version.
    fn local(tuple: &Tuple) -> [u64; 2];
    /// The record of `tuple`, which is of this version.
    fn new(tuple: &Tuple, common: Common) -> Self;
    /// What is common.
    fn common(&self) -> &Common;
    /// What is common, to be changed.
    fn common_mut(&mut self) -> &mut Common;
    /// The peer's address as words.
    fn remote(&self) -> [u64; 2];

    /// The tuple, with our address.
    fn tuple(&self, local: [u64; 2]) -> Tuple {
        Tuple::from_words(local, self.remote(), self.common().ports, Self::IPV6)
    }

    /// True if `tuple`, which is of this version and has its ports, is its own, with our address.
    fn is_between(&self, tuple: &Tuple, local: [u64; 2]) -> bool;
}

/// IPv4: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row4 {
    remote: u32,
    common: Common,
}

/// IPv6: 36 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row6 {
    remote: [u32; 4],
    common: Common,
}

const _: () = assert!(size_of::<Row4>() == 24 && size_of::<Row6>() == 36);

impl Row for Row4 {
    const IPV6: bool = false;

    fn local(tuple: &Tuple) -> [u64; 2] {
        [0, tuple.first_word() >> 32]
    }

    fn new(tuple: &Tuple, common: Common) -> Self {
        Row4 { remote: tuple.first_word() as u32, common }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn remote(&self) -> [u64; 2] {
        [0, u64::from(self.remote)]
    }

    fn is_between(&self, tuple: &Tuple, local: [u64; 2]) -> bool {
        local[1] << 32 | u64::from(self.remote) == tuple.first_word()
    }
}

impl Row for Row6 {
    const IPV6: bool = true;

    fn local(tuple: &Tuple) -> [u64; 2] {
        tuple.local_words()
    }

    fn new(tuple: &Tuple, common: Common) -> Self {
        let [a, b] = tuple.remote_words();
        Row6 { remote: [(a >> 32) as u32, a as u32, (b >> 32) as u32, b as u32], common }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn remote(&self) -> [u64; 2] {
        let [a, b, c, d] = self.remote.map(u64::from);
        [a << 32 | b, c << 32 | d]
    }

    fn is_between(&self, tuple: &Tuple, local: [u64; 2]) -> bool {
        self.remote() == tuple.remote_words() && local == tuple.local_words()
    }
}

impl Common {
    /// What `final_state` of a connection with these ports needs; `handle` stands for our address
    /// and the window. Its expiry is set when it gets its place.
    pub(super) fn new(final_state: &FinalState, ports: u32, handle: u16) -> Common {
        let stamped = if final_state.stamp.is_some() { STAMPED } else { 0 };
        let holder = if final_state.holding.is_promised() { HOLDER } else { 0 };
        Common {
            ports,
            snd_nxt: final_state.snd_nxt.0,
            rcv_nxt: final_state.rcv_nxt.0,
            stamp: final_state.stamp.unwrap_or(0),
            handle,
            word: stamped | holder,
        }
    }

    /// Both ports, as a tuple has them.
    pub(super) fn ports(&self) -> u32 {
        self.ports
    }

    /// What stands for our address and the window.
    pub(super) fn handle(&self) -> u16 {
        self.handle
    }

    /// True if it was restarted where it lies, and those behind it expire before it.
    pub(super) fn is_late(&self) -> bool {
        self.word & (MOVED | LATE) == MOVED | LATE
    }

    /// True if its record was removed.
    fn is_dead(&self) -> bool {
        self.word & DEAD == DEAD
    }

    /// Its record is no more.
    pub(super) fn kill(&mut self) {
        self.word |= DEAD;
    }

    /// TS.Recent is this from now on, if timestamps were used.
    pub(super) fn note_stamp(&mut self, stamp: u32) {
        if self.word & STAMPED != 0 {
            self.stamp = stamp;
        }
    }

    /// Marks it or takes the mark back.
    pub(super) fn mark(&mut self, is_marked: bool) {
        self.word = if is_marked { self.word | MARKED } else { self.word & !MARKED };
    }

    /// When it expires, in ms, in a block of that base; `None` if it is dead.
    pub(super) fn expires_ms(&self, base_ms: u64, scale: Scale) -> Option<u64> {
        if self.word & MOVED == 0 {
            return Some(base_ms + (u64::from(self.word & DELTA) << scale.unit_shift));
        }
        let steps = u64::from(self.word & STEPS);
        (!self.is_dead()).then(|| scale.origin(base_ms) + (steps << scale.step_shift))
    }

    /// Notes when it expires, in the order of its block; false if that is out of its reach.
    pub(super) fn expire_in_order(&mut self, at_ms: u64, base_ms: u64, scale: Scale) -> bool {
        // An expiry before the base is far behind it, unless it was rounded up to it.
        let delta = ceil(at_ms.wrapping_sub(base_ms), scale.unit_shift);
        let in_reach = delta <= u64::from(DELTA);
        if in_reach {
            self.word = self.word & !DEAD | delta as u16;
        }
        in_reach
    }

    /// Notes when the record expires, whatever the order of its block; false if that is out of
    /// reach. No other record waits for one that `is_late`.
    pub(super) fn expire_out_of_order(
        &mut self,
        at_ms: u64,
        is_late: bool,
        base_ms: u64,
        scale: Scale,
    ) -> bool {
        let after = at_ms.saturating_sub(scale.origin(base_ms));
        let steps = ceil(after, scale.step_shift);
        let late = if is_late { LATE } else { 0 };
        let in_reach = steps < u64::from(STEPS);
        if in_reach {
            self.word = self.word & !DEAD | MOVED | late | steps as u16;
        }
        in_reach
    }

    /// The record, between the ends of `tuple`; when it entered and expires, in ms.
    pub(super) fn record(&self, tuple: Tuple, window: u16, times_ms: (u64, u64)) -> Record {
        use crate::tcp::Seq;
        use crate::time::Instant;
        Record {
            tuple,
            snd_nxt: Seq(self.snd_nxt),
            rcv_nxt: Seq(self.rcv_nxt),
            stamp: (self.word & STAMPED != 0).then_some(self.stamp),
            window,
            is_holder: self.word & HOLDER != 0,
            is_marked: self.word & MARKED != 0,
            entered: Instant::from_millis(times_ms.0),
            expires: Instant::from_millis(times_ms.1),
        }
    }
}

/// How records tell the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    term_ms: u64,
    /// Moved records count in steps of two to this power, in ms.
    step_shift: u32,
    /// Records in order count in units of two to this power, in ms; no larger than the steps.
    unit_shift: u32,
}

impl Scale {
    /// For records that last `term_ms`.
    pub(super) fn new(term_ms: u64) -> Scale {
        // Less one for each of two that are rounded, and for what the dead have.
        let step_ms = term_ms.saturating_mul(2).div_ceil(u64::from(STEPS) - 3);
        let shift = |ms: u64| ms.next_power_of_two().trailing_zeros();
        let (step_shift, unit_shift) = (shift(step_ms), shift(term_ms.div_ceil(UNITS)));
        Scale { term_ms, step_shift, unit_shift }
    }

    /// What it rounds up to, in ms.
    #[cfg(test)]
    pub(super) fn step_ms(self) -> u64 {
        1 << self.step_shift
    }

    /// The base of a block that begins with a record that expires then.
    pub(super) fn base(self, expires_ms: u64) -> u64 {
        floor(expires_ms, self.unit_shift)
    }

    /// The longest time after its base, in ms, that a record in order can tell.
    pub(super) fn span_ms(self) -> u64 {
        u64::from(DELTA) << self.unit_shift
    }

    fn origin(self, base_ms: u64) -> u64 {
        floor(base_ms.saturating_sub(self.term_ms), self.step_shift)
    }
}

/// `ms` in units of two to the power of `shift`, rounded up.
fn ceil(ms: u64, shift: u32) -> u64 {
    ms.wrapping_add((1 << shift) - 1) >> shift
}

/// A multiple of two to the power of `shift`.
fn floor(ms: u64, shift: u32) -> u64 {
    ms >> shift << shift
}
