//! The table of TIME-WAIT records: tens of bytes each, and the same cost for any number of them.
//!
//! ```text
//!   tuple ─▶ keyed hash ─▶ index: 4 bytes ─▶ number ─▶ queue: rows of 24 bytes (IPv6: 36), in
//!                                                      order of expiry
//! ```
//!
//! There is a queue with its index for each duration and IP version. Records lie in blocks in the
//! order in which they expire, so that expiry is walking over the front, with no timer per record;
//! the index tells by itself which of its entries are stale. A look-up judges by the record's own
//! expiry. All in, an IPv4 record takes less than 32 bytes, an IPv6 record less than 46, whatever
//! their number from a hundred thousand on; blocks are given back when a burst is over, and an
//! empty table holds nothing, or a few KB where no more than a few came at a time.

mod adopt;
mod burst;
mod expiry;
mod found;
mod halves;
mod handles;
mod index;
mod queue;
mod row;
mod walk;

#[cfg(test)]
use super::Record;
use crate::config::Config;
use crate::flow::Tuple;
use crate::flow::TupleHasher;
use crate::tcp::connection::FinalState;
use crate::time::{Duration, Instant, as_nanos};
pub use found::RecordRef;
use handles::Handles;
use index::{Index, Probe};
use queue::{Located, Location, Queue};
use row::{Common, Row, Row4, Row6};

/// How near the peer was: a near one's segments cannot be under way for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Distance {
    /// Beyond a gateway.
    #[default]
    Far,
    /// On a link of ours.
    OnLink,
    /// Ourselves.
    OnHost,
}

impl Distance {
    /// All of them, each at its own index.
    pub const ALL: [Distance; 3] = [Distance::Far, Distance::OnLink, Distance::OnHost];
}

/// Records of one duration and one IP version.
#[derive(Debug)]
struct RecordSet<R> {
    queue: Queue<R>,
    index: Index,
    term_ms: u64,
    live: u32,
    /// Rows of dead records, beyond as many as there are living ones, before the queue is made
    /// shorter.
    dead_max: u32,
}

/// Records of one duration.
#[derive(Debug)]
struct Class {
    v4: RecordSet<Row4>,
    v6: RecordSet<Row6>,
}

/// All TIME-WAIT records of a host.
#[derive(Debug)]
pub struct TimeWait {
    classes: [Class; 3],
    handles: Handles,
    hasher: TupleHasher,
    limit: usize,
    len: usize,
    /// No record is due before this.
    earliest_ms: u64,
    /// Records that have ever entered for a near peer.
    near: u64,
    /// Records whose time was over when they made room, since the last were dropped.
    over: u64,
}

/// More than this many records are never kept.
const LIMIT_MAX: usize = 1 << 28;
/// None is kept for longer, in ms: 69 years.
const TERM_MAX_MS: u64 = 1 << 41;

/// Rows of dead records that are kept at most, if there are no more living ones.
const DEAD_MAX: u32 = 1 << 13;
/// Numbers of dead records that are kept at most; numbers are also spent on the gaps between
/// blocks.
const NUMBERS_MAX: u32 = 1 << 16;
/// Records that a turn drops before it leaves the rest to the next; it ends with a block of them.
const SHARE: usize = 1024;
/// Does `$body` with each record set in turn.
macro_rules! each_record_set {
    ($classes:expr, $records:ident => $body:expr) => {
        for class in $classes {
            {
                let $records = &mut class.v4;
                $body
            }
            {
                let $records = &mut class.v6;
                $body
            }
        }
    };
}

impl TimeWait {
    /// An empty table of at most `limit` records (2^28 at most), which are kept for `terms` (69
    /// years at most), by distance. `hasher` is the one by which its callers hash.
    pub fn new(terms: [Duration; 3], limit: usize, hasher: TupleHasher) -> Self {
        let limit = limit.min(LIMIT_MAX);
        let class = |term: Duration| {
            let term_ms = as_nanos(term).div_ceil(1_000_000).min(TERM_MAX_MS);
            Class { v4: RecordSet::new(term_ms, limit), v6: RecordSet::new(term_ms, limit) }
        };
        TimeWait {
            classes: terms.map(class),
            handles: Handles::new(),
            hasher,
            limit,
            len: 0,
            earliest_ms: u64::MAX,
            near: 0,
            over: 0,
        }
    }

