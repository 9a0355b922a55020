//! The neighbour cache: the hardware address of each neighbour on the link.
//!
//! One state machine serves ARP (RFC 826, RFC 1122 §2.3.2) and NDP (RFC 4861 §7.3); the messages
//! differ, what is known and when it is doubted does not.
//!
//! ```text
//!              lookup                answer
//!     (none) ────────▶ INCOMPLETE ──────────▶ REACHABLE ◀─────────────┐
//!                       ▲  │ 3 × 1 s             │ 30 s               │
//!          lookup, later │  ▼                     ▼       lookup       │ an answer
//!                       FAILED                 STALE ─────────▶ DELAY ─┤
//!                          ▲                     ▲                │ 5 s│
//!                          │ 3 × 1 s             │                ▼    │
//!                          └─────────────────────┼────────────── PROBE ┘
//!                                an address told, nothing known    ▲
//!                                                                  └─ another address told
//! ```
//!
//! # What is believed
//!
//! Neither ARP nor NDP proves which host speaks, so an answer counts only while a question is open:
//! nothing else makes an entry REACHABLE. What comes unasked (a reply without a question, a
//! gratuitous ARP, a request from the neighbour) may be forged by one frame, or may be the only
//! sign that a neighbour has moved to another hardware address. It is not believed and not lost; it
//! is a reason to ask at once. The known address stays, and is asked. Its owner answers within a
//! round trip, and a forger has gained nothing. A neighbour that has moved does not answer at the
//! old address; soon after all hosts are asked, and its answer counts.
//!
//! RFC 4861 §7.2.5 believes any advertisement that has the Solicited and Override flags; this is
//! stricter. A host that can hear our questions and answer before the neighbour does can still
//! deceive us: that takes more than ARP and NDP to prevent.
//!
//! TCP tells nothing of its progress (RFC 4861 §7.3.1 would have it): it would look up a neighbour
//! for each ACK, and save one question to a neighbour in 35 seconds.
//!
//! Everything is bounded: entries, frames that wait, notices, and two questions a second to each
//! neighbour. What arrives unasked makes an entry only if it was meant for us. REACHABLE becomes
//! STALE, and FAILED may be asked again, when a packet needs the entry, without a timer. Entries
//! leave only to make room for others.

mod state;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use hashbrown::HashMap;

use crate::flow::keyed::KeyedHash;
use crate::ip::limiter::TokenBucket;
use crate::time::{Duration, Instant};
use crate::wire::ethernet::{Mac, is_group};
use state::{State, Whom};

/// Between two solicitations (RFC 4861 §10 RETRANS_TIMER; RFC 1122 §2.3.2.1: at most one a second).
pub(crate) const RETRANSMIT: Duration = Duration::from_secs(1);
/// Solicitations to all hosts before giving up (MAX_MULTICAST_SOLICIT).
pub(crate) const MAX_MULTICAST_SOLICITS: u8 = 3;
/// Solicitations to the address known before giving it up (MAX_UNICAST_SOLICIT).
pub(crate) const MAX_UNICAST_SOLICITS: u8 = 3;
/// How long the owner of an address that is contradicted may take to answer before all hosts are
/// asked: much longer than a neighbour needs, and not noticed where one has moved.
pub(crate) const OWNER_ANSWERS: Duration = Duration::from_millis(200);
/// How long an answer is trusted (REACHABLE_TIME).
pub(crate) const REACHABLE: Duration = Duration::from_secs(30);
/// How long a neighbour is doubted before it is asked (DELAY_FIRST_PROBE_TIME).
pub(crate) const DELAY: Duration = Duration::from_secs(5);
/// How long a neighbour that did not answer is not asked again.
pub(crate) const FAILED: Duration = Duration::from_secs(3);
/// Frames that wait for one neighbour: beyond it the oldest is dropped (RFC 4861 §7.2.2). All
/// fragments of the largest datagram in packets of 1500 bytes are 45.
pub(crate) const MAX_WAITING_EACH: usize = 64;

/// New neighbours that other shards of the host hear of in a second.
const NEWS_PER_SECOND: u32 = 256;

/// Entries looked at to find one to evict.
const EVICTION_STEPS: usize = 16;

/// The facts known of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Send it there.
    Known(Mac),
    /// It is being asked for: let the frame wait with [`Neighbours::wait`].
    Pending,
    /// It does not answer.
    Failed,
}

