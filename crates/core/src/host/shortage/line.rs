//! The line for pages: the writers that wait in it, and the order in which they get pages.

use super::policy::{Fifo, Line, Order, Standing, Waiter};
use crate::buffer::{PagePool, Purpose};
use crate::config::{PoolConfig, PoolPolicy};
use crate::event::{ConnectionId, Readiness};
use crate::host::Host;
use crate::tcp::Connection;
use crate::tcp::connection::{Blocked, Sizing};
use crate::time::{Duration, Instant};

/// Pages that must be there for each writer that hears it can go on, in a large pool: a notice for
/// every page would cost more than the page is worth.
const TURN_PAGES: usize = 16;

/// Pages that were promised are kept for so long: by then their writers have come, or do not.
const PROMISE: Duration = Duration::from_millis(10);

/// Places of closed connections in the line, beyond as many as there are connections.
const STALE_MAX: usize = 1024;

/// Pages for a turn of one that waits, where a page would be too little.
pub(super) fn turn_pages(pool: &PagePool) -> usize {
    (pool.limit() / 64).clamp(1, TURN_PAGES)
}

/// The writers that wait for pages.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The writers that hold pages already.
    line: Line,
    /// The writers that hold none: a page is kept for them that the others cannot have. Empty where
    /// they wait in line with the others.
    newcomers: Fifo,
    has_one_line: bool,
    /// A turn is of one page; else it is of some, and takes as many as there are.
    by_page: bool,
    /// Pages promised to the writers whose turn has come, and when the last of them heard of it.
    promised: usize,
    promised_at: Instant,
}

impl Waiting {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Waiting {
            line: Line::new(config),
            newcomers: Fifo::default(),
            has_one_line: !config.newcomers_first,
            by_page: config.policy != PoolPolicy::Line,
            promised: 0,
            promised_at: Instant::ZERO,
        }
    }

    /// True if no writer waits.
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.newcomers.len() == 0
    }

    /// How many writers wait: those that hold none, where these come first, and the others. Some
    /// may be gone.
    pub(super) fn lens(&self) -> [usize; 2] {
        [self.newcomers.len(), self.line.len()]
    }

    /// True if a writer can go on.
    pub(super) fn can_serve(&self, pool: &PagePool) -> bool {
        self.can_serve_newcomer(pool) || self.can_serve_line(pool)
    }

    /// Since when the one that waits longest does.
    pub(super) fn since(&self) -> Option<Instant> {
        self.newcomers.waits_since().into_iter().chain(self.line.waits_since()).min()
    }

    /// The same of those that hold no page; of all where they wait in one line.
    pub(super) fn newcomers_since(&self) -> Option<Instant> {
        if self.has_one_line { self.since() } else { self.newcomers.waits_since() }
    }

    /// When a promise ends.
    pub(super) fn promised_until(&self) -> Option<Instant> {
        (self.promised > 0).then_some(self.promised_at + PROMISE)
    }

    fn can_serve_newcomer(&self, pool: &PagePool) -> bool {
        self.newcomers.len() > 0 && pool.available_to(Purpose::First) > self.promised
    }

    fn can_serve_line(&self, pool: &PagePool) -> bool {
        !self.line.is_empty() && pool.available_in_line() >= self.promised + self.turn(pool)
    }

    /// Pages for a turn.
    fn turn(&self, pool: &PagePool) -> usize {
        if self.by_page { 1 } else { turn_pages(pool) }
    }

    /// The next writer that can go on, and how many pages that promises.
    fn next_to_serve(&mut self, pool: &PagePool) -> Option<(ConnectionId, usize)> {
        if self.can_serve_newcomer(pool) {
            return self.newcomers.pop().map(|waiter| (waiter.id, 1));
        }
        let next = if self.can_serve_line(pool) { self.line.pop() } else { None };
        next.map(|waiter| (waiter.id, self.turn(pool)))
    }

    /// Promises pages to a writer that hears of them at `now`.
    fn promise(&mut self, now: Instant, pages: usize) {
        self.promised += pages;
        self.promised_at = now;
    }

    /// Notes that a writer whose turn it is has come. Returns how many pages it may take at most.
    fn redeem(&mut self, pool: &PagePool) -> usize {
        self.promised = self.promised.saturating_sub(self.turn(pool));
        if self.by_page { 1 } else { usize::MAX }
    }
}

/// The pages of a host, and the writers that wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// Bytes in a page.
    pub page_bytes: usize,
    /// Pages that there may be.
    pub limit: usize,
    /// Pages in use; what is small counts together.
    pub in_use: usize,
    /// Pages that one connection may hold to send from, by policies that give each a share.
    pub share: Option<usize>,
    /// Connections that hold none, and wait for their first one before all others. Some may be
    /// gone.
    pub newcomers: usize,
    /// Connections that wait for the next page that comes back. Some may be gone.
    pub waiting: usize,
}

impl Host {
    /// The pages, and the writers that wait for them.
    pub fn pool_info(&self) -> PoolInfo {
        let pool = &self.shared.pool;
        let [newcomers, waiting] = self.shortage.waiting.lens();
        PoolInfo {
            page_bytes: pool.page_bytes(),
            limit: pool.limit(),
            in_use: pool.in_use(),
            share: pool.share_pages(),
            newcomers,
            waiting,
        }
    }

