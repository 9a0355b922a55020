//! What the host derives from its secret and its addresses: ISNs, timestamp offsets, and the ends
//! of an active open.

use core::net::SocketAddr;

use super::Host;
use crate::error::ConnectError;
use crate::flow::Tuple;
use crate::tcp::isn::Beginning;
use crate::tcp::port::{Candidate, MAX_ATTEMPTS, Search};
use crate::tcp::time_wait::{Predecessor, Record};
use crate::time::Instant;

/// Source addresses tried before an active open gives up for want of a free port.
const SOURCES_TRIED: u32 = 16;

/// A tuple that an active open may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct TupleChoice {
    pub(super) tuple: Tuple,
    pub(super) hash: u64,
    /// A record of the tuple whose time is not over: TIME-WAIT is to be cut short.
    pub(super) predecessor: Option<Predecessor>,
    /// There is a record whose time is over, which ends.
    pub(super) is_over: bool,
}

impl TupleChoice {
    /// A choice of `tuple`, before anything is found out about it.
    pub(super) fn of(tuple: Tuple) -> TupleChoice {
        TupleChoice { tuple, hash: 0, predecessor: None, is_over: false }
    }
}

/// The outcome of trying a port.
#[derive(Clone, Copy, Debug)]
enum PortState {
    /// No connection uses it.
    Free,
    /// It is in TIME-WAIT, which may be cut short or not.
    Waiting(bool),
    /// It is in use.
    Taken,
}

/// Ports in TIME-WAIT that are passed over before one of them is taken: those to come were mostly
/// used later, so they are hardly free.
const PASSED_OVER_MAX: u32 = 32;

/// The search for a port of any of our addresses.
#[derive(Debug)]
struct PortTries {
    /// Ports that may still be tried.
    left: u32,
    /// Ports in TIME-WAIT that were passed over.
    passed: u32,
    /// What to fall back upon.
    second_best: Option<(TupleChoice, Search)>,
}

impl PortTries {
    fn new(left: u32) -> PortTries {
        PortTries { left, passed: 0, second_best: None }
    }

    fn is_time_to_fall_back(&self) -> bool {
        self.passed >= PASSED_OVER_MAX && self.second_best.is_some()
    }
}

impl Host {
    /// The numbers that a connection between these ends begins with now.
    pub(super) fn choose_isn(&self, now: Instant, tuple: &Tuple) -> Beginning {
        self.opening.isns.begin(now, tuple)
    }

    pub(super) fn stamp_offset(&self, tuple: &Tuple) -> u32 {
        self.opening.isns.timestamp_offset(tuple)
    }

    // ---- active opens

    /// True if an active open may take the tuple of `choice`, which says under what terms then: no
    /// connection has it, and its TIME-WAIT, if any, is over or may be cut short, which takes
    /// timestamps (RFC 6191 §3).
    pub(super) fn may_take(&self, now: Instant, choice: &mut TupleChoice) -> bool {
        choice.hash = self.live.hasher.hash(&choice.tuple);
        matches!(self.judge(now, choice, false), PortState::Free | PortState::Waiting(true))
    }

    /// The state of the port of `choice`. Where it may be taken, `choice` then has what its record
    /// of TIME-WAIT asks for. `is_heard`: a listener has the port, so it is not free.
    #[inline(always)]
    fn judge(&self, now: Instant, choice: &mut TupleChoice, is_heard: bool) -> PortState {
        let (hash, tuple) = (choice.hash, &choice.tuple);
        let record = self.time_wait_record(hash, tuple);
        let is_over = record.is_some_and(|record| record.is_over(now));
        let living = record.filter(|_| !is_over);
        let is_taken = is_heard
            || self.find_unexpected(hash, tuple).is_some()
            || self.closed.fin_wait_2.has(now, hash, tuple);
        if is_taken {
            return if living.is_some() { PortState::Waiting(false) } else { PortState::Taken };
        }
        choice.is_over = is_over;
        let may_open = |record: &Record| self.shared.config.timestamps && record.may_open(now);
        choice.predecessor = living.filter(may_open).map(|record| record.predecessor());
        match living {
            Some(_) => PortState::Waiting(choice.predecessor.is_some()),
            None => PortState::Free,
        }
    }

