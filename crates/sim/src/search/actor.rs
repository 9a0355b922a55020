//! A host and its application, identified by their inputs. The real engine runs once for each
//! history, and its effects are looked up from then on.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use lightwait_core::flow::Seq;
use lightwait_core::tcp::State;
use lightwait_core::tcp::time_wait::negotiate::Holder;
use lightwait_core::wire::tcp::Flags;
use lightwait_core::{Config, ConnectionId, Host, Instant, ListenerId, Outbox, ReadError, RxFrame};

use super::packet::Packet;

/// A history, by its number.
pub(super) type Node = usize;

/// Which end closes, and when. The client sends a request, and the server an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The server closes after its answer, and the client when it has read that.
    ServerFirst,
    /// The client closes its half after its request, and reads on. The server answers when it has
    /// read the end of that, and closes: like an HTTP server that does not know CLIENT_CLOSE.
    ClientFirst,
    /// The client closes after its request, and the server after its answer, which waits for the
    /// request alone: the two FINs may cross.
    AtOnce,
    /// The client closes after its request. The server has read the end of that and sends nothing.
    Unanswered,
    /// Like `ClientFirst`, but the client closes both halves at once: a mutant of CLIENT_CLOSE.
    ClientLeaves,
}

/// Bytes of a request and of an answer: more than an ISN advances in a moment.
const TEXT: usize = 600;

/// An input to a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Input {
    /// The client opens, from the same port as before.
    Open(Instant),
    Packet(Instant, Packet),
    Time(Instant),
}

/// The visible state of a host.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// When the host has work without another input.
    pub deadline: Option<Instant>,
    /// Its connection is closed, or was not opened.
    pub is_done: bool,
    /// It has reported an error.
    pub failed: bool,
    /// It has read text of two connections as one's, or text of the previous one.
    pub mixed: bool,
    /// It has read all the text that it should get.
    pub has_all: bool,
    /// Records in TIME-WAIT.
    pub records: usize,
    /// When the first record of its connection was made.
    pub held_since: Option<Instant>,
    /// Its second connection has been established.
    pub is_again: bool,
    /// By agreement this host holds TIME-WAIT.
    pub relies_on_us: bool,
    /// By agreement the peer holds TIME-WAIT.
    pub relies_on_peer: bool,
    /// How many of its connections have agreed on a holder at some time.
    pub agreed: u64,
    /// The end of what its connection has sent.
    pub sent_to: Option<Seq>,
}

/// A history's last input, and its effect.
#[derive(Debug)]
struct Entry {
    before: Option<Node>,
    input: Option<Input>,
    sent: Rc<[Packet]>,
    view: View,
}

/// A host with its application.
#[derive(Debug)]
pub struct Actor {
    side: usize,
    config: Config,
    order: Order,
    entries: Vec<Entry>,
    after: HashMap<(Node, Input), Node>,
}

impl Actor {
    /// The client (0) or the server (1).
    pub(super) fn new(side: usize, config: Config, order: Order) -> Actor {
        let view = View::default();
        let root = Entry { before: None, input: None, sent: Rc::default(), view };
        let (entries, after) = (vec![root], HashMap::new());
        Actor { side, config, order, entries, after }
    }

    /// The history without inputs.
    pub(super) fn root(&self) -> Node {
        0
    }

