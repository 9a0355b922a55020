//! How much may be written into the send buffer, and when its writer should come again.
//!
//! [`SendSize::Round`] is the rule of nearly all connections: it comes first, and asks for nothing
//! but the window. The others are asked the same questions a step further on.

use core::mem;

use super::SendHalf;
use super::los::{self, Los};
use crate::buffer::{PAGE_BYTES, PagePool};
use crate::config::{PoolPolicy, SendSize};
use crate::tcp::connection::{Context, Sizing};
use crate::tcp::send::source::{Demand, SendInfo, Supply};
use crate::tcp::{Settings, SocketOptions};
use crate::time::{Instant, as_nanos};

/// Bytes that may wait to be sent in any case, so that a writer need not come for every segment.
const QUEUED_MIN: u32 = 128 << 10;

/// The least size by Linux's rule, in bytes (tcp_wmem).
const LINUX_MIN: u32 = 16 << 10;

/// The part of the buffer's size that must be free before a writer hears of it. By LOS that is a
/// quarter of a window: four times a round trip, and not at each ACK. What is left until then is
/// more than enough to go on with.
const TOLD_PART: u32 = 8;

/// By [`SendSize::Fixed`], 4.4BSD's sb_lowat: bytes that must be free before a blocked writer hears
/// of it.
const BSD_LOWAT: u32 = 2048;

impl SendHalf {
    /// Bytes that may wait to be sent, in a buffer of `limit` bytes: as many as a round trip may
    /// carry. More would only lie there, and leave the processor's caches before they are needed.
    fn queue_limit(&self, limit: u32) -> u32 {
        self.congestion.window().max(QUEUED_MIN).min(limit)
    }

    /// Bytes that may be written by [`SendSize::Round`] into a buffer of `limit` bytes.
    fn room_of_round(&self, limit: u32) -> u32 {
        let capacity = self.flight().saturating_add(self.queue_limit(limit)).min(limit);
        capacity.saturating_sub(self.buffer.len() as u32)
    }

    /// How many of `wanted` bytes may be written now: fewer where memory is scarce.
    pub(crate) fn room_for(&self, wanted: usize, options: &SocketOptions, cx: Sizing<'_>) -> usize {
        let is_scarce = cx.pool.is_scarce();
        match options.send_size {
            SendSize::Round => self.room_of_round_for(wanted, options.send_buffer_bytes, is_scarce),
            _ => wanted.min(self.room_by(options, cx, is_scarce) as usize),
        }
    }

    /// How many of `wanted` bytes [`SendSize::Round`] allows now in a buffer of `limit` bytes.
    pub(crate) fn room_of_round_for(&self, wanted: usize, limit: u32, is_scarce: bool) -> usize {
        if is_scarce {
            return wanted.min(self.room_of_round_where_scarce(limit) as usize);
        }
        // Where nothing waits, little may always come.
        if self.buffer.is_empty() && wanted <= QUEUED_MIN.min(limit) as usize {
            return wanted;
        }
        wanted.min(self.room_of_round(limit) as usize)
    }

    /// Bytes that [`SendSize::Round`] allows where memory is scarce: as much as two round trips
    /// carry, by the congestion window and the peer's, and at least a page. Data that waits for
    /// longer keeps other connections from sending.
    fn room_of_round_where_scarce(&self, limit: u32) -> u32 {
        let carried = self.congestion.window().min(self.window);
        let capacity = carried.saturating_mul(2).max(PAGE_BYTES as u32).min(limit);
        capacity.saturating_sub(self.buffer.len() as u32)
    }

    /// Bytes that may be written where memory is scarce.
    pub(crate) fn room_where_scarce(&self, options: &SocketOptions, cx: Sizing<'_>) -> u32 {
        match options.send_size {
            SendSize::Round => self.room_of_round_where_scarce(options.send_buffer_bytes),
            _ => self.room_by(options, cx, true),
        }
    }

    /// Bytes that may be written, however scarce memory is.
    pub(crate) fn room(&self, options: &SocketOptions, cx: Sizing<'_>) -> u32 {
        match options.send_size {
            SendSize::Round => self.room_of_round(options.send_buffer_bytes),
            _ => self.room_by(options, cx, false),
        }
    }