    /// An empty table of as many records as the configuration has, which may become as many as all
    /// shards of the host have.
    pub(crate) fn of(config: &Config, terms: [Duration; 3]) -> Self {
        let (limit, hasher) = (config.limits.time_wait, TupleHasher::new(&config.secret));
        let mut records = TimeWait::new(terms, config.member.whole_at_most(limit), hasher);
        records.set_limit(limit);
        records
    }

    /// Keeps so many at most from now on; no more than it was made for.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(LIMIT_MAX);
    }

    /// Records held, whether expired yet or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Notes that a connection has entered TIME-WAIT. There is no record of its tuple: the caller
    /// that opened the connection has ended that. When the table is full the oldest record goes.
    /// Returns how many were evicted, or never kept.
    pub fn enter(
        &mut self,
        hash: u64,
        tuple: &Tuple,
        final_state: &FinalState,
        distance: Distance,
        now: Instant,
    ) -> u64 {
        debug_assert!(!self.holds(hash, tuple), "{tuple:?} has a record");
        let mut evicted = 0;
        if self.len >= self.limit {
            evicted = self.make_room(now);
        }
        if self.limit == 0 {
            return 1;
        }
        let TimeWait { classes, handles, hasher, .. } = self;
        let class = &mut classes[distance as usize];
        let expires_ms = if tuple.is_ipv6() {
            class.v6.enter(hash, tuple, final_state, now, Lent { handles, hasher })
        } else {
            class.v4.enter(hash, tuple, final_state, now, Lent { handles, hasher })
        };
        let Some(expires_ms) = expires_ms else { return evicted + 1 };
        self.earliest_ms = self.earliest_ms.min(expires_ms);
        self.len += 1;
        self.near += u64::from(distance != Distance::Far);
        evicted
    }

    /// The record of `tuple`, if its time is not over.
    pub fn find<'a>(&'a self, hash: u64, tuple: &'a Tuple, now: Instant) -> Option<RecordRef<'a>> {
        self.get(hash, tuple).filter(|found| !found.is_over(now))
    }

    /// The record of `tuple`, its time over or not.
    #[inline(always)]
    pub fn get<'a>(&'a self, hash: u64, tuple: &'a Tuple) -> Option<RecordRef<'a>> {
        if self.len == 0 {
            return None;
        }
        let found = self.classes[0].get(hash, tuple, &self.handles);
        if found.is_some() || self.near == 0 {
            return found;
        }
        self.get_near(hash, tuple)
    }

    /// The record of `tuple`, of a near peer, its time over or not.
    fn get_near<'a>(&'a self, hash: u64, tuple: &'a Tuple) -> Option<RecordRef<'a>> {
        self.classes[1..].iter().find_map(|class| class.get(hash, tuple, &self.handles))
    }

    /// True if there is a record of `tuple`, over or not.
    fn holds(&self, hash: u64, tuple: &Tuple) -> bool {
        self.get(hash, tuple).is_some()
    }

    /// Ends a record before its time; false if there is none.
    pub fn remove(&mut self, hash: u64, tuple: &Tuple) -> bool {
        if self.len == 0 {
            return false;
        }
        let used = if self.near == 0 { 1 } else { self.classes.len() };
        let TimeWait { classes, handles, hasher, .. } = self;
        let removed = classes[..used].iter_mut().any(|class| {
            if tuple.is_ipv6() {
                class.v6.remove(hash, tuple, Lent { handles, hasher })
            } else {
                class.v4.remove(hash, tuple, Lent { handles, hasher })
            }
        });
        self.len -= usize::from(removed);
        removed
    }

    /// Marks a record, or takes the mark back; the mark means what the record's owner wants.
    pub fn mark(&mut self, hash: u64, tuple: &Tuple, is_marked: bool) {
        let handles = &self.handles;
        each_record_set!(&mut self.classes, records => {
            if let Some((number, _)) = records.find(hash, tuple, handles)
                && let Some(row) = records.queue.row_mut(number)
            {
                row.common_mut().mark(is_marked);
            }
        });
    }

    /// The peer has repeated its FIN, with this TSval if timestamps are used: 2·MSL start over.
    pub fn restart(&mut self, hash: u64, tuple: &Tuple, stamp: Option<u32>, now: Instant) {
        let handles = &self.handles;
        each_record_set!(&mut self.classes, records => {
            records.restart(hash, tuple, stamp, now, handles);
        });
    }

    /// True if a record may be due at `now`.
    pub fn may_be_due(&self, now: Instant) -> bool {
        now.as_millis() >= self.earliest_ms
    }

    /// Drops records that are due; how many were. Those beyond a turn's share stay due: when as
    /// many end at once as may stand, what else there is to do does not wait for all of them.
    #[inline(always)]
    pub fn on_time(&mut self, now: Instant) -> u64 {
        if self.may_be_due(now) { self.drop_due(now) } else { 0 }
    }

    fn drop_due(&mut self, now: Instant) -> u64 {
        let (before, mut share) = (self.len, SHARE);
        let TimeWait { classes, handles, hasher, len, .. } = self;
        each_record_set!(classes, records => {
            *len -= records.on_time(now, &mut share, handles, hasher);
        });
        // Beyond a turn's share more may be due at once.
        if share > 0 {
            self.earliest_ms = self.front_ms();
        }
        (before - self.len) as u64 + core::mem::take(&mut self.over)
    }

    /// When [`Self::on_time`] is to be called: when a record is due, or before, if the one that was
    /// due then has gone.
    pub fn deadline(&self) -> Option<Instant> {
        (self.len > 0).then(|| Instant::from_millis(self.earliest_ms))
    }

    /// When the first record at the front of a queue is due, in ms.
    fn front_ms(&self) -> u64 {
        let of = |class: &Class| class.v4.queue.front_ms().min(class.v6.queue.front_ms());
        self.classes.iter().map(of).min().unwrap_or(u64::MAX)
    }

    /// All records, in no order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Record> + '_ {
        let handles = &self.handles;
        self.classes
            .iter()
            .flat_map(move |class| class.v4.records(handles).chain(class.v6.records(handles)))
    }

    /// The oldest records go until there is room for one more; returns how many went before their
    /// time.
    fn make_room(&mut self, now: Instant) -> u64 {
        let mut evicted = 0;
        while self.len >= self.limit
            && let Some(expires_ms) = self.drop_oldest(now)
        {
            let is_over = expires_ms <= now.as_millis();
            self.over += u64::from(is_over);
            evicted += u64::from(!is_over);
        }
        evicted
    }

    /// The record that entered first goes; returns when it would have expired.
    fn drop_oldest(&mut self, now: Instant) -> Option<u64> {
        let mut oldest = None;
        each_record_set!(&mut self.classes, records => {
            oldest = [oldest, records.entered_ms()].into_iter().flatten().min();
        });
        let TimeWait { classes, handles, hasher, len, .. } = self;
        each_record_set!(classes, records => {
            if records.live > 0 && records.entered_ms() == oldest {
                *len -= 1;
                return records.drop_front(now, handles, hasher);
            }
        });
        None
    }
}