    /// Finds an ephemeral port for `choice`: one that is not in TIME-WAIT, if one is soon found,
    /// else the first of those whose TIME-WAIT may be cut short.
    pub(super) fn pick_port(
        &mut self,
        now: Instant,
        choice: &mut TupleChoice,
    ) -> Result<(), ConnectError> {
        let mut tries = PortTries::new(MAX_ATTEMPTS);
        let is_found =
            self.find_port(now, choice, &mut tries) || self.fall_back(choice, &mut tries);
        if is_found { Ok(()) } else { Err(ConnectError::AddressNotAvailable) }
    }

    /// Looks for a port of ours, which `choice` has then.
    fn find_port(&mut self, now: Instant, choice: &mut TupleChoice, tries: &mut PortTries) -> bool {
        let mut search = self.opening.ports.search(&choice.tuple);
        // Nearly always the first will do.
        let is_found = match self.try_port(now, choice, &mut search) {
            Some(PortState::Free) => true,
            Some(first) => self.try_ports(now, choice, search, first, tries),
            None => false,
        };
        if is_found {
            self.prefetch_likely();
        }
        is_found
    }

    /// Tries one port after the other, until one is free, or so many were not that it is time to
    /// fall back.
    fn try_ports(
        &mut self,
        now: Instant,
        choice: &mut TupleChoice,
        mut search: Search,
        mut trial: PortState,
        tries: &mut PortTries,
    ) -> bool {
        loop {
            match trial {
                PortState::Free => return true,
                PortState::Waiting(may_open) => {
                    self.shared.counters.ports_in_time_wait += 1;
                    tries.passed += 1;
                    if may_open && tries.second_best.is_none() {
                        tries.second_best = Some((*choice, search));
                    }
                }
                PortState::Taken => {}
            }
            tries.left -= 1;
            if tries.left == 0 || tries.is_time_to_fall_back() {
                return false;
            }
            let Some(next) = self.try_port(now, choice, &mut search) else { return false };
            trial = next;
        }
    }

    /// The first that may be had by cutting its TIME-WAIT short: its port is the one used longest
    /// ago. The next search goes on behind it.
    fn fall_back(&mut self, choice: &mut TupleChoice, tries: &mut PortTries) -> bool {
        let Some((second_best, search)) = tries.second_best.take() else { return false };
        *choice = second_best;
        self.opening.ports.go_on_behind(&search, choice.tuple.local_port());
        self.prefetch_likely();
        true
    }

    /// Tries the next port of `search`; `None` if there is none.
    #[inline(always)]
    fn try_port(
        &mut self,
        now: Instant,
        choice: &mut TupleChoice,
        search: &mut Search,
    ) -> Option<PortState> {
        let mut candidate = self.opening.ports.next(search)?;
        if !self.ip.shards.is_alone() {
            candidate = self.first_of_ours(candidate, &choice.tuple, search)?;
        }
        let Candidate { port, hash } = candidate;
        choice.tuple = choice.tuple.with_local_port(port);
        choice.hash = hash.unwrap_or_else(|| self.live.hasher.hash(&choice.tuple));
        let is_heard = self.opening.listeners.has_port(port);
        Some(self.judge(now, choice, is_heard))
    }

    /// The first candidate, from this one on, whose answers come to this shard.
    fn first_of_ours(
        &mut self,
        candidate: Candidate,
        ends: &Tuple,
        search: &mut Search,
    ) -> Option<Candidate> {
        let mut candidate = candidate;
        while self.ip.shards.elsewhere(&ends.with_local_port(candidate.port)).is_some() {
            candidate = self.opening.ports.next(search)?;
        }
        Some(candidate)
    }

    /// Finds a tuple to `remote` from any of our addresses: of the range, if there is one, in
    /// random order, so that all of its ports are used before any comes again. False if there is
    /// none.
    pub(super) fn pick_source(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        choice: &mut TupleChoice,
    ) -> bool {
        let sources = if self.config.ranges.is_empty() { 1 } else { SOURCES_TRIED };
        let mut tries = PortTries::new(0);
        for _ in 0..sources {
            let Some(local) = self.ip.source_for(remote.ip(), &mut self.opening.rng) else {
                return false;
            };
            choice.tuple = Tuple::new((local, 0), (remote.ip(), remote.port()));
            tries.left += MAX_ATTEMPTS / sources;
            if self.find_port(now, choice, &mut tries) {
                return true;
            }
            if tries.is_time_to_fall_back() {
                break;
            }
        }
        self.fall_back(choice, &mut tries)
    }
}