    /// Histories that the engine has run.
    pub(super) fn steps(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn view(&self, node: Node) -> &View {
        &self.entries[node].view
    }

    /// The history that goes on with `input`, and the packets that the host then sends.
    pub(super) fn after(&mut self, node: Node, input: Input) -> (Node, Rc<[Packet]>) {
        let key = (node, input);
        if let Some(next) = self.after.get(&key) {
            return (*next, self.entries[*next].sent.clone());
        }
        let mut history = vec![&key.1];
        let mut at = node;
        while let Entry { before: Some(before), input: Some(input), .. } = &self.entries[at] {
            history.push(input);
            at = *before;
        }
        let mut life = Life::new(self.side, self.config.clone(), self.order);
        let mut sent = Vec::new();
        for input in history.into_iter().rev() {
            sent = life.live(input);
        }
        let view = life.view();
        let (next, sent): (_, Rc<[Packet]>) = (self.entries.len(), sent.into());
        let input = Some(key.1.clone());
        self.entries.push(Entry { before: Some(node), input, sent: sent.clone(), view });
        self.after.insert(key, next);
        (next, sent)
    }
}

/// One run of the real host with its application.
struct Life {
    side: usize,
    order: Order,
    host: Host,
    now: Instant,
    listener: Option<ListenerId>,
    id: Option<ConnectionId>,
    /// Connections begun.
    count: u8,
    read: Vec<u8>,
    said: bool,
    closed: bool,
    at_end: bool,
    view: View,
}

impl Life {
    fn new(side: usize, config: Config, order: Order) -> Life {
        let mut host = Host::new(config).expect("the configuration makes a host");
        let any = "0.0.0.0:80".parse().expect("an address");
        let listener = (side == 1).then(|| host.listen(any, 2).expect("the port is free"));
        Life {
            side,
            order,
            host,
            now: Instant::ZERO,
            listener,
            id: None,
            count: 0,
            read: Vec::new(),
            said: false,
            closed: false,
            at_end: false,
            view: View { is_done: false, has_all: true, ..View::default() },
        }
    }

    fn view(mut self) -> View {
        self.view.deadline = self.host.deadline();
        self.view.records = self.host.time_wait_len();
        self.view.agreed = self.host.counters().negotiation_agreed;
        self.view
    }

    /// Takes the input, lets the application act, and returns the packets that the host sends.
    fn live(&mut self, input: &Input) -> Vec<Packet> {
        match input {
            Input::Open(now) => {
                self.now = *now;
                self.open();
            }
            Input::Packet(now, packet) => {
                self.now = *now;
                self.host.on_frame(self.now, RxFrame::plain(packet.bytes()));
            }
            Input::Time(now) => self.now = *now,
        }
        self.host.on_time(self.now);
        let mut sent = Vec::new();
        loop {
            let acted = self.act();
            self.look();
            let mut outbox = Outbox::new(64);
            self.host.emit(self.now, &mut outbox);
            let mut bytes = Vec::new();
            let before = sent.len();
            while let Some(frame) = outbox.take() {
                bytes.clear();
                frame.complete_to(&mut bytes);
                let packet = Packet::new(&bytes);
                self.note_sent(&packet);
                sent.push(packet);
            }
            while self.host.event().is_some() {}
            if !acted && sent.len() == before {
                return sent;
            }
        }
    }

    fn note_sent(&mut self, packet: &Packet) {
        let (end, before) = (packet.end(), self.view.sent_to);
        let goes_on = before.is_none_or(|before| end.after(before));
        if goes_on && self.id.is_some() && !packet.flags().contains(Flags::RST) {
            self.view.sent_to = Some(end);
        }
    }

    /// Notes the state of the host.
    fn look(&mut self) {
        if self.host.time_wait_len() > 0 {
            self.view.held_since.get_or_insert(self.now);
        }
        // It may close at once, and is never seen in ESTABLISHED.
        let before = [State::SynSent, State::SynReceived, State::Closed];
        let is_established = |id| !before.contains(&self.host.state(id));
        self.view.is_again |= self.count == 2 && self.id.is_some_and(is_established);
    }

    fn open(&mut self) {
        let [local, remote] = ends();
        // Our own TIME-WAIT forbids it: then there is no second connection.
        if let Ok(id) = self.host.connect(self.now, local, remote) {
            self.begin(id);
        }
    }

    fn begin(&mut self, id: ConnectionId) {
        self.id = Some(id);
        self.count += 1;
        self.read.clear();
        (self.said, self.closed, self.at_end) = (false, false, false);
        (self.view.is_done, self.view.failed, self.view.has_all) = (false, false, true);
        (self.view.relies_on_us, self.view.relies_on_peer) = (false, false);
        (self.view.held_since, self.view.sent_to) = (None, None);
    }

