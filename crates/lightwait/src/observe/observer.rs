//! Looks at a host between its inputs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::SystemTime;

use lightwait_core::flow::Tuple;
use lightwait_core::ip::shards::Message;
use lightwait_core::tcp::State;
use lightwait_core::tcp::send::recovery::Mode;
use lightwait_core::tcp::timers::Timer;
use lightwait_core::time::Duration;
use lightwait_core::wire::tcp::Flags;
use lightwait_core::{Host, Instant, Outbox, RxFrame};

use super::parse::{self, Found};
use super::snapshot::{Snapshot, compare};
use super::{Again, ConnectionLog, Direction, Event, Log, Segment, Trigger, Watching, What};

/// What no frame and no timer shows is found this long after it happened, at most.
const SWEEP: Duration = Duration::from_millis(10);

/// Observes the connections of one shard.
#[derive(Debug)]
pub(crate) struct Observer {
    watching: Watching,
    /// When it ends; `None` before its first turn.
    end: Option<Instant>,
    next_sweep: Instant,
    watched: Vec<Watched>,
    /// The place of each among `watched`, by its ends, ours first.
    places: HashMap<(SocketAddr, SocketAddr), usize>,
    left_out: u64,
}

/// One that is watched.
#[derive(Debug)]
struct Watched {
    ends: Tuple,
    seen: Option<Snapshot>,
    /// One past the highest number that has left.
    sent_end: Option<u32>,
    /// The timer of a tail has fired: what leaves next is the loss probe.
    probes: bool,
    log: ConnectionLog,
}

impl Observer {
    pub(crate) fn new(watching: Watching) -> Observer {
        Observer {
            watching,
            end: None,
            next_sweep: Instant::ZERO,
            watched: Vec::new(),
            places: HashMap::new(),
            left_out: 0,
        }
    }