/// How asking for a next hop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// It has answered.
    Resolved,
    /// It has not.
    Failed,
    /// Its entry has made room for another: there is no question any more.
    Forgotten,
}

/// A neighbour's hardware address, as one shard of a host tells another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub address: IpAddr,
    pub mac: Mac,
    /// It has answered a question.
    pub proved: bool,
}

/// What the cache wants sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// An ARP request or a neighbour solicitation.
    Solicit {
        /// The neighbour in question.
        target: IpAddr,
        /// The address to verify; `None`: ask all hosts.
        to: Option<Mac>,
    },
    /// What has waited, its destination filled in.
    Frame(Waiting),
}

/// A frame without a destination, which waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The frame; the destination is its first six bytes.
    pub frame: Vec<u8>,
    /// It is a segment of TCP.
    pub is_segment: bool,
}

/// A neighbour advertisement, or an ARP packet that tells an address (then `solicited` if it is a
/// reply to us, `overrides` always).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advertisement {
    /// The neighbour whose address it carries.
    pub target: IpAddr,
    /// The address, if it is.
    pub mac: Option<Mac>,
    /// It answers a solicitation.
    pub solicited: bool,
    /// It may replace another address.
    pub overrides: bool,
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// When it is in the timers.
    timer: Option<Instant>,
    /// When it may be asked for again.
    quiet_until: Instant,
    /// Oldest first; only while incomplete.
    waiting: VecDeque<Waiting>,
    /// Looked up since the eviction's hand last passed.
    used: bool,
}

/// The neighbour cache of one host.
#[derive(Debug)]
pub(crate) struct Neighbours {
    entries: HashMap<IpAddr, Entry, KeyedHash>,
    /// Every entry once, in the order in which eviction considers them.
    order: VecDeque<IpAddr>,
    /// Every entry that has a timer, by it.
    timers: BTreeSet<(Instant, IpAddr)>,
    limit: usize,
    /// Frames waiting, all entries together.
    waiting: usize,
    waiting_limit: usize,
    outputs: VecDeque<Output>,
    notices: VecDeque<(IpAddr, Resolution)>,
    /// What other shards of the host are to know: addresses that were proved anew, and those of new
    /// neighbours.
    news: VecDeque<Told>,
    /// New neighbours that others may hear of: strangers can make up as many as they like.
    new_ones: TokenBucket,
    /// How often an entry has changed, or must be marked as used once more.
    changes: u64,
    /// Frames that waited in vain.
    dropped: u64,
}

impl Neighbours {
    /// A cache of at most `limit` entries with at most `waiting_limit` frames waiting for them.
    pub(crate) fn new(limit: usize, waiting_limit: usize, secret: &[u8; 32]) -> Self {
        Neighbours {
            entries: HashMap::with_hasher(KeyedHash::new(secret, "neighbours")),
            order: VecDeque::new(),
            timers: BTreeSet::new(),
            limit: limit.max(1),
            waiting: 0,
            waiting_limit,
            outputs: VecDeque::new(),
            notices: VecDeque::new(),
            news: VecDeque::new(),
            new_ones: TokenBucket::new(NEWS_PER_SECOND, NEWS_PER_SECOND),
            changes: 0,
            dropped: 0,
        }
    }

    /// The state of `next_hop`, which a frame is about to be sent to. If nothing is known of it, it
    /// is asked for.
    pub(crate) fn lookup(&mut self, now: Instant, next_hop: IpAddr) -> Lookup {
        let Some(entry) = self.entries.get_mut(&next_hop) else {
            self.ask(now, next_hop);
            return Lookup::Pending;
        };
        entry.used = true;
        match entry.state {
            State::Reachable { mac, until } if now < until => Lookup::Known(mac),
            State::Reachable { mac, .. } | State::Stale { mac } => {
                self.set(next_hop, State::Delay { mac }, Some(now + DELAY));
                Lookup::Known(mac)
            }
            State::Delay { mac } | State::Probe { mac, .. } => Lookup::Known(mac),
            State::Incomplete { .. } => Lookup::Pending,
            State::Failed { until } if now < until => Lookup::Failed,
            State::Failed { .. } => {
                self.ask(now, next_hop);
                Lookup::Pending
            }
        }
    }