impl Class {
    /// The record of `tuple`.
    #[inline(always)]
    fn get<'a>(
        &'a self,
        hash: u64,
        tuple: &'a Tuple,
        handles: &'a Handles,
    ) -> Option<RecordRef<'a>> {
        if tuple.is_ipv6() {
            self.v6.get(hash, tuple, handles)
        } else {
            self.v4.get(hash, tuple, handles)
        }
    }
}

/// Milliseconds from the origin to `at`, rounded up.
fn ceil_ms(at: Instant) -> u64 {
    at.as_nanos().saturating_add(999_999) / 1_000_000
}

/// What the table lends one of its record sets.
struct Lent<'a> {
    handles: &'a mut Handles,
    hasher: &'a TupleHasher,
}

/// How the hash of a row is found again.
#[derive(Clone, Copy)]
struct Finder<'a> {
    handles: &'a Handles,
    hasher: &'a TupleHasher,
}

impl Finder<'_> {
    fn hash<R: Row>(self, row: &R) -> u64 {
        self.hasher.hash(&self.handles.tuple(row))
    }
}

impl Handles {
    /// The tuple of a row.
    fn tuple<R: Row>(&self, row: &R) -> Tuple {
        row.tuple(self.meaning(row.common().handle()).0)
    }
}

impl<R: Row> RecordSet<R> {
    fn new(term_ms: u64, limit: usize) -> Self {
        let (queue, index) = (Queue::new(term_ms), Index::new(limit));
        RecordSet { queue, index, term_ms, live: 0, dead_max: DEAD_MAX }
    }

