//! A connection's timers, and the schemes that look after them.
//!
//! The engine only stores deadlines in the connection: setting or cancelling a timer is one store.
//! When a ready connection has been flushed, the host tells the scheme once with
//! [`Timers::touched`], and that is all a scheme ever hears. What it has to remember about a
//! connection, 12 bytes, lies beside the deadlines ([`Filed`]), where a segment has been anyhow.
//!
//! Deadlines count in whole ticks of the scheduling clock: a timer fires at the first tick at or
//! after its deadline. That is the scheduling service of the timer framework (Aron & Druschel 1999,
//! §3): [`Deadlines::set`] schedules an event, [`Deadlines::cancel`] cancels it, and the resolution
//! is [`ClockConfig::tick`](crate::config::ClockConfig::tick). Set for D ticks of the measurement
//! clock, a timer fires after more than D - 1 of them and less than D + X, where X of them are a
//! tick of the scheduling clock: the paper's T < actual < T + X + 1, with T = D - 1.

pub mod bsd;
#[cfg(test)]
mod framework;
mod inline;
mod slots;
mod wheel;

pub use bsd::{Blocks, Bsd};
pub use inline::Inline;
pub use wheel::Wheel;

use crate::config::{Estimator, Scheme};
use crate::time::{Duration, Instant, as_nanos};

/// The timers of a connection (Aron & Druschel 1999, §2). TIME-WAIT has a table of its own; a whole
/// block that stays in it ([`TimeWaitState::Full`](crate::config::TimeWaitState::Full)) has
/// [`Timer::Lifetime`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Retransmission of SYN, data or FIN (RFC 6298).
    Retransmit,
    /// A delayed ACK is due.
    DelayedAck,
    /// Zero-window probe, or the sender's override of silly-window avoidance.
    Persist,
    /// The next keepalive probe (RFC 9293 §3.8.4).
    KeepAlive,
    /// An orphan waits in FIN-WAIT-2.
    FinWait2,
    /// The whole life of a phase: establishment, or a linger with a limit.
    Lifetime,
    /// The connection may rest, if nothing has moved for so long.
    Rest,
}

/// Timers a connection has.
pub(crate) const TIMERS: usize = Timer::ALL.len();

impl Timer {
    /// All of them, each at its own index.
    pub const ALL: [Timer; 7] = [
        Timer::Retransmit,
        Timer::DelayedAck,
        Timer::Persist,
        Timer::KeepAlive,
        Timer::FinWait2,
        Timer::Lifetime,
        Timer::Rest,
    ];

    /// The timers that 4.4BSD had, and its ticks count: all but the last.
    const COUNTED: [Timer; TIMERS - 1] = {
        let [counted @ .., _rest] = Timer::ALL;
        counted
    };
}

/// A set of timers, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerSet(u32);

impl TimerSet {
    /// None.
    pub const EMPTY: TimerSet = TimerSet(0);
    /// All of them.
    const ALL: TimerSet = TimerSet((1 << TIMERS) - 1);

    fn insert(&mut self, timer: Timer) {
        self.0 |= 1 << timer as u32;
    }
}

impl Iterator for TimerSet {
    type Item = Timer;

    fn next(&mut self) -> Option<Timer> {
        let timer = Timer::ALL.get(self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(*timer)
    }
}

/// When each timer of a connection is due.
///
/// What a scheme wants to hear decides what is kept besides. A scheme that only asks which
/// connection is due next needs one bound of all deadlines. A scheme that counts each timer by
/// itself must know which were set anew. Then the bound is later than any deadline, so that every
/// setting passes by where the bound would be lowered, and its low bits are the set of those
/// timers.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    at: [Instant; TIMERS],
    /// No deadline is earlier. Setting lowers it; cancelling leaves it, since a connection that
    /// wakes up too early makes it exact. Or [`NEWS`], and which timers have been set.
    bound: Instant,
}

/// Later than any deadline, half of all time from now, and not [`Instant::FAR_FUTURE`].
const NEWS: u64 = 1 << 63;

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines::NONE
    }
}

impl Deadlines {
    /// No timer is set.
    pub const NONE: Deadlines =
        Deadlines { at: [Instant::FAR_FUTURE; TIMERS], bound: Instant::FAR_FUTURE };

    /// Sets `timer` to fire at `at`.
    pub fn set(&mut self, timer: Timer, at: Instant) {
        // Rarely: a deadline that moves with every segment moves later.
        if at < self.bound {
            self.note(timer, at);
        }
        self.at[timer as usize] = at;
    }