    /// Until when [`Neighbours::lookup`] has the same answer and effect for `next_hop`, which it
    /// has just called known, unless there are [changes](Self::changes).
    pub(crate) fn trusted_until(&self, next_hop: IpAddr) -> Instant {
        match self.entries.get(&next_hop).map(|entry| entry.state) {
            Some(State::Reachable { until, .. }) => until,
            _ => Instant::FAR_FUTURE,
        }
    }

    /// How often what is known may have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Frames that were dropped because the address of their neighbour was not known: it did not
    /// answer, or frame or entry had to make room. A notice follows each, or the call that dropped
    /// it is [`Neighbours::wait`].
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Lets a frame wait for `next_hop`, which [`Neighbours::lookup`] called pending: its
    /// destination is filled in when the answer comes. False if it was dropped.
    pub(crate) fn wait(&mut self, next_hop: IpAddr, waiting: Waiting) -> bool {
        let full = self.waiting >= self.waiting_limit;
        let entry = self.entries.get_mut(&next_hop);
        let Some(entry) = entry.filter(|e| matches!(e.state, State::Incomplete { .. })) else {
            self.dropped += 1;
            return false;
        };
        // The oldest goes for the newest; where there is none to go, the newest itself does.
        if full || entry.waiting.len() >= MAX_WAITING_EACH {
            self.dropped += 1;
            if entry.waiting.pop_front().is_none() {
                return false;
            }
            self.waiting -= 1;
        }
        entry.waiting.push_back(waiting);
        self.waiting += 1;
        true
    }

    /// A neighbour at `source` has shown its address in a message meant for us: a solicitation of
    /// ours, an ARP request for ours, or a router's advertisement (RFC 4861 §7.2.3; RFC 826).
    pub(crate) fn on_heard(&mut self, now: Instant, source: IpAddr, mac: Mac) {
        if !is_neighbour(source, mac) {
            return;
        }
        match self.entries.get(&source).map(|entry| entry.state) {
            None => {
                self.insert(source, State::Stale { mac }, None);
                if self.new_ones.take(now) {
                    self.news.push_back(Told { address: source, mac, proved: false });
                }
            }
            Some(state) => match state.mac() {
                None => self.learn(now, source, mac, false),
                Some(known) if known == mac => {}
                Some(_) => self.contradict(now, source, state),
            },
        }
    }

    /// A neighbour has announced its address, asked or not (RFC 4861 §7.2.5; gratuitous ARP).
    /// Changes an entry that is there and makes no new one.
    pub(crate) fn on_advertisement(&mut self, now: Instant, advertisement: Advertisement) {
        let Advertisement { target, mac, solicited, overrides } = advertisement;
        let Some(state) = self.entries.get(&target).map(|entry| entry.state) else { return };
        if mac.is_some_and(|mac| !is_neighbour(target, mac)) {
            return;
        }
        match (state.mac(), mac) {
            (None, None) => {}
            (None, Some(mac)) => self.learn(now, target, mac, solicited && state.expects(mac)),
            (Some(known), told) if told.is_none_or(|told| told == known) => {
                if solicited && state.expects(known) {
                    self.learn(now, target, known, true);
                }
            }
            (Some(_), Some(mac)) if overrides && solicited && state.expects(mac) => {
                self.learn(now, target, mac, true);
            }
            (Some(_), _) => self.contradict(now, target, state),
        }
    }

    /// Asks what is due at `now`.
    pub(crate) fn on_time(&mut self, now: Instant) {
        while let Some(&(at, target)) = self.timers.first() {
            if at > now {
                break;
            }
            self.on_timer(now, target);
        }
    }

    /// When [`Neighbours::on_time`] next has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// True if there is a [`Neighbours::deadline`].
    pub(crate) fn has_deadline(&self) -> bool {
        !self.timers.is_empty()
    }

    /// Packets to be sent, oldest first.
    pub(crate) fn output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// True if [`Neighbours::output`] has something.
    pub(crate) fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// True if [`Neighbours::resolved`] has something.
    pub(crate) fn has_resolved(&self) -> bool {
        !self.notices.is_empty()
    }

    /// A next hop that was pending, and how it ended: whatever waits for it may go on, or fail.
    pub(crate) fn resolved(&mut self) -> Option<(IpAddr, Resolution)> {
        self.notices.pop_front()
    }