    /// Adds a record; says when it expires. `None` if so many of our addresses are in TIME-WAIT
    /// that there is no number for one more.
    fn enter(
        &mut self,
        hash: u64,
        tuple: &Tuple,
        final_state: &FinalState,
        now: Instant,
        Lent { handles, hasher }: Lent<'_>,
    ) -> Option<u64> {
        if self.index.is_due() {
            self.keep_up(Finder { handles, hasher });
        }
        let expires_ms = ceil_ms(now).saturating_add(self.term_ms);
        self.keep((hash, tuple), final_state, expires_ms, handles)
    }

    /// Keeps a record that expires then, behind all others.
    fn keep(
        &mut self,
        (hash, tuple): (u64, &Tuple),
        final_state: &FinalState,
        expires_ms: u64,
        handles: &mut Handles,
    ) -> Option<u64> {
        let handle = handles.take(R::local(tuple), final_state.window)?;
        let row = R::new(tuple, Common::new(final_state, tuple.ports(), handle));
        let number = self.queue.push(row, expires_ms);
        self.live += 1;
        self.index.insert(hash, number, self.queue.span());
        Some(expires_ms)
    }

    /// What is done once for some records that enter, before the next.
    fn keep_up(&mut self, finder: Finder<'_>) {
        if self.is_long() {
            self.shorten(finder);
        }
        let RecordSet { queue, index, live, .. } = self;
        let hash_of = |number| queue.row(number).map(|seen| finder.hash(seen.row));
        index.keep_up(*live, queue.span(), hash_of);
    }

