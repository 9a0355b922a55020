//! SEND (RFC 9293 §3.10.2), and what an application says and asks about its send buffer.

use bytes::Bytes;

use super::Host;
use crate::buffer::{LARGE_BYTES, PAGE_BYTES, PagePool, Purpose};
use crate::error::WriteError;
use crate::event::ConnectionId;
use crate::tcp::connection::{Blocked, Shape};
use crate::tcp::send::buffer::SendBuffer;
use crate::tcp::{Connection, Demand, SendInfo, Supply};
use crate::time::Instant;

impl Host {
    /// Copies as much of `data` as the send buffer takes and returns how much;
    /// [`WriteError::WouldBlock`] when it takes nothing.
    pub fn write(
        &mut self,
        now: Instant,
        id: ConnectionId,
        data: &[u8],
    ) -> Result<usize, WriteError> {
        let (slot, shared) = self.slot_and_shared(id)?;
        let is_ready = slot.ready;
        let connection = slot.connection_mut();
        let has_nothing_to_publish = is_ready && connection.notices.is_empty();
        let (buffer, room) = connection.writable_at_once(data.len(), shared.pool.is_scarce())?;
        let mut taken = buffer.write(&data[..room], &mut shared.pool);
        if taken < data.len() {
            taken += self.write_rest(now, id, &data[taken..]);
            if taken == 0 {
                return Err(WriteError::WouldBlock);
            }
        }
        if !has_nothing_to_publish {
            self.after_input(now, id.index);
        }
        Ok(taken)
    }

    /// Writes as [`Host::write`] does, but the send buffer shares the bytes.
    pub fn write_bytes(
        &mut self,
        now: Instant,
        id: ConnectionId,
        data: &Bytes,
    ) -> Result<usize, WriteError> {
        let (connection, shared) = self.connection_and_shared(id)?;
        let shared = shared.at(now);
        let is_in_turn = connection.blocked == Blocked::InTurn;
        connection.end_lack(shared);
        let (buffer, room) = connection.writable(data.len(), shared.sizing(now))?;
        let (part, pool) = (data.slice(..room), &mut shared.pool);
        let taken = match is_in_turn {
            true => pool.in_turn(usize::MAX, |pool| buffer.push(&part, pool)),
            false => buffer.push(&part, pool),
        };
        if taken < room {
            self.wait_for_pages(now, id);
        } else if taken < data.len() && !connection.blocked.is_in_line() {
            connection.blocked = Blocked::ForRoom;
        }
        if taken == 0 && !data.is_empty() {
            return Err(WriteError::WouldBlock);
        }
        self.after_input(now, id.index);
        Ok(taken)
    }

    /// Writes all of `data`, which the send buffer shares, if there is room for some of it: what is
    /// more than that would hold the same memory beside the buffer. The caller charges that memory
    /// no longer. False, and nothing is written, if the pool does not let all of it in, a page
    /// would do, or pages are of one segment. An empty buffer gets no more than others: what is
    /// kept for first pages is for many.
    pub fn adopt(&mut self, now: Instant, id: ConnectionId, data: &Bytes) -> bool {
        self.share(now, id, data, |buffer, pool| buffer.adopt(data, Purpose::More, pool))
    }

    /// Writes all of `data` as [`Host::adopt`] does, but the pool charges nothing: many buffers
    /// share that memory, and the caller charges it once, until nobody shares it any more
    /// ([`Host::set_memory_elsewhere`]). A policy that gives each buffer a share of the pool counts
    /// it in each.
    pub fn borrow(&mut self, now: Instant, id: ConnectionId, data: &Bytes) -> bool {
        self.share(now, id, data, |buffer, pool| buffer.borrow(data, pool))
    }

    /// Has the send buffer share all of `data`, if it may.
    fn share(
        &mut self,
        now: Instant,
        id: ConnectionId,
        data: &Bytes,
        append: impl FnOnce(&mut SendBuffer, &mut PagePool) -> bool,
    ) -> bool {
        let Ok((connection, shared)) = self.connection_and_shared(id) else { return false };
        let shared = shared.at(now);
        let waits = connection.blocked.is_in_line() || connection.blocked == Blocked::InTurn;
        if waits || data.len() < LARGE_BYTES || shared.pool.page_bytes() < PAGE_BYTES {
            return false;
        }
        connection.end_lack(shared);
        let Ok((buffer, room)) = connection.writable(data.len(), shared.sizing(now)) else {
            return false;
        };
        if room == 0 || !append(buffer, &mut shared.pool) {
            return false;
        }
        shared.counters.adopted_bytes += data.len() as u64;
        self.after_input(now, id.index);
        true
    }

