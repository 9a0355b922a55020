//! An exhaustive search over two real hosts and a network that does its worst within bounds. It
//! visits every reachable state and checks the rules in each.
//!
//! ```text
//!   state = what each host has been given, in order │ packets in flight │ the time │ bounds left
//!   move  = deliver a packet │ deliver it and keep it │ strip its option
//!         │ let time pass to the next deadline, and lose the packets in flight, but for one
//!         │ open again between the same ends
//! ```
//!
//! Which of several packets is delivered first is reordering, and needs no move of its own.
//!
//! A host given the same inputs always does the same, so its inputs *are* its state. The engine
//! computes the effect of one more input once, and the search looks it up from then on ([`Actor`]).
//! Two orders of events at different hosts lead to one state, and the search enters it once. In
//! each state with no time left the network turns fair: both ends must finish, and then hold
//! TIME-WAIT for 2·MSL.

mod actor;
pub mod packet;

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use lightwait_core::{Config, Instant};

pub use actor::{Actor, Order, View};
use actor::{Input, Node};
use packet::Packet;

/// The longest time that a packet is in flight (RFC 9293's MSL). TIME-WAIT must last twice as long.
pub const MSL: Duration = Duration::from_secs(30);

/// The shortest time that a connection takes.
const MOMENT: Duration = Duration::from_micros(100);

/// Time-outs within which a fair network must have let both ends finish.
const PATIENCE: usize = 200;

/// The bounds on what the network may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Times that it lets time pass to the next deadline, which loses the packets in flight.
    pub timers: u8,
    /// How many of those times keep one packet, which arrives late.
    pub delays: u8,
    /// Packets that it delivers and also keeps.
    pub repeats: u8,
    /// Options that it strips.
    pub strips: u8,
    /// The client may open again between the same ends.
    pub reopens: Option<Reopen>,
}

/// A second connection between the same ends, which begins while one packet of the first is in
/// flight. The network repeats no packet then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reopen {
    /// How long after both have closed it begins.
    pub after: Duration,
    /// The old packet must have text; else any packet counts.
    pub with_text: bool,
}

/// The hosts, the bounds and the rules of one search.
pub struct Plan {
    /// The configurations of the client and the server.
    pub configs: [Config; 2],
    /// Which end closes first.
    pub order: Order,
    /// The bounds on the network.
    pub bounds: Bounds,
    /// The only rule to check; `None`: all rules.
    pub only: Option<Rule>,
    /// A mutant: a host with a rule removed, which sends or accepts more. The function changes a
    /// packet that leaves the client (0) or the server (1), or adds one behind it. `None` for real
    /// hosts.
    pub mutant: Option<Mutant>,
}

/// See [`Plan::mutant`]. It also sees the view of both ends after the packet has left.
pub type Mutant = fn(usize, [&View; 2], Packet) -> Vec<Packet>;

/// The rules that hold in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A new connection accepts no text of an old one.
    NoOldText,
    /// No end reports an error; but TIME-WAIT may refuse a second connection.
    NoError,
    /// For 2·MSL after both have closed, at least one end holds TIME-WAIT.
    Held,
    /// The end that both have agreed on holds it, and both know of an agreement if the network
    /// strips nothing.
    Agreed,
    /// If the peer acknowledged data, the data has arrived.
    NoLoss,
    /// On a fair network both ends finish.
    Finished,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// States entered.
    pub states: usize,
    /// Inputs that the engine computed; all other steps were looked up.
    pub steps: usize,
    /// States in which the client's second connection has been established.
    pub again: usize,
    /// The first state that breaks a rule: the rule and the path to it, a line a packet.
    pub fault: Option<String>,
}

/// A packet in flight: since when, to which end, and its content.
type Flying = (Instant, usize, Packet);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: [Node; 2],
    flying: Vec<Flying>,
    now: Instant,
    bounds: Bounds,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Deliver(usize),
    Repeat(usize),
    Strip(usize),
    Lose,
    /// Loses all packets but this one.
    Delay(usize),
    Reopen(Duration),
}

/// An event on the path to a state, and its time.
enum Event {
    /// A packet reached this side.
    Packet(Instant, usize, Packet, &'static str),
    Other(Instant, &'static str),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Packet(at, to, packet, what) => {
                let from_to = ["server → client", "client → server"][*to];
                write!(f, "{at} {from_to}: {packet}{what}")
            }
            Event::Other(at, what) => write!(f, "{at} {what}"),
        }
    }
}

