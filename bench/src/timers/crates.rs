//! Two published crates, each used according to its documentation.

use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use hierarchical_hash_wheel_timer::IdOnlyTimerEntry;
use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::QuadWheelWithOverflow as Cancellable;
use hierarchical_hash_wheel_timer::wheels::quad_wheel::{
    PruneDecision, QuadWheelWithOverflow as Plain,
};
use lightwait_core::Instant;
use lightwait_core::time::Duration;
use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::connection::Connection;
use super::scheme::{Scheme, When};

/// The runtime's clock moves only when the bench advances it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system")
});

/// tokio-util's DelayQueue, on a paused clock that the bench sets.
#[derive(Debug)]
pub(super) struct Delays {
    queue: DelayQueue<u32>,
    /// The queue finds its runtime through the thread.
    _inside: EnterGuard<'static>,
    /// One point in time, by the bench's clock and by the queue's.
    epoch: (Instant, tokio::time::Instant),
    now: Instant,
}

impl Delays {
    fn at(&self, at: Instant) -> tokio::time::Instant {
        self.epoch.1 + at.since(self.epoch.0)
    }
}

impl Scheme for Delays {
    type Key = Option<Key>;
    const ADVANCES: bool = true;

    fn new(now: Instant) -> Self {
        let inside = RUNTIME.enter();
        let at = tokio::time::Instant::now();
        Delays { queue: DelayQueue::new(), _inside: inside, epoch: (now, at), now }
    }

    fn birth(&mut self, index: u32, connection: &mut Connection<Self::Key>, when: When) {
        self.set(index, connection, when);
    }

    #[inline(always)]
    fn set(&mut self, index: u32, connection: &mut Connection<Self::Key>, when: When) {
        connection.key = Some(self.queue.insert_at(index, self.at(when.at)));
    }

    #[inline(always)]
    fn cancel(&mut self, _: u32, connection: &mut Connection<Self::Key>) {
        if let Some(key) = connection.key.take() {
            self.queue.remove(&key);
        }
    }

    #[inline(always)]
    fn rearm(&mut self, _: u32, connection: &mut Connection<Self::Key>, when: When) {
        if let Some(key) = &connection.key {
            self.queue.reset_at(key, self.at(when.at));
        }
    }

    fn death(&mut self, index: u32, connection: &mut Connection<Self::Key>) {
        self.cancel(index, connection);
    }

    fn advance(&mut self, now: Instant) {
        RUNTIME.block_on(tokio::time::advance(now.since(self.now)));
        self.now = now;
    }

    fn turn(
        &mut self,
        _: Instant,
        connections: &mut [Connection<Self::Key>],
        mut fire: impl FnMut(u32, &mut Connection<Self::Key>),
    ) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut context) {
            let index = expired.into_inner();
            let connection = &mut connections[index as usize];
            connection.key = None;
            fire(index, connection);
        }
    }
}

/// A wheel of hierarchical_hash_wheel_timer, which counts in ms, and its present time.
#[derive(Debug)]
struct Counted<W> {
    wheel: W,
    now_ms: u64,
}

impl<W> Counted<W> {
    /// Its delays are whole ms, at least one; it refuses others.
    fn delay(&self, at: Instant) -> Duration {
        let at_ms = at.as_nanos().div_ceil(1_000_000);
        Duration::from_millis(at_ms.saturating_sub(self.now_ms).max(1))
    }

    /// Ticks until `now`, and skips empty ticks.
    fn run(
        &mut self,
        now: Instant,
        can_skip: impl Fn(&W) -> Skip,
        skip: impl Fn(&mut W, u32),
        mut tick: impl FnMut(&mut W),
    ) {
        while self.now_ms < now.as_millis() {
            let left = (now.as_millis() - self.now_ms) as u32;
            let skipped = match can_skip(&self.wheel) {
                Skip::Empty => left,
                Skip::Millis(ms) => ms.min(left),
                Skip::None => 0,
            };
            if skipped > 0 {
                skip(&mut self.wheel, skipped);
                self.now_ms += u64::from(skipped);
            } else {
                tick(&mut self.wheel);
                self.now_ms += 1;
            }
        }
    }
}

