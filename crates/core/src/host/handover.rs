//! Hands over what a host keeps of closed connections to another host of the same addresses, with
//! the same secret and the same time: the host of a process that takes over from this one's.
//!
//! ```text
//!   old host                         new host
//!     remains ── 31 bytes each ─────▶  inherit
//!     step_down
//!     its connections end …
//!     take_remains ─────────────────▶  inherit
//! ```
//!
//! A host that has stepped down ends its connections and begins none. It does not answer what
//! belongs to none of them: that is the new host's.

use alloc::vec::Vec;

use super::Host;
use super::half_open::COOKIES_VALID;
use crate::ip::limiter::TokenBucket;
use crate::tcp::connection::FinalState;
use crate::tcp::time_wait::{Holding, Record, TimeWait};
use crate::tcp::{Seq, Tuple};
use crate::time::{Duration, Instant};

/// What is left of a connection that has no user any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Its ends and its numbers.
    pub record: Record,
    /// It waits for its peer's FIN, in FIN-WAIT-2. Else it is in TIME-WAIT.
    pub waits_for_fin: bool,
}

/// The bits of the first byte.
const IPV6: u8 = 1;
const STAMPED: u8 = 2;
const HOLDER: u8 = 4;
const MARKED: u8 = 8;
const WAITS_FOR_FIN: u8 = 16;

impl Remains {
    /// Bytes of one of IPv4, and of IPv6.
    pub const BYTES: [usize; 2] = [31, 55];