    /// One action of the application; false if it has none.
    fn act(&mut self) -> bool {
        let Some(id) = self.id else { return self.accept() };
        let state = self.host.state(id);
        if matches!(state, State::SynSent | State::SynReceived) {
            return false;
        }
        if let Ok(info) = self.host.info(id)
            && matches!(state, State::Established | State::CloseWait)
        {
            self.view.relies_on_us = info.holder == Holder::Ourselves;
            self.view.relies_on_peer = info.holder == Holder::Peer;
        }
        if self.closed && self.leaves() {
            return self.end_unwatched(id);
        }
        self.take_text(id) || self.speak(id) || self.end(id, state)
    }

    fn accept(&mut self) -> bool {
        let listener = self.listener;
        let accepted = listener.and_then(|it| self.host.accept(self.now, it).ok());
        accepted.map(|id| self.begin(id)).is_some()
    }

    fn take_text(&mut self, id: ConnectionId) -> bool {
        let mut buffer = [0; 2 * TEXT];
        match self.host.read(self.now, id, &mut buffer) {
            Ok(0) => !core::mem::replace(&mut self.at_end, true),
            Ok(len) => {
                self.read.extend_from_slice(&buffer[..len]);
                let own = self.letter(1 - self.side);
                // A server's second connection may be the client's first that it hears of.
                let is_first_heard = self.side == 1 && self.count == 1;
                let first = self.read.first().copied();
                let expected = if is_first_heard { first } else { Some(own) };
                self.view.mixed |= self.read.iter().any(|byte| Some(*byte) != expected);
                true
            }
            Err(ReadError::WouldBlock) => false,
            Err(_) => {
                self.view.failed = true;
                false
            }
        }
    }

    /// The byte that fills the text of a side in this connection.
    fn letter(&self, side: usize) -> u8 {
        [b'A', b'a'][side] + (self.count - 1)
    }

    /// Writes the text, and closes when it is time for that.
    fn speak(&mut self, id: ConnectionId) -> bool {
        let has_request = self.read.len() >= TEXT;
        let may_say = match (self.side, self.order) {
            (0, _) => true,
            (_, Order::ServerFirst | Order::AtOnce) => has_request,
            (_, Order::ClientFirst | Order::ClientLeaves) => has_request && self.at_end,
            (_, Order::Unanswered) => false,
        };
        if may_say && !self.said {
            self.said = true;
            let text = [self.letter(self.side); TEXT];
            let written = self.host.write(self.now, id, &text);
            self.view.failed |= written != Ok(TEXT);
            return true;
        }
        let is_time = match (self.side, self.order) {
            (0, Order::ServerFirst) | (1, Order::Unanswered) => self.at_end,
            _ => self.said,
        };
        if !is_time || self.closed {
            return false;
        }
        self.closed = true;
        if self.leaves() {
            self.host.close(self.now, id);
        } else {
            self.view.failed |= self.host.shutdown_write(self.now, id).is_err();
        }
        true
    }

    /// Closes both halves, and reads nothing any more.
    fn leaves(&self) -> bool {
        self.order == Order::ClientLeaves && self.side == 0
    }

    fn end_unwatched(&mut self, id: ConnectionId) -> bool {
        let [local, remote] = ends();
        self.end(id, self.host.state_between(local, remote))
    }

    /// Notes how the connection has ended.
    fn end(&mut self, id: ConnectionId, state: State) -> bool {
        if !matches!(state, State::Closed | State::TimeWait) {
            return false;
        }
        self.view.failed |= self.host.take_error(id).is_some();
        let is_answer = self.side == 0;
        let expected = if is_answer && self.order == Order::Unanswered { 0 } else { TEXT };
        self.view.has_all = self.read.len() == expected;
        self.view.is_done = true;
        self.host.close(self.now, id);
        self.id = None;
        true
    }
}

/// The addresses of the client and of the server.
fn ends() -> [SocketAddr; 2] {
    [([10, 0, 0, 1], 4000).into(), ([10, 0, 0, 2], 80).into()]
}