    /// Bytes that may be written by another rule than [`SendSize::Round`]; where memory is scarce,
    /// no more than two of the peer's windows, or a page if that is more.
    fn room_by(&self, options: &SocketOptions, cx: Sizing<'_>, is_scarce: bool) -> u32 {
        let mut capacity = self.capacity(options, cx);
        if is_scarce {
            capacity = capacity.min(self.window.saturating_mul(2).max(PAGE_BYTES as u32));
        }
        let room = capacity.saturating_sub(self.buffer.len() as u32);
        room.min(self.buffer.room_in_share(cx.pool))
    }

    /// What the buffer may hold, sent or not, in bytes.
    pub(crate) fn capacity(&self, options: &SocketOptions, cx: Sizing<'_>) -> u32 {
        let limit = options.send_buffer_bytes;
        match options.send_size {
            SendSize::Round => self.flight().saturating_add(self.queue_limit(limit)).min(limit),
            SendSize::Los => {
                // What the peer has, though it cannot be acknowledged yet, takes no part in what
                // the windows let out: the hole before it may close at any time.
                let out_of_network = self.flight().saturating_sub(self.pipe());
                self.los(cx).hiwat(limit).saturating_add(out_of_network).min(limit)
            }
            SendSize::Fixed(bytes) => bytes.min(limit),
            SendSize::Linux { lowat } => {
                let unsent_end = self.flight().saturating_add(lowat.unwrap_or(u32::MAX));
                self.linux_size().min(unsent_end).min(limit)
            }
        }
    }

    /// The size by Linux's rule: it never shrinks.
    fn linux_size(&self) -> u32 {
        let largest = self.source().map_or(0, |source| source.size);
        self.congestion.window().saturating_mul(2).max(LINUX_MIN).max(largest)
    }

    /// Notes the size of a buffer that never shrinks, before data is written or its writer hears
    /// that it may write.
    pub(crate) fn keep_size(&mut self, options: &SocketOptions) {
        if let SendSize::Linux { .. } = options.send_size {
            self.source_or_new().size = self.linux_size();
        }
    }