    /// A write took what could be had without asking much, and `rest` is left. Takes what the rule
    /// of the buffer allows of that, and the pool; if that is not all, the writer waits. Returns
    /// how many bytes were taken.
    pub(in crate::host) fn write_rest(
        &mut self,
        now: Instant,
        id: ConnectionId,
        rest: &[u8],
    ) -> usize {
        let Some(slot) = self.slots.get_mut(id.index) else { return 0 };
        let (connection, cx) = (slot.connection_mut(), self.shared.at(now));
        connection.end_lack(cx);
        let is_in_turn = connection.blocked == Blocked::InTurn;
        let Ok((buffer, room)) = connection.writable(rest.len(), cx.sizing(now)) else { return 0 };
        let mut taken = buffer.write(&rest[..room], &mut cx.pool);
        if taken < room && is_in_turn {
            let pages = self.shortage.waiting.redeem(&cx.pool);
            taken += cx.pool.in_turn(pages, |pool| buffer.write(&rest[taken..room], pool));
        }
        if taken < room {
            self.wait_for_pages(now, id);
        } else if connection.blocked.is_in_line() {
            // It keeps its place.
        } else if room < rest.len() {
            connection.blocked = Blocked::ForRoom;
        } else if is_in_turn {
            let has_more = connection.synchronized().is_some_and(|s| s.send.has_more_to_come());
            connection.blocked = Blocked::free(connection.options.send_size, has_more);
        }
        taken
    }

    /// The writer of that connection waits in line; one that holds its share waits for room.
    pub(in crate::host) fn wait_for_pages(&mut self, now: Instant, id: ConnectionId) {
        let Host { slots, shortage, shared, .. } = self;
        let Some(slot) = slots.get_mut(id.index) else { return };
        let connection = slot.connection_mut();
        let buffer = connection.synchronized().map(|s| &s.send.buffer);
        if buffer.is_some_and(|buffer| buffer.room_in_share(&shared.pool) == 0) {
            if !connection.blocked.is_in_line() {
                connection.blocked = Blocked::ForRoom;
            }
            return;
        }
        if core::mem::replace(&mut connection.blocked, Blocked::ForPages).is_in_line() {
            return;
        }
        shared.counters.writes_short_of_pages += 1;
        let waiting = &mut shortage.waiting;
        let waiter = Waiter { id, since: now };
        let standing = standing(connection, shared.sizing(now));
        if standing.holds == 0 && !waiting.has_one_line {
            if waiting.newcomers.len() > slots.len() + STALE_MAX {
                waiting.newcomers.retain(|id| slots.is_current(id.index, id.generation));
            }
            waiting.newcomers.push(waiter, standing);
            return;
        }
        if waiting.line.heeds_standing()
            && let Some(s) = connection.synchronized_mut()
        {
            s.send.wait_at(id.index);
        }
        if waiting.line.len() > slots.len() + STALE_MAX {
            waiting.line.retain(|id| slots.is_current(id.index, id.generation));
        }
        waiting.line.push(waiter, standing);
        shared.pool.keep_line(true);
    }

    /// Tells as many as there are pages for that they can write.
    pub(super) fn serve_line(&mut self, now: Instant) {
        if self.shortage.waiting.promised_until().is_some_and(|until| until <= now) {
            self.shortage.waiting.promised = 0;
        }
        self.restand(now);
        while let Some((id, pages)) = self.shortage.waiting.next_to_serve(&self.shared.pool) {
            let is_current = self.slots.is_current(id.index, id.generation);
            let Some(slot) = self.slots.get_mut(id.index).filter(|_| is_current) else { continue };
            let connection = slot.connection_mut();
            match connection.blocked {
                // It has text enough that waits for the peer, whose acknowledgement wakes it.
                Blocked::ForPages if !connection.has_room_where_scarce(self.shared.sizing(now)) => {
                    connection.blocked = Blocked::ForRoom;
                }
                Blocked::ForPages => {
                    connection.blocked = Blocked::InTurn;
                    connection.notices |= Readiness::WRITABLE;
                    self.shared.counters.page_turns += 1;
                    self.shortage.waiting.promise(now, pages);
                    self.tell_notices(id);
                }
                Blocked::Drained => connection.blocked = Blocked::ForRoom,
                Blocked::No | Blocked::ForRoom | Blocked::ForAll | Blocked::InTurn => {}
                Blocked::OnSource | Blocked::Lacking => {}
            }
        }
        self.shared.pool.keep_line(!self.shortage.waiting.line.is_empty());
    }

    /// The writers in line that have given pages back since, or need more of them, get a new place.
    fn restand(&mut self, now: Instant) {
        while let Some(index) = self.shared.pool.next_moved() {
            let Some(slot) = self.slots.get_mut(index) else { continue };
            let Some(connection) = slot.awake_mut().filter(|c| c.blocked.is_in_line()) else {
                continue;
            };
            let standing = standing(connection, self.shared.sizing(now));
            if let Some(s) = connection.synchronized_mut() {
                s.send.wait_at(index);
            }
            self.shortage.waiting.line.restand(index, standing);
        }
    }
}

/// How a connection stands in line.
fn standing(connection: &Connection, cx: Sizing<'_>) -> Standing {
    let none = Standing { needs: 0, holds: 0 };
    connection.synchronized().map_or(none, |s| {
        let needs = s.send.capacity(&connection.options, cx) as usize;
        Standing {
            needs: needs.div_ceil(cx.pool.page_bytes()),
            holds: s.send.buffer.pages(cx.pool),
        }
    })
}