    /// What is known of the hardware address of `target`.
    pub(crate) fn known(&self, target: IpAddr) -> Option<Told> {
        let state = self.entries.get(&target)?.state;
        let proved = matches!(state, State::Reachable { .. });
        Some(Told { address: target, mac: state.mac()?, proved })
    }

    /// The shard that speaks for the host has told what it knows. What is not proved changes no
    /// address that is known here.
    pub(crate) fn on_told(&mut self, now: Instant, told: Told) {
        let Told { address, mac, proved } = told;
        if !is_neighbour(address, mac) {
            return;
        }
        match self.entries.get(&address).map(|entry| entry.state.mac()) {
            None if proved => {}
            None => self.insert(address, State::Stale { mac }, None),
            Some(Some(_)) if !proved => {}
            Some(_) => self.learn(now, address, mac, proved),
        }
    }

    /// The oldest of what other shards of the host are to know.
    pub(crate) fn news(&mut self) -> Option<Told> {
        self.news.pop_front()
    }

    /// Forgets the news: there is nobody to be told.
    pub(crate) fn forget_news(&mut self) {
        self.news.clear();
    }

    /// Begins to ask all hosts for `target`.
    fn ask(&mut self, now: Instant, target: IpAddr) {
        let state = State::Incomplete { asked: 1 };
        self.insert(target, state, Some(now + RETRANSMIT));
        self.solicit(now, target, None);
    }

    /// A host says unasked that `target` has another address than is known. Asks the host at the
    /// known address, now or when a second has passed since the last question (RFC 1122 §2.3.2.1).
    fn contradict(&mut self, now: Instant, target: IpAddr, state: State) {
        match state {
            State::Reachable { mac, .. } | State::Stale { mac } | State::Delay { mac } => {
                let at = self.entries.get(&target).map_or(now, |entry| entry.quiet_until.max(now));
                let state = State::Probe { mac, asked: 0, whom: Whom::Contradicted };
                self.set(target, state, Some(at));
                if at == now {
                    self.on_timer(now, target);
                }
            }
            State::Probe { mac, asked, whom: Whom::Known } => {
                let state = State::Probe { mac, asked, whom: Whom::Contradicted };
                self.set(target, state, Some(now + OWNER_ANSWERS));
            }
            State::Probe { .. } | State::Incomplete { .. } | State::Failed { .. } => {}
        }
    }

    fn solicit(&mut self, now: Instant, target: IpAddr, to: Option<Mac>) {
        if let Some(entry) = self.entries.get_mut(&target) {
            entry.quiet_until = now + RETRANSMIT;
        }
        self.push_output(Output::Solicit { target, to });
    }

    /// The next question about an address in doubt, or the end of asking.
    fn probe(&mut self, now: Instant, target: IpAddr, mac: Mac, asked: u8, whom: Whom) {
        let (asked, whom) = match whom {
            // It has had its chance.
            Whom::Contradicted if asked > 0 => (0, Whom::Everybody),
            _ => (asked, whom),
        };
        let (most, to) = match whom {
            Whom::Everybody => (MAX_MULTICAST_SOLICITS, None),
            Whom::Known | Whom::Contradicted => (MAX_UNICAST_SOLICITS, Some(mac)),
        };
        if asked < most {
            let state = State::Probe { mac, asked: asked + 1, whom };
            let wait = if whom == Whom::Contradicted { OWNER_ANSWERS } else { RETRANSMIT };
            self.set(target, state, Some(now + wait));
            self.solicit(now, target, to);
        } else if whom == Whom::Everybody {
            self.set(target, State::Failed { until: now + FAILED }, None);
            self.push_notice(target, Resolution::Failed);
        } else {
            // All hosts are asked at the next look-up: the neighbour may have a new address.
            self.set(target, State::Failed { until: now }, None);
        }
    }

    fn on_timer(&mut self, now: Instant, target: IpAddr) {
        let Some(entry) = self.entries.get(&target) else {
            unreachable!("a timer belongs to an entry");
        };
        let again = Some(now + RETRANSMIT);
        match entry.state {
            State::Incomplete { asked } if asked < MAX_MULTICAST_SOLICITS => {
                self.set(target, State::Incomplete { asked: asked + 1 }, again);
                self.solicit(now, target, None);
            }
            State::Incomplete { .. } => {
                self.take_waiting(target, None);
                self.set(target, State::Failed { until: now + FAILED }, None);
                self.push_notice(target, Resolution::Failed);
            }
            State::Delay { mac } => self.probe(now, target, mac, 0, Whom::Known),
            State::Probe { mac, asked, whom } => self.probe(now, target, mac, asked, whom),
            state @ (State::Reachable { .. } | State::Stale { .. } | State::Failed { .. }) => {
                unreachable!("{state:?} has no timer")
            }
        }
    }