    /// What the local optimization scheme counts from.
    fn los(&self, cx: Sizing<'_>) -> Los<'_> {
        let mss = u32::from(self.mss).max(1);
        let window = self.window_now(cx.now, cx.config);
        // Behind a closed window wait two segments, for when it opens, and no later round.
        let window = window.min(self.window.max(2 * mss));
        let (most, factor) = (self.window, self.factor(cx));
        Los { congestion: &self.congestion, window, most, mss, factor }
    }

    /// T_fact: round trips that a read of the source takes.
    fn factor(&self, cx: Sizing<'_>) -> u32 {
        if cx.config.pool.policy == PoolPolicy::Psc {
            return 1;
        }
        let read_time = self.source().map_or(0, |s| as_nanos(s.supply.read_time));
        los::factor(read_time, self.rtt.srtt_ns(), cx.config.buffers.send_factor.into())
    }

    /// True if so much may be written that its writer should come.
    pub(crate) fn has_much_room(&self, options: &SocketOptions, cx: Sizing<'_>) -> bool {
        if self.buffer.room_in_share(cx.pool) == 0 || self.is_full_of_records() {
            return false;
        }
        let limit = options.send_buffer_bytes;
        let queued = self.buffer.len() as u32;
        match options.send_size {
            SendSize::Round => self.room_of_round(limit) >= self.queue_limit(limit) / 3,
            SendSize::Los => {
                let capacity = self.capacity(options, cx);
                let much = (capacity / TOLD_PART).max(self.mss.into()).min(capacity);
                capacity.saturating_sub(queued) >= much
            }
            SendSize::Fixed(bytes) => {
                let capacity = bytes.min(limit);
                capacity.saturating_sub(queued) >= BSD_LOWAT.min(capacity)
            }
            // sk_stream_is_writeable: a third is free, and half of the bound on what is unsent.
            SendSize::Linux { lowat } => {
                let unsent = queued.saturating_sub(self.flight());
                let size = self.linux_size().min(limit);
                size.saturating_sub(queued) >= queued / 2
                    && lowat.is_none_or(|lowat| unsent < lowat.div_ceil(2))
            }
        }
    }

    // ---- the line for pages

    /// It waits in line, as the one in that slot: the host is to hear when it holds less.
    pub(crate) fn wait_at(&mut self, slot: u32) {
        self.source_or_new().place = Some(slot);
    }

    /// It holds less than it did, or needs more: says so once, if it waits in line.
    pub(crate) fn note_moved(&mut self, pool: &mut PagePool) {
        if let Some(slot) = self.source_mut().and_then(|source| source.place.take()) {
            pool.note_moved(slot);
        }
    }

    // ---- the source

    /// The application says so of its source.
    pub(crate) fn set_supply(&mut self, supply: Supply) {
        if supply != Supply::default() || self.source().is_some() {
            self.source_or_new().supply = supply;
        }
    }

    /// Asks the application of a source to take back what the peer will not take soon. False if
    /// there is no source.
    pub(crate) fn ask_back(&mut self) -> bool {
        self.source_mut().map(|source| source.is_wanted_back = true).is_some()
    }

    /// True if the application was asked and has not answered.
    pub(crate) fn is_wanted_back(&self) -> bool {
        self.source().is_some_and(|source| source.is_wanted_back)
    }

    /// The application answers. True if it was asked.
    pub(crate) fn end_asking_back(&mut self) -> bool {
        self.source_mut().is_some_and(|source| mem::take(&mut source.is_wanted_back))
    }

    /// True if the source has more than was written.
    pub(crate) fn has_more_to_come(&self) -> bool {
        self.source().is_some_and(|source| source.supply.more)
    }

    /// Something is written: if it was late, that was a buffer miss.
    pub(crate) fn end_lack(&mut self, cx: &mut Context) {
        if let Some(source) = self.source_mut() {
            cx.counters.buffer_misses += u64::from(source.end_lack(cx.now));
        }
    }

    /// Something was acknowledged at `now`. True if the source has more, and the windows allow a
    /// segment beyond all that is fresh: a buffer miss, unless something is written at once.
    pub(crate) fn note_lack(&mut self, now: Instant, config: &Settings) -> bool {
        if !self.has_more_to_come() || !self.is_short_of_fresh(now, config) {
            return false;
        }
        if let Some(source) = self.source_mut() {
            source.lacks_since.get_or_insert(now);
        }
        true
    }

    /// True if the windows allow a segment beyond all that is fresh.
    fn is_short_of_fresh(&self, now: Instant, config: &Settings) -> bool {
        let (flight, mss) = (self.flight(), u32::from(self.mss));
        // What is lost leaves first.
        if self.sent.lost(self.una) > 0 {
            return false;
        }
        let fresh = (self.buffer.len() as u32).saturating_sub(flight);
        let by_peer = self.window.saturating_sub(flight);
        let by_network = self.allowance(now, mss, self.window_now(now, config));
        by_peer.min(by_network) >= fresh.saturating_add(mss)
    }

    /// What the connection could do with.
    pub(crate) fn demand(&self, options: &SocketOptions, cx: Sizing<'_>) -> Demand {
        let room = self.room_for(usize::MAX, options, cx);
        // What is read and does not fit yet takes no more than a share, either.
        let share = cx.pool.share_pages().map_or(usize::MAX, |pages| pages * cx.pool.page_bytes());
        let limit = u32::try_from(share).unwrap_or(u32::MAX).min(options.send_buffer_bytes);
        let read = match options.send_size {
            SendSize::Los if self.buffer.is_empty() => self.los(cx).first_read(limit) as usize,
            // A read that begins while the buffer is not full fills it as well.
            SendSize::Los => room.max(self.los(cx).read_size(limit) as usize),
            _ => room,
        };
        Demand { room, read }
    }

    /// What it says of its buffer.
    pub(crate) fn info(&self, options: &SocketOptions, cx: Sizing<'_>) -> SendInfo {
        let (held_bytes, flight) = (self.buffer.len(), self.flight() as usize);
        SendInfo {
            hiwat: self.capacity(options, cx) as usize,
            held_bytes,
            held_pages: self.buffer.pages(cx.pool),
            fresh: held_bytes.saturating_sub(flight),
            outstanding: held_bytes.min(flight),
            misses: self.source().map_or(0, |source| source.misses),
            factor: self.factor(cx),
        }
    }
}

#[cfg(test)]
mod tests;