    /// True if it should have been ended.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        now >= *self.end.get_or_insert(now + self.watching.time)
    }

    /// What it has seen until `now`.
    pub(crate) fn log(self, now: Instant) -> Log {
        let since_zero = std::time::Duration::from_nanos(now.as_nanos());
        Log {
            connections: self.watched.into_iter().map(|it| it.log).collect(),
            left_out: self.left_out,
            zero: SystemTime::now() - since_zero,
        }
    }

    /// Hands frames that have come to `host`, in order; each of a watched connection alone.
    pub(crate) fn on_frames(&mut self, host: &mut Host, now: Instant, frames: &[RxFrame<'_>]) {
        let medium = host.config().device.medium;
        let mut others = 0;
        for (place, frame) in frames.iter().enumerate() {
            let Some(found) = parse::received(medium, frame).filter(|it| self.wants(it)) else {
                continue;
            };
            hand(host, now, &frames[others..place]);
            others = place + 1;
            self.on_segment(host, now, &found, |host| host.on_frame(now, *frame));
        }
        hand(host, now, &frames[others..]);
    }

    /// Hands a message of another shard to `host`.
    pub(crate) fn on_message(&mut self, host: &mut Host, now: Instant, from: u16, it: Message) {
        match parse::handed(&it).filter(|it| self.wants(it)) {
            Some(found) => {
                self.on_segment(host, now, &found, |host| host.on_message(now, from, it));
            }
            None => host.on_message(now, from, it),
        }
    }

    fn wants(&self, found: &Found) -> bool {
        (self.watching.wanted)(found.local, found.remote)
    }

    fn on_segment(
        &mut self,
        host: &mut Host,
        now: Instant,
        found: &Found,
        act: impl FnOnce(&mut Host),
    ) {
        let ends = ends_of(found);
        let place = self.places.get(&(found.local, found.remote)).copied();
        match place {
            Some(place) => self.look(host, place, now, Trigger::Application),
            None => {
                // One that was there already: what the segment changes is to be seen.
                if let Some(seen) = Snapshot::of(host, &ends, now) {
                    self.watch(found, Some(seen), now);
                }
            }
        }
        act(host);
        let place = self.places.get(&(found.local, found.remote)).copied();
        let place = place
            .or_else(|| Snapshot::of(host, &ends, now).and_then(|_| self.watch(found, None, now)));
        let Some(place) = place else { return };
        let most = self.watching.events;
        let it = &mut self.watched[place];
        let new = Snapshot::of(host, &ends, now);
        let shift = it.shift(new.as_ref(), &found.segment);
        let segment = Segment { window: found.segment.window << shift, ..found.segment };
        it.log.push(Event { at: now, what: What::Segment(segment) }, most);
        it.compare(new, now, Trigger::Segment, &[], most);
    }

    /// Lets time pass for `host`.
    pub(crate) fn on_time(&mut self, host: &mut Host, now: Instant) {
        let is_due = |it: &Watched| it.seen.is_some_and(|seen| seen.deadline() <= now);
        let due: Vec<usize> =
            (0..self.watched.len()).filter(|place| is_due(&self.watched[*place])).collect();
        for place in &due {
            self.look(host, *place, now, Trigger::Application);
        }
        host.on_time(now);
        for place in due {
            let it = &mut self.watched[place];
            let new = Snapshot::of(host, &it.ends, now);
            let fired = it.fired(new.as_ref(), now);
            let Some(first) = fired.first().copied() else { continue };
            it.note_fired(&fired, new.as_ref());
            it.compare(new, now, Trigger::Timer(first), &fired, self.watching.events);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            (0..self.watched.len())
                .for_each(|place| self.look(host, place, now, Trigger::Application));
        }
    }

    /// Lets `host` fill the outbox.
    pub(crate) fn emit(&mut self, host: &mut Host, now: Instant, outbox: &mut Outbox) {
        let medium = host.config().device.medium;
        let before = outbox.len();
        host.emit(now, outbox);
        let mut last = None;
        for frame in outbox.frames().skip(before) {
            let Some(found) = parse::sent(medium, frame).filter(|it| self.wants(it)) else {
                continue;
            };
            let place = self.places.get(&(found.local, found.remote)).copied();
            let place = place.or_else(|| {
                Snapshot::of(host, &ends_of(&found), now)
                    .and_then(|_| self.watch(&found, None, now))
            });
            let Some(place) = place else { continue };
            if last.replace(place) != Some(place) {
                self.look(host, place, now, Trigger::Application);
            }
            let it = &mut self.watched[place];
            let shift = it.shift(it.seen.as_ref(), &found.segment);
            let window = found.segment.window << shift;
            let again = it.again(&found.segment);
            let segment = Segment { window, again, ..found.segment };
            it.log.push(Event { at: now, what: What::Segment(segment) }, self.watching.events);
        }
    }

    /// Begins to watch a connection, if there is room.
    fn watch(&mut self, found: &Found, seen: Option<Snapshot>, now: Instant) -> Option<usize> {
        if self.watched.len() >= self.watching.connections {
            self.left_out += 1;
            return None;
        }
        let place = self.watched.len();
        self.places.insert((found.local, found.remote), place);
        let mut log = ConnectionLog::new(found.local, found.remote);
        if let Some(seen) = &seen {
            let what = What::Opened { state: seen.info.state, is_old: true };
            log.push(Event { at: now, what }, self.watching.events);
        }
        let ends = ends_of(found);
        self.watched.push(Watched { ends, seen, sent_end: None, probes: false, log });
        Some(place)
    }

    /// Looks for changes of one.
    fn look(&mut self, host: &Host, place: usize, now: Instant, by: Trigger) {
        let it = &mut self.watched[place];
        let new = Snapshot::of(host, &it.ends, now);
        it.compare(new, now, by, &[], self.watching.events);
    }
}