/// Its cancellable wheel, which keeps a hash table of entries.
pub(super) struct HashWheel(Counted<Cancellable<IdOnlyTimerEntry<u32>>>);

impl Scheme for HashWheel {
    type Key = ();

    fn new(now: Instant) -> Self {
        HashWheel(Counted { wheel: Cancellable::new(), now_ms: now.as_millis() })
    }

    fn birth(&mut self, index: u32, connection: &mut Connection<()>, when: When) {
        self.set(index, connection, when);
    }

    #[inline(always)]
    fn set(&mut self, index: u32, _: &mut Connection<()>, when: When) {
        let delay = self.0.delay(when.at);
        let inserted = self.0.wheel.insert(IdOnlyTimerEntry { id: index, delay });
        inserted.unwrap_or_else(|_| panic!("{delay:?} is ahead"));
    }

    #[inline(always)]
    fn cancel(&mut self, index: u32, _: &mut Connection<()>) {
        self.0.wheel.cancel(&index).unwrap_or_else(|_| panic!("{index} is set"));
    }

    #[inline(always)]
    fn rearm(&mut self, index: u32, connection: &mut Connection<()>, when: When) {
        self.cancel(index, connection);
        self.set(index, connection, when);
    }

    fn death(&mut self, index: u32, connection: &mut Connection<()>) {
        self.cancel(index, connection);
    }

    fn turn(
        &mut self,
        now: Instant,
        connections: &mut [Connection<()>],
        mut fire: impl FnMut(u32, &mut Connection<()>),
    ) {
        self.0.run(now, Cancellable::can_skip, Cancellable::skip, |wheel| {
            for entry in wheel.tick() {
                fire(entry.id, &mut connections[entry.id as usize]);
            }
        });
    }
}

/// Its plain wheel, with lazy cancelling: a number in the connection names the valid entry. Zero
/// and even numbers mean none.
pub(super) struct LazyWheel(Counted<Plain<(u32, u32)>>);

impl Scheme for LazyWheel {
    type Key = u32;

    fn new(now: Instant) -> Self {
        let keep = |_: &(u32, u32)| PruneDecision::Keep;
        LazyWheel(Counted { wheel: Plain::new(keep), now_ms: now.as_millis() })
    }

    fn birth(&mut self, index: u32, connection: &mut Connection<u32>, when: When) {
        self.set(index, connection, when);
    }

    #[inline(always)]
    fn set(&mut self, index: u32, connection: &mut Connection<u32>, when: When) {
        connection.key = (connection.key + 1) | 1;
        let delay = self.0.delay(when.at);
        let inserted = self.0.wheel.insert_with_delay((index, connection.key), delay);
        inserted.unwrap_or_else(|_| panic!("{delay:?} is ahead"));
    }

    #[inline(always)]
    fn cancel(&mut self, _: u32, connection: &mut Connection<u32>) {
        connection.key += 1;
    }

    #[inline(always)]
    fn rearm(&mut self, index: u32, connection: &mut Connection<u32>, when: When) {
        self.set(index, connection, when);
    }

    fn death(&mut self, index: u32, connection: &mut Connection<u32>) {
        self.cancel(index, connection);
    }

    fn turn(
        &mut self,
        now: Instant,
        connections: &mut [Connection<u32>],
        mut fire: impl FnMut(u32, &mut Connection<u32>),
    ) {
        self.0.run(now, Plain::can_skip, Plain::skip, |wheel| {
            for (index, key) in wheel.tick() {
                let connection = &mut connections[index as usize];
                if connection.key == key {
                    connection.key += 1;
                    fire(index, connection);
                }
            }
        });
    }
}