    /// The record of `tuple`.
    #[inline(always)]
    fn get<'a>(
        &'a self,
        hash: u64,
        tuple: &'a Tuple,
        handles: &'a Handles,
    ) -> Option<RecordRef<'a>> {
        let (_, seen) = self.find(hash, tuple, handles)?;
        Some(self.found(tuple, seen, handles))
    }

    fn found<'a>(
        &self,
        tuple: &'a Tuple,
        seen: Located<'a, R>,
        handles: &'a Handles,
    ) -> RecordRef<'a> {
        let (common, term_ms) = (seen.row.common(), self.term_ms);
        RecordRef { tuple, common, handles, term_ms, expires_ms: seen.expires_ms }
    }

    /// The record of `tuple` where it lies, and its number.
    #[inline(always)]
    fn find(&self, hash: u64, tuple: &Tuple, handles: &Handles) -> Option<(u32, Located<'_, R>)> {
        if tuple.is_ipv6() != R::IPV6 {
            return None;
        }
        let mut probe = self.index.probe(hash, self.index.line(hash)?);
        let first = self.index.next(&mut probe, self.queue.span());
        let found = first.and_then(|number| self.locate(number, tuple, handles));
        // Nearly always it is the first, or nothing has its tag and nothing lies behind the line.
        if found.is_some() || (probe.matches, probe.link) == (0, 0) {
            return found;
        }
        self.find_beyond(probe, hash, tuple, handles)
    }

    /// Goes on with `find` in what is left of the line, and behind it.
    fn find_beyond(
        &self,
        mut probe: Probe<'_>,
        hash: u64,
        tuple: &Tuple,
        handles: &Handles,
    ) -> Option<(u32, Located<'_, R>)> {
        let mut found = self.walk(&mut probe, tuple, handles);
        let mut link = probe.link;
        while found.is_none()
            && let Some(mut half) = self.index.probe_half(hash, link)
        {
            found = self.walk(&mut half, tuple, handles);
            link = half.link;
        }
        found
    }

    /// Goes on with `find` in what is left of one line.
    fn walk<const N: usize>(
        &self,
        probe: &mut Probe<'_, N>,
        tuple: &Tuple,
        handles: &Handles,
    ) -> Option<(u32, Located<'_, R>)> {
        while probe.matches != 0 {
            let number = self.index.next(probe, self.queue.span());
            let found = number.and_then(|number| self.locate(number, tuple, handles));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The record of that number, if it is that of `tuple`.
    fn locate(
        &self,
        number: u32,
        tuple: &Tuple,
        handles: &Handles,
    ) -> Option<(u32, Located<'_, R>)> {
        Some((number, self.see_at(&self.queue.location(number)?, tuple, handles)?))
    }

    /// The record that lies there, if it is that of `tuple`.
    fn see_at<'a>(
        &self,
        location: &Location<'a, R>,
        tuple: &Tuple,
        handles: &Handles,
    ) -> Option<Located<'a, R>> {
        let row = location.row;
        if row.common().ports() != tuple.ports() {
            return None;
        }
        let local = handles.meaning(row.common().handle()).0;
        if row.is_between(tuple, local) { self.queue.locate(location) } else { None }
    }

    #[cfg(test)]
    fn records(&self, handles: &Handles) -> impl Iterator<Item = Record> {
        self.queue.iter().map(|seen| self.found(&handles.tuple(seen.row), seen, handles).record())
    }

    fn remove(&mut self, hash: u64, tuple: &Tuple, Lent { handles, hasher }: Lent<'_>) -> bool {
        let Some((number, seen)) = self.find(hash, tuple, handles) else { return false };
        handles.give_back(seen.row.common().handle());
        self.queue.kill(number);
        self.index.remove(hash, number, self.queue.span().first);
        self.live -= 1;
        if self.live == 0 {
            // Nothing is left but what is dead.
            self.queue.first();
        }
        self.tidy(1, Finder { handles, hasher });
        true
    }

    fn restart(
        &mut self,
        hash: u64,
        tuple: &Tuple,
        stamp: Option<u32>,
        now: Instant,
        handles: &Handles,
    ) {
        let Some((number, seen)) = self.find(hash, tuple, handles) else { return };
        let is_over = seen.expires_ms <= now.as_millis();
        if let (Some(stamp), Some(row)) = (stamp, self.queue.row_mut(number)) {
            row.common_mut().note_stamp(stamp);
        }
        let expires_ms = ceil_ms(now).saturating_add(self.term_ms);
        if !is_over && !self.queue.restart(number, expires_ms) {
            self.move_to_end(hash, number, expires_ms);
        }
    }

    /// Queues a record again.
    fn move_to_end(&mut self, hash: u64, number: u32, expires_ms: u64) {
        let Some(row) = self.queue.row_mut(number).map(|row| *row) else { return };
        let new = self.queue.push(row, expires_ms);
        self.index.replace(hash, number, new, self.queue.span().first);
        self.queue.kill(number);
    }

    /// When the first record entered, if there is one. That it was restarted since does not count.
    fn entered_ms(&mut self) -> Option<u64> {
        Some(self.queue.first()?.turn_ms().saturating_sub(self.term_ms))
    }
}

#[cfg(test)]
mod tests;