    /// Sets `timer` to fire this long `after` `now`, for callers that seldom use it.
    pub(crate) fn set_after(&mut self, timer: Timer, now: Instant, after: Duration) {
        self.set(timer, now + after);
    }

    /// `timer` is about to be set, earlier than the bound.
    fn note(&mut self, timer: Timer, at: Instant) {
        let Some(mut news) = self.news() else {
            self.bound = at;
            return;
        };
        // A timer set to the same time again goes on as it is.
        if self.at[timer as usize] != at {
            news.insert(timer);
            self.bound = Instant::from_nanos(NEWS | u64::from(news.0));
        }
    }

    /// Deadlines are about to follow that may be as early as `at`. A scheme that files one entry
    /// files it for then, and need not file another for each of them.
    pub fn expect(&mut self, at: Instant) {
        if self.news().is_none() {
            self.bound = self.bound.min(at);
        }
    }

    /// Which timers were set to another time since [`take_news`](Self::take_news); `None` before
    /// that is kept.
    fn news(&self) -> Option<TimerSet> {
        let news = self.bound.as_nanos() ^ NEWS;
        (news <= u64::from(TimerSet::ALL.0)).then_some(TimerSet(news as u32))
    }

    /// Which timers were set to another time since this was last asked; they may have been
    /// cancelled after that. `None` the first time: from then on it is kept.
    fn take_news(&mut self) -> Option<TimerSet> {
        let news = self.news();
        self.bound = Instant::from_nanos(NEWS);
        news
    }

    /// Cancels `timer`.
    pub fn cancel(&mut self, timer: Timer) {
        self.at[timer as usize] = Instant::FAR_FUTURE;
    }

    /// Cancels every timer.
    pub fn clear(&mut self) {
        *self = Deadlines::default();
    }

    /// True if `timer` is set.
    pub fn is_set(&self, timer: Timer) -> bool {
        self.at[timer as usize] != Instant::FAR_FUTURE
    }

    /// When `timer` is due; [`Instant::FAR_FUTURE`] if it is not set.
    pub fn at(&self, timer: Timer) -> Instant {
        self.at[timer as usize]
    }

    /// If `timer` is due at `tick`, cancels it and returns true.
    pub fn take_due(&mut self, timer: Timer, tick: Instant) -> bool {
        let due = self.at[timer as usize] <= tick;
        if due {
            self.cancel(timer);
        }
        due
    }

    /// True if a timer may be due at `tick`: certainly, once [tightened](Self::tighten).
    pub fn may_be_due(&self, tick: Instant) -> bool {
        match self.news() {
            None => self.bound <= tick,
            Some(_) => self.earliest() <= tick,
        }
    }

    /// Makes the bound exact, if there is one, and returns the earliest deadline.
    pub fn tighten(&mut self) -> Instant {
        let earliest = self.earliest();
        if self.news().is_none() {
            self.bound = earliest;
        }
        earliest
    }

    /// The earliest deadline; [`Instant::FAR_FUTURE`] if none is set.
    pub fn earliest(&self) -> Instant {
        self.at.into_iter().fold(Instant::FAR_FUTURE, Instant::min)
    }
}

/// The scheduling clock: time in whole ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    ns: u64,
    /// 2^64 / ns, rounded down: multiplying takes half as long as dividing.
    reciprocal: u64,
}

impl Ticks {
    /// Ticks of `length`, 1 ns at least.
    pub fn new(length: Duration) -> Self {
        let ns = as_nanos(length).max(1);
        Ticks { ns, reciprocal: u64::MAX / ns }
    }

    /// The last tick at or before `at`.
    pub fn at_or_before(self, at: Instant) -> u64 {
        let ns = at.as_nanos();
        // The reciprocal is less than one too small: the quotient is right or one too small.
        let tick = ((u128::from(ns) * u128::from(self.reciprocal)) >> 64) as u64;
        tick + u64::from(ns - tick * self.ns >= self.ns)
    }

    /// The first tick at or after `at`.
    pub fn at_or_after(self, at: Instant) -> u64 {
        let tick = self.at_or_before(at);
        tick + u64::from(tick * self.ns != at.as_nanos())
    }

    /// When `tick` is.
    pub fn instant(self, tick: u64) -> Instant {
        Instant::from_nanos(tick.saturating_mul(self.ns))
    }
}

/// The data of a scheme beside the connection's deadlines: where its entry is filed, or a tick
/// counter for each timer. 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(4))]
pub struct Filed([u16; Timer::COUNTED.len()]);