struct Search<'a> {
    plan: &'a Plan,
    actors: [Actor; 2],
    /// Hashes of states: 64 bits are enough to tell some millions of states apart.
    seen: HashSet<u64>,
    /// Hashes of the states from which a fair network has let both ends finish.
    finished: HashSet<u64>,
    /// Hashes of the states from which the client has opened again: see [`Search::is_new_ground`].
    reopened: HashSet<u64>,
    path: Vec<Event>,
    found: Found,
}

/// Enters every reachable state; stops at the first that breaks a rule.
pub fn run(plan: &Plan) -> Found {
    let [client, server] = plan.configs.clone();
    let actors = [Actor::new(0, client, plan.order), Actor::new(1, server, plan.order)];
    let (seen, finished, reopened, path, found) = Default::default();
    let mut search = Search { plan, actors, seen, finished, reopened, path, found };
    let now = Instant::from_millis(1000);
    let nodes = [search.actors[0].root(), search.actors[1].root()];
    let mut state = State { nodes, flying: Vec::new(), now, bounds: plan.bounds };
    let fault = search.give(&mut state, 0, Input::Open(now)).or_else(|| search.enter(&state));
    search.found.fault = fault.map(|rule| {
        let mut text = rule;
        for line in &search.path {
            let _ = write!(text, "\n  {line}");
        }
        text
    });
    search.found.steps = search.actors.iter().map(Actor::steps).sum();
    search.found
}