impl Watched {
    fn compare(
        &mut self,
        new: Option<Snapshot>,
        now: Instant,
        by: Trigger,
        fired: &[Timer],
        most: usize,
    ) {
        let old = std::mem::replace(&mut self.seen, new);
        let log = &mut self.log;
        compare((old.as_ref(), new.as_ref()), by, fired, |what| {
            log.push(Event { at: now, what }, most);
        });
        if new.is_none() {
            (self.sent_end, self.probes) = (None, false);
        }
    }

    /// The timers that were due and have fired, whether they were set again or not.
    fn fired(&self, new: Option<&Snapshot>, now: Instant) -> Vec<Timer> {
        let Some(old) = &self.seen else { return Vec::new() };
        let is_fired = |timer: &Timer| {
            let index = *timer as usize;
            let was = old.timers[index].filter(|at| *at <= now);
            was.is_some() && new.is_none_or(|new| new.timers[index] != was)
        };
        let timers = Timer::ALL.into_iter().filter(|timer| *timer != Timer::Rest);
        timers.filter(is_fired).collect()
    }

    /// A retransmission timer that neither is a timeout nor finds a loss is that of a tail.
    fn note_fired(&mut self, fired: &[Timer], new: Option<&Snapshot>) {
        let (Some(old), Some(new)) = (&self.seen, new) else { return };
        let is_calm = |it: &Snapshot| it.info.recovery == Mode::Open && it.info.lost_bytes == 0;
        self.probes = fired.contains(&Timer::Retransmit)
            && old.info.timeouts == new.info.timeouts
            && is_calm(old)
            && is_calm(new)
            && new.is_synchronized();
    }

    /// The shift count of a segment's window, which a SYN's has none of (RFC 7323 §2.2).
    fn shift(&self, now: Option<&Snapshot>, segment: &Segment) -> u8 {
        if segment.flags.contains(Flags::SYN) {
            return 0;
        }
        // A connection that has ended tells its counts no more.
        let known = [now, self.seen.as_ref()].into_iter().flatten();
        let known = known.map(|it| it.info.shifts).find(|shifts| *shifts != (0, 0));
        let (theirs, ours) = known.unwrap_or_default();
        if segment.direction == Direction::Inbound { theirs } else { ours }
    }

    /// Notes that a segment has left. Returns why it did so again, if it did.
    fn again(&mut self, segment: &Segment) -> Option<Again> {
        let has = |flag| u32::from(segment.flags.contains(flag));
        let numbers = segment.len + has(Flags::SYN) + has(Flags::FIN);
        let end = segment.seq.wrapping_add(numbers);
        if numbers == 0 {
            return None;
        }
        let is_after = |one: u32, other: u32| one.wrapping_sub(other) as i32 > 0;
        let before = self.sent_end;
        if before.is_none_or(|before| is_after(end, before)) {
            self.sent_end = Some(end);
        }
        let is_again = before.is_some_and(|before| is_after(before, segment.seq));
        let is_probe = std::mem::take(&mut self.probes);
        is_again.then(|| self.reason(is_probe))
    }

    fn reason(&self, is_probe: bool) -> Again {
        let Some(seen) = &self.seen else { return Again::Other };
        match (seen.info.recovery, seen.info.state) {
            (Mode::Timeout, _) => Again::Timeout,
            (Mode::Fast, _) => Again::FastRecovery,
            (Mode::Open, State::SynSent | State::SynReceived) => Again::Handshake,
            (Mode::Open, _) if is_probe => Again::LossProbe,
            (Mode::Open, _) if seen.info.peer_window_bytes == 0 => Again::WindowProbe,
            (Mode::Open, _) => Again::Other,
        }
    }
}

fn ends_of(found: &Found) -> Tuple {
    let end = |at: SocketAddr| (at.ip(), at.port());
    Tuple::new(end(found.local), end(found.remote))
}

/// Hands frames of others to `host`, together.
fn hand(host: &mut Host, now: Instant, frames: &[RxFrame<'_>]) {
    if !frames.is_empty() {
        host.on_frames(now, frames);
    }
}