impl Default for Filed {
    fn default() -> Self {
        Filed([u16::MAX; Timer::COUNTED.len()])
    }
}

/// The time at which a control block enters TIME-WAIT, and for how long it stays.
#[derive(Clone, Copy, Debug)]
pub struct TimeWaitTerm {
    /// The time at which it begins.
    pub now: Instant,
    /// 2·MSL.
    pub duration: Duration,
}

/// Connections handed out in a turn, at most: some 100 µs' worth, if all of them are early.
const DUE_PER_TURN: usize = 1024;

/// The timers of all connections, under the scheme chosen. (A tag of its own: one hidden among a
/// scheme's fields takes longer to tell.)
#[derive(Debug)]
#[repr(u8)]
pub enum Timers {
    /// [`Scheme::Inline`].
    Inline(Inline),
    /// [`Scheme::Wheel`].
    Wheel(Wheel),
    /// [`Scheme::Scan`] and [`Scheme::OrderedList`].
    Bsd(Bsd),
}

impl Timers {
    /// No timer set; deadlines count in whole `ticks`.
    pub fn new(scheme: Scheme, ticks: Ticks) -> Self {
        match scheme {
            Scheme::Inline => Timers::Inline(Inline::new(ticks)),
            Scheme::Wheel => Timers::Wheel(Wheel::new(ticks)),
            Scheme::Scan => Timers::Bsd(Bsd::new(false)),
            Scheme::OrderedList => Timers::Bsd(Bsd::new(true)),
        }
    }

    /// These timers for connections whose retransmission timeouts are of `estimator`: unless it
    /// counts in the slow ticks of [`Scheme::Scan`] and [`Scheme::OrderedList`], those do not fire
    /// them early.
    pub(crate) fn with_estimator(mut self, estimator: Estimator) -> Self {
        if let Timers::Bsd(bsd) = &mut self {
            bsd.set_fine(matches!(estimator, Estimator::Rfc6298 | Estimator::Fine));
        }
        self
    }

    /// Connection `index` was flushed at `now`, and has these deadlines.
    #[inline(always)]
    pub fn touched(
        &mut self,
        index: u32,
        filed: &mut Filed,
        deadlines: &mut Deadlines,
        now: Instant,
    ) {
        match self {
            Timers::Inline(inline) => inline.touched(index, filed, deadlines.bound),
            Timers::Wheel(wheel) => wheel.touched(index, deadlines),
            Timers::Bsd(bsd) => bsd.touched(index, filed, deadlines, now),
        }
    }

    /// The control block of connection `index` is in TIME-WAIT for `duration`, or begins to
    /// do so anew, which [`Timer::Lifetime`] tells. Aron & Druschel have a place in their list for
    /// such; the others know it by its deadline.
    pub fn enter_time_wait(
        &mut self,
        index: u32,
        filed: &mut Filed,
        deadlines: &mut Deadlines,
        time: TimeWaitTerm,
    ) {
        match self {
            Timers::Bsd(bsd) => bsd.enter_time_wait(index, filed, deadlines, time),
            _ => self.touched(index, filed, deadlines, time.now),
        }
    }

    /// Connection `index` is gone. What the next of that number begins with: where an entry may be
    /// early it stays, since until it is reached that one will hardly need an earlier.
    pub(crate) fn hand_on(&mut self, index: u32, mut filed: Filed) -> Filed {
        if !matches!(self, Timers::Inline(_)) {
            self.forget(index, &mut filed);
            filed = Filed::default();
        }
        filed
    }

    /// Connection `index` is gone, and nothing of it stays.
    pub fn forget(&mut self, index: u32, filed: &mut Filed) {
        match self {
            Timers::Inline(inline) => inline.forget(index, filed),
            Timers::Wheel(wheel) => wheel.forget(index),
            Timers::Bsd(bsd) => bsd.forget(index),
        }
    }

    /// There will be no connection of number `index` for now: what the last one left is forgotten.
    pub(crate) fn forget_left(&mut self, index: u32, mut filed: Filed) {
        if filed != Filed::default() {
            self.forget(index, &mut filed);
        }
    }

    /// True if [`Timers::due`] may return a connection at `now`. (The default decides by one
    /// comparison, since most turns ask only this.)
    pub fn has_due(&mut self, now: Instant) -> bool {
        match self {
            Timers::Inline(inline) => inline.has_due(now),
            Timers::Wheel(_) | Timers::Bsd(_) => true,
        }
    }