    /// Appends it as bytes:
    ///
    /// ```text
    ///   0      1      5       9       13        17       19            23       27    31
    ///   │ bits │ ports│SND.NXT│RCV.NXT│TS.Recent│ window │ ms it lasts │ ours   │theirs│
    /// ```
    ///
    /// The addresses of IPv6 have 16 bytes each.
    pub fn encode(&self, now: Instant, bytes: &mut Vec<u8>) {
        let Record { tuple, snd_nxt, rcv_nxt, stamp, window, expires, .. } = self.record;
        let bits = [
            (tuple.is_ipv6(), IPV6),
            (stamp.is_some(), STAMPED),
            (self.record.is_holder, HOLDER),
            (self.record.is_marked, MARKED),
            (self.waits_for_fin, WAITS_FOR_FIN),
        ];
        bytes.push(bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum());
        let left_ms = u32::try_from(expires.since(now).as_millis()).unwrap_or(u32::MAX);
        for word in [tuple.ports(), snd_nxt.0, rcv_nxt.0, stamp.unwrap_or(0)] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(window.to_be_bytes());
        bytes.extend(left_ms.to_be_bytes());
        for address in [tuple.local_ip(), tuple.remote_ip()] {
            match address {
                core::net::IpAddr::V4(address) => bytes.extend(address.octets()),
                core::net::IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
    }

    /// Reads one from the front of `bytes`, and says how many bytes it has. `None` if they are none
    /// or too few.
    pub fn decode(now: Instant, bytes: &[u8]) -> Option<(Remains, usize)> {
        let (&bits, rest) = bytes.split_first()?;
        let is = |bit| bits & bit != 0;
        let len = Remains::BYTES[usize::from(is(IPV6))];
        if bits >= WAITS_FOR_FIN << 1 || bytes.len() < len {
            return None;
        }
        let (words, rest) = rest.split_at_checked(22)?;
        let word = |at: usize| {
            u32::from_be_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
        };
        let (ports, window) = (word(0), u16::from_be_bytes([words[16], words[17]]));
        let end = |at: usize| -> Option<core::net::IpAddr> {
            if is(IPV6) {
                return Some((*rest.get(16 * at..)?.first_chunk::<16>()?).into());
            }
            Some((*rest.get(4 * at..)?.first_chunk::<4>()?).into())
        };
        let tuple = Tuple::new((end(0)?, (ports >> 16) as u16), (end(1)?, ports as u16));
        let record = Record {
            tuple,
            snd_nxt: Seq(word(4)),
            rcv_nxt: Seq(word(8)),
            stamp: is(STAMPED).then(|| word(12)),
            window,
            is_holder: is(HOLDER),
            is_marked: is(MARKED),
            entered: now,
            expires: now + Duration::from_millis(word(18).into()),
        };
        (tuple.is_ipv6() == is(IPV6))
            .then_some((Remains { record, waits_for_fin: is(WAITS_FOR_FIN) }, len))
    }
}

impl Host {
    /// All that is left of closed connections and of orphans in FIN-WAIT-2 that are records, in the
    /// order in which they go. Records whose time is over are left out, and so are connections that
    /// are kept whole in TIME-WAIT ([`TimeWaitState::Full`](crate::config::TimeWaitState::Full)). A
    /// record stays here while a connection between its ends opens or lives.
    pub fn remains(&self, now: Instant) -> Vec<Remains> {
        let time_wait = all(&self.closed.time_wait).map(|record| (record, false));
        let fin_wait_2 = all(self.closed.fin_wait_2.records()).map(|record| (record, true));
        // An orphan that is awake is a connection. One that opens in the place of a record needs
        // that to answer (`answer_for_predecessor`).
        let is_alone = |tuple: &Tuple| self.find(self.live.hasher.hash(tuple), tuple).is_none();
        let mut found: Vec<Remains> = time_wait
            .chain(fin_wait_2)
            .filter(|(record, _)| !record.is_over(now) && is_alone(&record.tuple))
            .map(|(record, waits_for_fin)| Remains { record, waits_for_fin })
            .collect();
        found.sort_by_key(|remains| remains.record.expires);
        found
    }

    /// Forgets what [`Host::remains`] returns, and returns it.
    pub fn take_remains(&mut self, now: Instant) -> Vec<Remains> {
        let found = self.remains(now);
        for Remains { record, waits_for_fin } in &found {
            let hash = self.live.hasher.hash(&record.tuple);
            if *waits_for_fin {
                self.closed.fin_wait_2.forget(hash, &record.tuple);
            } else {
                self.closed.time_wait.remove(hash, &record.tuple);
            }
        }
        found
    }

    /// Keeps what is left of another host's connection as if it had been this one's. Where several
    /// come, those that go first come first, before any of this host's own. Returns false if it is
    /// kept already, or if a connection has its ends: of both, the living one holds.
    pub fn inherit(&mut self, now: Instant, remains: &Remains) -> bool {
        let Remains { record, waits_for_fin } = remains;
        let (tuple, hash) = (&record.tuple, self.live.hasher.hash(&record.tuple));
        if self.is_known(tuple) || record.is_over(now) {
            return false;
        }
        let holding = if record.is_holder { Holding::Agreed } else { Holding::Closer };
        let final_state = FinalState {
            snd_nxt: record.snd_nxt,
            rcv_nxt: record.rcv_nxt,
            stamp: record.stamp,
            stamp_offset: None,
            window: record.window,
            holding,
            ack_due: false,
        };
        if *waits_for_fin {
            let (orphans, ends) = (&mut self.closed.fin_wait_2, (hash, tuple));
            let evicted = orphans.adopt(ends, &final_state, record.is_marked, now, record.expires);
            self.shared.counters.fin_wait_2_evicted += evicted;
            return orphans.has(now, hash, tuple);
        }
        let distance = self.distance(tuple);
        self.shared.counters.time_wait_inherited += 1;
        let table = &mut self.closed.time_wait;
        let evicted = table.adopt((hash, tuple), &final_state, distance, now, record.expires);
        self.shared.counters.time_wait_evicted += evicted;
        table.get(hash, tuple).is_some()
    }

    /// True if this host has a connection between these ends, one that opens, or what is left of
    /// one.
    pub fn is_known(&self, tuple: &Tuple) -> bool {
        let hash = self.live.hasher.hash(tuple);
        self.find(hash, tuple).is_some()
            || self.time_wait_record(hash, tuple).is_some()
            || self.closed.fin_wait_2.records().get(hash, tuple).is_some()
    }

    /// From now on connections end, and none begins but those that a peer has begun. Nothing is
    /// answered but what belongs to one of them.
    pub fn step_down(&mut self) {
        self.opening.listeners.hear_nothing();
        self.ip.set_answers_to_strangers(TokenBucket::new(0, 1));
    }

    /// True if an ACK of a SYN cookie that this host has sent may still come.
    pub fn awaits_cookies(&self, now: Instant) -> bool {
        let sent = self.opening.cookie_sent;
        sent != Instant::ZERO && now.since(sent) <= COOKIES_VALID
    }

    /// Takes ACKs of SYN cookies from now on, as if it had sent some itself: a host with the same
    /// secret did.
    pub fn expect_cookies(&mut self, now: Instant) {
        self.opening.cookie_sent = now.max(Instant::from_nanos(1));
    }
}

/// All records of a table.
fn all(records: &TimeWait) -> impl Iterator<Item = Record> + '_ {
    let numbers = move |set| {
        let mut next = Some(records.first_number(set));
        core::iter::from_fn(move || {
            let (found, following) = records.look_at(set, next?);
            next = following;
            Some(found)
        })
    };
    (0..TimeWait::SETS).flat_map(numbers).flatten()
}