    /// Writes as [`Host::write`] does, and marks the last byte taken as urgent (RFC 9293 MUST-30;
    /// RFC 6093 advises against using it).
    pub fn write_urgent(
        &mut self,
        now: Instant,
        id: ConnectionId,
        data: &[u8],
    ) -> Result<usize, WriteError> {
        let taken = self.write(now, id, data)?;
        let (connection, _) = self.connection_and_shared(id)?;
        if let Some(s) = connection.synchronized_mut().filter(|_| taken > 0) {
            s.send.set_urgent(s.send.data_end());
        }
        Ok(taken)
    }

    /// Writes as [`Host::write`] does, and if all of `data` is taken, its last byte ends a record:
    /// it ends its segment, with PSH, each time that it is sent. A connection with 4096 such
    /// records that the peer has not acknowledged takes no other, as if there were no room. While
    /// some are not acknowledged, no larger segments are tried on the path (RFC 8899).
    pub fn write_record(
        &mut self,
        now: Instant,
        id: ConnectionId,
        data: &[u8],
    ) -> Result<usize, WriteError> {
        let (connection, _) = self.connection_and_shared(id)?;
        let is_full = connection.synchronized().is_some_and(|s| s.send.is_full_of_records());
        if is_full && connection.state().can_send() && !data.is_empty() {
            self.wait_for_room(id);
            return Err(WriteError::WouldBlock);
        }
        let taken = self.write(now, id, data)?;
        let is_whole = taken > 0 && taken == data.len();
        let (connection, _) = self.connection_and_shared(id)?;
        if let Some(s) = connection.synchronized_mut().filter(|_| is_whole) {
            s.send.end_record();
        }
        Ok(taken)
    }

    // ---- the send buffer

    /// Bytes that a write would take at `now`, if there are pages for them. If that is 0, the
    /// connection's user hears when there is room. Where a write would fail, more than any buffer
    /// has.
    pub fn send_room(&mut self, now: Instant, id: ConnectionId) -> usize {
        let room = self.send_demand(now, id).room;
        if room == 0 {
            self.wait_for_room(id);
        }
        room
    }

    /// Has the connection's user notified once acknowledgements have made room.
    pub fn wait_for_room(&mut self, id: ConnectionId) {
        if let Ok((connection, _)) = self.connection_and_shared(id)
            && !connection.blocked.is_in_line()
        {
            connection.blocked = Blocked::ForRoom;
        }
    }

    /// Notifies the connection's user, as of room, when the peer has acknowledged all written data.
    /// A writer that waits for room is notified earlier, and must ask again.
    pub fn wait_for_all(&mut self, id: ConnectionId) {
        if let Ok((connection, _)) = self.connection_and_shared(id)
            && connection.synchronized().is_some_and(|s| !s.send.buffer.is_empty())
            && (connection.blocked == Blocked::No || connection.blocked.is_on_source())
        {
            connection.blocked = Blocked::ForAll;
        }
    }

    /// The connection's demand: bytes that fit at `now`, were there pages for them, and
    /// those that the next read of its source should bring. Where a write would fail, or the
    /// connection is not open yet, more than any.
    pub fn send_demand(&self, now: Instant, id: ConnectionId) -> Demand {
        let sending = |connection: &Connection| {
            let s = connection.synchronized().filter(|_| connection.state().can_send())?;
            Some(s.send.demand(&connection.options, self.shared.sizing(now)))
        };
        let slot = self.slot(id).ok();
        let demand = slot.and_then(|slot| sending(&slot.view()));
        demand.unwrap_or(Demand { room: usize::MAX, read: usize::MAX })
    }

    /// Notes what the application says about its source. The application says it before it writes
    /// what a read brought: then the host sees whether the data came in time. Does nothing where
    /// the connection is not open.
    pub fn set_supply(&mut self, now: Instant, id: ConnectionId, supply: Supply) {
        let Ok((connection, shared)) = self.connection_and_shared(id) else { return };
        let cx = shared.at(now);
        let Connection { common, shape } = connection;
        let Shape::Synchronized(s) = shape else { return };
        s.send.set_supply(supply);
        if common.blocked == Blocked::Lacking && !supply.more {
            // Whatever is written now is the last, and was late all the same.
            s.send.end_lack(cx);
        }
        match common.blocked {
            Blocked::Lacking if supply.more => {}
            Blocked::No | Blocked::ForAll | Blocked::OnSource | Blocked::Lacking => {
                common.blocked = Blocked::free(common.options.send_size, supply.more);
            }
            _ => {}
        }
    }

    /// The state of the connection's send buffer at `now`; `None` where it has none.
    pub fn send_info(&self, now: Instant, id: ConnectionId) -> Option<SendInfo> {
        let view = self.slot(id).ok()?.view();
        let s = view.synchronized()?;
        Some(s.send.info(&view.options, self.shared.sizing(now)))
    }
}