    /// A connection that has a timer due at `now`, or may have. The caller [takes it
    /// out](Self::take_out) and passes it to `touched` again. The timer comes with it if the
    /// scheme's ticks decide that it is due, whatever its deadline says. `blocks` receives such a
    /// tick, and each block must have its [`Filed::count_down`].
    pub fn due(&mut self, now: Instant, blocks: &mut impl Blocks) -> Option<(u32, Option<Timer>)> {
        match self {
            Timers::Inline(inline) => inline.due(now).map(|index| (index, None)),
            Timers::Wheel(wheel) => wheel.due(now).map(|index| (index, None)),
            Timers::Bsd(bsd) => {
                let (index, fired) = bsd.due(now, blocks)?;
                // A control block in TIME-WAIT has nothing else left to end.
                let timer = match fired {
                    bsd::Fired::Timer(timer) => timer,
                    bsd::Fired::TimeWait => Timer::Lifetime,
                };
                Some((index, Some(timer)))
            }
        }
    }

    /// How many timers run in a turn, at most, so that connections with data do not wait for a
    /// million without: a coarse slot holds as many, and is reached at once. The ticks of 4.4BSD do
    /// all they find, as they did.
    pub fn share(&self) -> usize {
        if matches!(self, Timers::Bsd(_)) { usize::MAX } else { DUE_PER_TURN }
    }

    /// The connection was handed out as due: it has no entry now.
    pub fn take_out(&self, filed: &mut Filed) {
        if let Timers::Inline(_) = self {
            *filed = Filed::default();
        }
    }

    /// When there will be such a connection.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Timers::Inline(inline) => inline.deadline(),
            Timers::Wheel(wheel) => wheel.deadline(),
            Timers::Bsd(bsd) => bsd.deadline(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ticks_are_quotients_rounded_down_and_up(
            ns in prop_oneof![1u64..2_000, 1u64..10_000_000_000, 1u64..],
            at in prop_oneof![any::<u64>(), 0u64..10_000, u64::MAX - 10..=u64::MAX],
        ) {
            let ticks = Ticks::new(Duration::from_nanos(ns));
            for at in [at, at / ns * ns, (at / ns * ns).saturating_sub(1)] {
                let instant = Instant::from_nanos(at);
                prop_assert_eq!(ticks.at_or_before(instant), at / ns);
                prop_assert_eq!(ticks.at_or_after(instant), at.div_ceil(ns));
            }
        }
    }

    #[test]
    fn the_bound_is_never_after_a_deadline_and_exact_once_tightened() {
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.bound, Instant::FAR_FUTURE);
        deadlines.set(Timer::Retransmit, Instant::from_millis(200));
        deadlines.set(Timer::KeepAlive, Instant::from_millis(7000));
        assert_eq!(deadlines.bound, Instant::from_millis(200));
        deadlines.set(Timer::Retransmit, Instant::from_millis(300));
        assert_eq!(deadlines.bound, Instant::from_millis(200), "nobody is woken too late");
        assert!(deadlines.may_be_due(Instant::from_millis(200)));
        assert_eq!(deadlines.tighten(), Instant::from_millis(300));
        assert!(!deadlines.may_be_due(Instant::from_millis(299)));
        deadlines.cancel(Timer::Retransmit);
        assert_eq!(deadlines.tighten(), Instant::from_millis(7000));
        deadlines.clear();
        assert_eq!(deadlines.bound, Instant::FAR_FUTURE);
    }

    #[test]
    fn news_is_what_was_set_to_another_time_once_somebody_asks() {
        let at = Instant::from_millis;
        let mut deadlines = Deadlines::default();
        deadlines.set(Timer::KeepAlive, at(7000));
        assert_eq!(deadlines.take_news(), None);
        assert_eq!(deadlines.take_news(), Some(TimerSet::EMPTY));
        deadlines.set(Timer::KeepAlive, at(7000));
        deadlines.set(Timer::Retransmit, at(300));
        deadlines.set(Timer::Lifetime, at(9000));
        assert_eq!(deadlines.tighten(), at(300));
        deadlines.cancel(Timer::Lifetime);
        deadlines.set(Timer::Persist, at(800));
        assert!(deadlines.may_be_due(at(300)) && !deadlines.may_be_due(at(299)));
        let news: Vec<Timer> = deadlines.take_news().expect("it is kept").collect();
        assert_eq!(news, [Timer::Retransmit, Timer::Persist, Timer::Lifetime]);
        deadlines.clear();
        assert_eq!(deadlines.take_news(), None, "all may be different");
    }
}