    /// `target` has `mac`: proved by an answer to us, or only announced.
    fn learn(&mut self, now: Instant, target: IpAddr, mac: Mac, proved: bool) {
        let state = if proved {
            State::Reachable { mac, until: now + REACHABLE }
        } else {
            State::Stale { mac }
        };
        let was = self.entries.get(&target).map(|entry| entry.state);
        self.set(target, state, None);
        if was.and_then(State::mac).is_some_and(|known| known != mac) {
            self.news.push_back(Told { address: target, mac, proved });
        }
        if was.is_some_and(|was| was.mac().is_none()) {
            self.take_waiting(target, Some(mac));
            self.push_notice(target, Resolution::Resolved);
        }
    }

    /// Sends the frames that wait for `target` to `to`, or drops them.
    fn take_waiting(&mut self, target: IpAddr, to: Option<Mac>) {
        let Some(entry) = self.entries.get_mut(&target) else { return };
        let all = core::mem::take(&mut entry.waiting);
        self.waiting -= all.len();
        for mut waiting in all {
            if let (Some(mac), Some(destination)) = (to, waiting.frame.first_chunk_mut::<6>()) {
                *destination = mac;
                self.push_output(Output::Frame(waiting));
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Puts an entry in a state, with or without a timer. There is one, or it is made.
    fn insert(&mut self, target: IpAddr, state: State, timer: Option<Instant>) {
        if !self.entries.contains_key(&target) {
            while self.entries.len() >= self.limit {
                self.evict();
            }
            let waiting = VecDeque::new();
            let quiet_until = Instant::ZERO;
            let entry = Entry { state, timer: None, quiet_until, waiting, used: false };
            self.entries.insert(target, entry);
            self.order.push_back(target);
        }
        self.set(target, state, timer);
    }

    fn set(&mut self, target: IpAddr, state: State, timer: Option<Instant>) {
        self.changes += 1;
        let Some(entry) = self.entries.get_mut(&target) else { return };
        entry.state = state;
        if let Some(at) = entry.timer.take() {
            self.timers.remove(&(at, target));
        }
        if let Some(at) = timer {
            entry.timer = Some(at);
            self.timers.insert((at, target));
        }
    }

    /// Makes room: the oldest entry that was not used since the hand last passed goes, or after
    /// some steps the one at hand.
    fn evict(&mut self) {
        for step in 0.. {
            let Some(target) = self.order.pop_front() else { return };
            let Some(entry) = self.entries.get_mut(&target) else { continue };
            if entry.used && step < EVICTION_STEPS {
                self.changes += 1;
                entry.used = false;
                self.order.push_back(target);
                continue;
            }
            self.forget(target);
            return;
        }
    }

    fn forget(&mut self, target: IpAddr) {
        self.take_waiting(target, None);
        self.changes += 1;
        let Some(entry) = self.entries.remove(&target) else { return };
        if let Some(at) = entry.timer {
            self.timers.remove(&(at, target));
        }
        if let State::Incomplete { .. } = entry.state {
            self.push_notice(target, Resolution::Forgotten);
        }
    }

    fn push_output(&mut self, output: Output) {
        if self.outputs.len() < self.limit + self.waiting_limit {
            self.outputs.push_back(output);
        } else if let Output::Frame(_) = output {
            self.dropped += 1;
        }
    }

    fn push_notice(&mut self, target: IpAddr, resolution: Resolution) {
        if self.notices.len() < self.limit {
            self.notices.push_back((target, resolution));
        }
    }
}

/// A neighbour has an address of its own on both layers; a group is no neighbour.
fn is_neighbour(address: IpAddr, mac: Mac) -> bool {
    let group = address.is_multicast() || address.is_unspecified() || address.is_loopback();
    !group && address != Ipv4Addr::BROADCAST && !is_group(mac) && mac != [0; 6]
}

#[cfg(test)]
mod tests;