impl Search<'_> {
    /// Explores the states after `state`. Returns the broken rule if one is broken; then `path`
    /// leads there.
    fn enter(&mut self, state: &State) -> Option<String> {
        if !self.seen.insert(hash_of(state)) {
            return None;
        }
        self.found.states += 1;
        self.found.again += usize::from(self.views(state)[0].is_again);
        for next in self.moves(state) {
            if matches!(next, Move::Reopen(_)) && !self.is_new_ground(state) {
                continue;
            }
            let depth = self.path.len();
            let mut after = state.clone();
            let fault = self.take(&mut after, next).or_else(|| self.enter(&after));
            if fault.is_some() {
                return fault;
            }
            self.path.truncate(depth);
        }
        let is_finishing = state.bounds.timers == 0 && self.asks(Rule::Finished);
        if is_finishing { self.finish(state) } else { None }
    }

    fn moves(&self, state: &State) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, flying) in state.flying.iter().enumerate() {
            if index > 0 && state.flying[index - 1] == *flying {
                continue;
            }
            let repeats = (state.bounds.repeats > 0).then_some(Move::Repeat(index));
            // All moves are tried. Old text is the likeliest to break a rule, so it comes first.
            let (first, second) = match flying.2.has_text() {
                true => (repeats, Some(Move::Deliver(index))),
                false => (Some(Move::Deliver(index)), repeats),
            };
            moves.extend(first.into_iter().chain(second));
            if state.bounds.strips > 0 && flying.2.has_option() {
                moves.push(Move::Strip(index));
            }
        }
        let [client, server] = self.views(state);
        if let Some(Reopen { after, with_text }) = state.bounds.reopens
            && client.is_done
            && server.is_done
            && let [(_, _, old)] = &state.flying[..]
            && (old.has_text() || !with_text)
        {
            moves.insert(0, Move::Reopen(after));
        }
        let is_over = client.is_done && server.is_done && state.flying.is_empty();
        if state.bounds.timers > 0 && !is_over {
            moves.push(Move::Lose);
            let late = if state.bounds.delays > 0 { state.flying.len() } else { 0 };
            moves.extend((0..late).map(Move::Delay));
        }
        moves
    }

    /// True if the client has not opened again from such a state. If both ends are closed, only
    /// their records tell how that came about: the numbers in them, which are the same in all runs,
    /// and the times when they began.
    fn is_new_ground(&mut self, state: &State) -> bool {
        let records = self.views(state).map(|view| (view.records, view.held_since));
        let mut hasher = DefaultHasher::new();
        (records, &state.flying, state.now, state.bounds).hash(&mut hasher);
        self.reopened.insert(hasher.finish())
    }

    fn views(&self, state: &State) -> [&View; 2] {
        [0, 1].map(|side| self.actors[side].view(state.nodes[side]))
    }

    /// Makes a move. Returns the broken rule, if it breaks one.
    fn take(&mut self, state: &mut State, next: Move) -> Option<String> {
        match next {
            Move::Deliver(index) => {
                let (_, to, packet) = state.flying.remove(index);
                self.note(state.now, to, &packet, "");
                self.give(state, to, Input::Packet(state.now, packet))
            }
            Move::Repeat(index) => {
                state.bounds.repeats -= 1;
                let (_, to, packet) = state.flying[index].clone();
                self.note(state.now, to, &packet, "; it will come again");
                self.give(state, to, Input::Packet(state.now, packet))
            }
            Move::Strip(index) => {
                state.bounds.strips -= 1;
                let (born, to, packet) = state.flying.remove(index);
                self.note(state.now, to, &packet, "; on the way, its option is stripped");
                insert(&mut state.flying, (born, to, packet.stripped()));
                None
            }
            Move::Lose => {
                state.bounds.timers -= 1;
                state.flying.clear();
                self.wait(state)
            }
            Move::Delay(index) => {
                state.bounds.timers -= 1;
                state.bounds.delays -= 1;
                state.flying = vec![state.flying.swap_remove(index)];
                self.wait(state)
            }
            Move::Reopen(after) => {
                (state.bounds.reopens, state.bounds.repeats) = (None, 0);
                state.now = state.now + after;
                self.path.push(Event::Other(state.now, "the client opens between the same ends"));
                self.give(state, 0, Input::Open(state.now))
            }
        }
    }

    fn note(&mut self, now: Instant, to: usize, packet: &Packet, what: &'static str) {
        self.path.push(Event::Packet(now, to, packet.clone(), what));
    }

    /// Time passes to the next deadline that has an effect: a host may look early.
    fn wait(&mut self, state: &mut State) -> Option<String> {
        for _ in 0..PATIENCE {
            let seen = |search: &Self, state: &State| {
                search.views(state).map(|view| (view.is_done, view.failed, view.records))
            };
            let (before, under_way) = (seen(self, state), state.flying.len());
            let fault = self.wait_once(state);
            let is_idle = self.views(state).iter().all(|view| view.deadline.is_none());
            if fault.is_some() || state.flying.len() != under_way || is_idle {
                return fault;
            }
            if seen(self, state) != before {
                return None;
            }
        }
        None
    }

    /// Time passes to the next deadline. Packets older than MSL leave the network.
    fn wait_once(&mut self, state: &mut State) -> Option<String> {
        let deadlines = self.views(state).map(|view| view.deadline);
        let at = deadlines.into_iter().flatten().min()?.max(state.now);
        state.now = at;
        state.flying.retain(|(born, ..)| at.since(*born) <= MSL);
        self.path.push(Event::Other(at, "time has passed"));
        for (side, deadline) in deadlines.into_iter().enumerate() {
            if deadline.is_some_and(|deadline| deadline <= at) {
                let fault = self.give(state, side, Input::Time(at));
                if fault.is_some() {
                    return fault;
                }
            }
        }
        None
    }

    /// Gives a host an input; the packets that it sends are then in flight. Returns the broken
    /// rule.
    fn give(&mut self, state: &mut State, side: usize, input: Input) -> Option<String> {
        let before = self.views(state).map(|view| view.is_done);
        let (node, sent) = self.actors[side].after(state.nodes[side], input);
        state.nodes[side] = node;
        for packet in sent.iter().cloned() {
            let packets = match self.plan.mutant {
                Some(mutant) => mutant(side, self.views(state), packet),
                None => vec![packet],
            };
            for packet in packets {
                insert(&mut state.flying, (state.now, 1 - side, packet));
            }
        }
        if self.views(state).map(|view| view.is_done) != before {
            // Packets take no time here, but the clock of ISNs has moved on when a connection has
            // closed (RFC 9293 §3.4.1), or an old handshake could be repeated to the number.
            state.now = state.now + MOMENT;
        }
        self.judge(state)
    }

    fn are_done(&self, state: &State) -> bool {
        self.views(state).iter().all(|view| view.is_done)
    }

    fn asks(&self, rule: Rule) -> bool {
        self.plan.only.is_none_or(|only| only == rule)
    }

    /// The rule that this state breaks.
    fn judge(&self, state: &State) -> Option<String> {
        let [client, server] = self.views(state);
        let fault = if self.asks(Rule::NoOldText) && (client.mixed || server.mixed) {
            Some("text of an old connection is accepted by a new one")
        } else if client.failed || server.failed {
            self.judge_failed(state)
        } else if self.are_done(state) {
            let is_lost = self.asks(Rule::NoLoss) && !(client.has_all && server.has_all);
            let lost = is_lost.then_some("what was acknowledged is lost");
            self.judge_held(state).or_else(|| self.judge_agreed(state)).or(lost)
        } else {
            None
        };
        fault.map(str::to_owned)
    }

    /// The rule that this state breaks, where an end has reported an error.
    fn judge_failed(&self, state: &State) -> Option<&'static str> {
        // TIME-WAIT may refuse a second connection.
        if self.plan.bounds.reopens.is_some() {
            None
        } else if self.asks(Rule::NoError) {
            Some("an end was told of an error")
        } else if self.are_done(state) {
            self.judge_held(state)
        } else {
            None
        }
    }

    /// The rule that this state breaks, where both ends have closed.
    fn judge_held(&self, state: &State) -> Option<&'static str> {
        let [client, server] = self.views(state);
        let since = client.held_since.into_iter().chain(server.held_since).min();
        let is_due = since.is_none_or(|since| !is_over(state, since));
        let is_held = client.records + server.records > 0 || !is_due;
        (!is_held && self.asks(Rule::Held))
            .then_some("both ends are closed, and nobody holds TIME-WAIT")
    }

    /// The rule on agreement that this state breaks.
    fn judge_agreed(&self, state: &State) -> Option<&'static str> {
        if !self.asks(Rule::Agreed) {
            return None;
        }
        let [client, server] = self.views(state);
        for (view, other) in [(client, server), (server, client)] {
            let is_over = view.held_since.is_some_and(|since| is_over(state, since));
            if view.relies_on_us && other.relies_on_peer && view.records == 0 && !is_over {
                return Some("the end that was agreed on does not hold TIME-WAIT");
            }
        }
        // An old SYN draws an ACK from a server that is not open yet. The client takes that ACK for
        // the sign that the server has its proof. If the server has not, both ends hold.
        let is_alone = self.plan.bounds.reopens.is_none();
        let is_whole = state.bounds.strips == self.plan.bounds.strips;
        (is_alone && is_whole && client.agreed != server.agreed)
            .then_some("one end alone knows of the agreement, and nothing was stripped")
    }

    /// The network turns fair: it delivers or loses the packets in flight, and no others. Both ends
    /// must finish, and TIME-WAIT must pass.
    fn finish(&mut self, state: &State) -> Option<String> {
        for is_lost in [false, true] {
            let mut state = state.clone();
            if is_lost {
                state.flying.clear();
            }
            let depth = self.path.len();
            let fault = self.finish_fairly(state);
            if fault.is_some() {
                return fault;
            }
            self.path.truncate(depth);
        }
        None
    }

    fn finish_fairly(&mut self, mut state: State) -> Option<String> {
        let mut passed = Vec::new();
        for _ in 0..PATIENCE {
            let hash = hash_of(&state);
            if self.finished.contains(&hash) || self.is_settled(&state) {
                self.finished.extend(passed);
                return None;
            }
            passed.push(hash);
            let fault = if state.flying.is_empty() {
                state.bounds.timers = 1;
                self.take(&mut state, Move::Lose)
            } else {
                self.take(&mut state, Move::Deliver(0))
            };
            if fault.is_some() {
                return fault;
            }
        }
        Some("an end does not finish, though nothing is lost any more".to_owned())
    }

    /// True if both ends are closed, and neither holds TIME-WAIT any more.
    fn is_settled(&self, state: &State) -> bool {
        let is_free = |view: &View| view.is_done && view.records == 0;
        state.flying.is_empty() && self.views(state).into_iter().all(is_free)
    }
}

/// True if a TIME-WAIT that began at that time may be over.
fn is_over(state: &State, since: Instant) -> bool {
    state.now.since(since) >= 2 * MSL
}

/// The hash by which the search remembers a state.
fn hash_of(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Adds a packet to those in flight and keeps them in order, so that states that differ only in the
/// order of their packets are one.
fn insert(flying: &mut Vec<Flying>, packet: Flying) {
    let at = flying.partition_point(|other| *other <= packet);
    flying.insert(at, packet);
}
