//! The work of WebSTONE's clients and their server. A client makes requests, one after the other or
//! several in a burst, and the server closes after the last answer of a connection. Then the client
//! begins again. A request gives the number of bytes of its answer, so that a server needs no
//! files.

use std::net::SocketAddr;
use std::time::Duration;

use lightwait_core::rng::Rng;
use lightwait_core::{ConnectionId, Event, Host, Instant, ReadError, Readiness};

use super::lan::{Application, client, server};

/// The server's port.
pub(crate) const PORT: u16 = 80;
/// Bytes of a request, about those of a browser of the time.
const REQUEST: usize = 100;
/// Bytes of a read or a write.
const CHUNK: usize = 64 << 10;
/// The flag in a request beside the number of bytes: whether the server closes.
const MORE: u8 = 0;
const LAST: u8 = 1;
/// The owner of a connection that its client has closed.
const NOBODY: usize = usize::MAX;
/// The usual seed of what the clients choose.
pub(crate) const SEED: u64 = 1;
/// Bytes of an answer's header: the paper's 1.14 Mb/s contain that much beside 223.8 times 500.
pub(crate) const HEADER: u32 = 137;

/// The clients' behaviour.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Client hosts, and clients on each.
    pub(crate) hosts: usize,
    pub(crate) clients: usize,
    /// Bytes of files, with their weights.
    pub(crate) files: Vec<(u32, u32)>,
    /// Requests of a connection, and the size of a burst before an answer is awaited.
    pub(crate) requests: u32,
    pub(crate) burst: u32,
    /// True if the client announces after its last answer that it closes, and closes, as with
    /// CLIENT_CLOSE; else the server closes.
    pub(crate) client_closes: bool,
    /// The mean rest of a client between two connections; zero means none.
    pub(crate) rest: Duration,
    /// The number of the first of these hosts on the network.
    pub(crate) first: usize,
    /// Addresses that each host uses in turn.
    pub(crate) addresses: u16,
    /// Connections after which clients stop.
    pub(crate) count: u64,
    pub(crate) seed: u64,
}

impl Default for Plan {
    /// One client that requests only headers, without rest.
    fn default() -> Plan {
        Plan {
            hosts: 1,
            clients: 1,
            files: vec![(0, 1)],
            requests: 1,
            burst: 1,
            client_closes: false,
            rest: Duration::ZERO,
            first: 0,
            addresses: 1,
            count: u64::MAX,
            seed: SEED,
        }
    }
}

/// A client's state.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// It connects again at that time.
    Rests(Instant),
    /// It has a connection.
    Asks(Asking),
}

/// The progress on a connection.
#[derive(Clone, Copy, Debug)]
struct Asking {
    /// Requests that were not sent yet.
    requests_left: u32,
    /// Missing bytes of the answers to sent requests, and received bytes.
    bytes_left: u64,
    taken: u64,
    began: Instant,
}

/// A client: its host's number, and its own there.
type Who = (usize, usize);

/// The server's part of a connection.
#[derive(Clone, Debug, Default)]
struct Serving {
    request: Vec<u8>,
    owed: u64,
    is_last: bool,
}

/// The results.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Bytes of answers.
    pub(crate) bytes: u64,
    /// Connections that succeeded.
    pub(crate) connections: u64,
    /// Connections that failed.
    pub(crate) failed: u64,
    /// The bytes, and the seconds, of successful connections, in total.
    pub(crate) taken: u64,
    pub(crate) lasted: f64,
    /// The time of the longest one.
    pub(crate) longest: Duration,
}

/// The clients and the server.
pub(crate) struct Web {
    plan: Plan,
    users: Vec<Vec<Doing>>,
    /// The owner of each connection, by host and slot.
    owners: Vec<Vec<Option<(ConnectionId, usize)>>>,
    serving: Vec<Serving>,
    sources: Vec<u16>,
    begun: u64,
    pub(crate) done: Done,
    rng: Rng,
    buffer: Vec<u8>,
    weight: u32,
}

impl Web {
    /// Clients that begin at `now`, or within a rest after it.
    pub(crate) fn new(plan: Plan, now: Instant) -> Web {
        let mut rng = Rng::from_seed(plan.seed);
        let users = (0..plan.hosts).map(|_| {
            let user = |_| Doing::Rests(now + plan.rest.mul_f64(2.0 * rng.unit()));
            (0..plan.clients).map(user).collect()
        });
        Web {
            users: users.collect(),
            owners: vec![Vec::new(); plan.hosts],
            serving: Vec::new(),
            sources: vec![0; plan.hosts],
            begun: 0,
            done: Done::default(),
            weight: plan.files.iter().map(|file| file.1).sum(),
            buffer: vec![b'w'; CHUNK],
            rng,
            plan,
        }
    }

    /// Adds `count` connections; all clients continue from `now` on.
    pub(crate) fn go_on(&mut self, count: u64, now: Instant) {
        self.plan.count = self.begun + count;
        for user in self.users.iter_mut().flatten() {
            if matches!(user, Doing::Rests(_)) {
                *user = Doing::Rests(now);
            }
        }
    }

    /// True if all planned connections are over.
    pub(crate) fn is_over(&self) -> bool {
        self.begun >= self.plan.count && self.done.connections + self.done.failed >= self.begun
    }

    fn draw(&mut self) -> u32 {
        let mut at = self.rng.below(self.weight);
        for &(bytes, weight) in &self.plan.files {
            if at < weight {
                return bytes;
            }
            at -= weight;
        }
        unreachable!("the weights are summed up")
    }

    fn asking(&mut self, (number, user): Who) -> Option<&mut Asking> {
        match &mut self.users[number][user] {
            Doing::Asks(asking) => Some(asking),
            Doing::Rests(_) => None,
        }
    }

    /// The client sends the next burst of requests.
    fn ask(&mut self, who: Who, host: &mut Host, now: Instant, id: ConnectionId) {
        let Some(&mut Asking { requests_left, .. }) = self.asking(who) else { return };
        let burst = self.plan.burst.min(requests_left);
        let (mut text, mut bytes_left) = (Vec::with_capacity(burst as usize * REQUEST), 0);
        for request in 0..burst {
            let bytes = self.draw() + HEADER;
            bytes_left += u64::from(bytes);
            let begin = text.len();
            text.extend_from_slice(&bytes.to_be_bytes());
            let is_last = request + 1 == requests_left && !self.plan.client_closes;
            text.push(if is_last { LAST } else { MORE });
            text.resize(begin + REQUEST, b'r');
        }
        let written = host.write(now, id, &text);
        assert_eq!(written, Ok(text.len()), "room for a burst of requests");
        if let Some(asking) = self.asking(who) {
            asking.requests_left -= burst;
            asking.bytes_left = bytes_left;
        }
    }

    /// The client reads arrived data.
    fn take(&mut self, who: Who, host: &mut Host, now: Instant, id: ConnectionId) {
        loop {
            let read = host.read(now, id, &mut self.buffer);
            let Some(asking) = self.asking(who) else { return };
            match read {
                Err(ReadError::WouldBlock) => return,
                Ok(len @ 1..) => {
                    asking.bytes_left = asking.bytes_left.saturating_sub(len as u64);
                    asking.taken += len as u64;
                    let (is_answered, is_last) =
                        (asking.bytes_left == 0, asking.requests_left == 0);
                    self.done.bytes += len as u64;
                    match (is_answered, is_last) {
                        (true, false) => self.ask(who, host, now, id),
                        (true, true) if self.plan.client_closes => {
                            return self.close_first(who, host, now, id);
                        }
                        _ => {}
                    }
                }
                Ok(_) | Err(_) => {
                    let is_whole =
                        read == Ok(0) && asking.bytes_left + u64::from(asking.requests_left) == 0;
                    let asking = *asking;
                    host.close(now, id);
                    return self.end(who, now, is_whole.then_some(asking));
                }
            }
        }
    }

    /// The client's announcement: it wants no answer, closes, and goes on to the next connection.
    fn close_first(&mut self, who: Who, host: &mut Host, now: Instant, id: ConnectionId) {
        let mut text = [b'r'; REQUEST];
        text[..5].copy_from_slice(&[0, 0, 0, 0, LAST]);
        let written = host.write(now, id, &text);
        assert_eq!(written, Ok(REQUEST), "room for a request");
        host.shutdown_write(now, id).expect("it is open");
        self.owners[who.0][id.index()] = Some((id, NOBODY));
        let asking = self.asking(who).copied();
        self.end(who, now, asking);
    }

    /// Ends a connection, with its progress if it succeeded.
    fn end(&mut self, (number, user): Who, now: Instant, asking: Option<Asking>) {
        match asking {
            Some(Asking { began, taken, .. }) => {
                let took = now.since(began);
                self.done.connections += 1;
                self.done.taken += taken;
                self.done.lasted += took.as_secs_f64();
                self.done.longest = self.done.longest.max(took);
            }
            None => self.done.failed += 1,
        }
        // The rest is exponentially distributed.
        let rest = self.plan.rest.mul_f64(-(1.0 - self.rng.unit()).ln());
        self.users[number][user] = Doing::Rests(now + rest);
    }

    fn serving(&mut self, id: ConnectionId) -> &mut Serving {
        if id.index() >= self.serving.len() {
            self.serving.resize(id.index() + 1, Serving::default());
        }
        &mut self.serving[id.index()]
    }

    /// The server reads requests, and answers as far as there is room.
    fn serve(&mut self, host: &mut Host, now: Instant, id: ConnectionId) {
        let mut text = [0; 10 * REQUEST];
        while let Ok(len @ 1..) = host.read(now, id, &mut text) {
            let serving = self.serving(id);
            serving.request.extend_from_slice(&text[..len]);
            while let Some((request, rest)) = serving.request.split_at_checked(REQUEST) {
                let bytes = [request[0], request[1], request[2], request[3]];
                serving.owed += u64::from(u32::from_be_bytes(bytes));
                serving.is_last |= request[4] != MORE;
                serving.request = rest.to_vec();
            }
        }
        self.serving(id);
        let Web { serving, buffer, .. } = self;
        let serving = &mut serving[id.index()];
        while serving.owed > 0 {
            let len = (serving.owed as usize).min(CHUNK);
            match host.write(now, id, &buffer[..len]) {
                Ok(written @ 1..) => serving.owed -= written as u64,
                Ok(_) | Err(_) => return,
            }
        }
        if std::mem::take(&mut serving.is_last) {
            host.close(now, id);
        }
    }
}

/// Drops data on a connection that the client has closed, until the server's FIN.
fn discard(host: &mut Host, now: Instant, id: ConnectionId) {
    let mut text = [0; REQUEST];
    loop {
        match host.read(now, id, &mut text) {
            Ok(1..) => {}
            Err(ReadError::WouldBlock) => return,
            Ok(_) | Err(_) => return host.close(now, id),
        }
    }
}

impl Application for Web {
    fn on_server(&mut self, host: &mut Host, now: Instant, event: Event) {
        match event {
            Event::Acceptable(listener) => {
                while let Ok(id) = host.accept(now, listener) {
                    *self.serving(id) = Serving::default();
                    self.serve(host, now, id);
                }
            }
            Event::Ready(id, _) => self.serve(host, now, id),
            Event::Udp(..) | Event::Flow | Event::Addresses => {}
        }
    }

    fn on_client(&mut self, number: usize, host: &mut Host, now: Instant, event: Event) {
        let Event::Ready(id, readiness) = event else { return };
        let owner = self.owners[number].get(id.index()).copied().flatten();
        let Some((_, user)) = owner.filter(|(named, _)| *named == id) else { return };
        if user == NOBODY {
            return discard(host, now, id);
        }
        let who = (number, user);
        let requests = self.plan.requests;
        let Some(&mut Asking { requests_left, .. }) = self.asking(who) else { return };
        let is_new = requests_left == requests;
        if readiness.contains(Readiness::CLOSED) && is_new {
            host.close(now, id);
            return self.end(who, now, None);
        }
        if readiness.contains(Readiness::WRITABLE) && is_new {
            self.ask(who, host, now, id);
        }
        if readiness.contains(Readiness::READABLE) || readiness.contains(Readiness::CLOSED) {
            self.take(who, host, now, id);
        }
    }

    fn before_client(&mut self, number: usize, host: &mut Host, now: Instant) -> Option<Instant> {
        let mut next = None;
        for user in 0..self.users[number].len() {
            let Doing::Rests(until) = self.users[number][user] else { continue };
            if self.begun >= self.plan.count {
                continue;
            }
            if until > now {
                next = Some(next.map_or(until, |next: Instant| next.min(until)));
                continue;
            }
            let source = &mut self.sources[number];
            *source = (*source + 1) % self.plan.addresses;
            let local = SocketAddr::new(client(self.plan.first + number, *source + 1), 0);
            self.begun += 1;
            let Ok(id) = host.connect(now, local, server(PORT)) else {
                self.end((number, user), now, None);
                continue;
            };
            let owners = &mut self.owners[number];
            if id.index() >= owners.len() {
                owners.resize(id.index() + 1, None);
            }
            owners[id.index()] = Some((id, user));
            self.users[number][user] = Doing::Asks(Asking {
                requests_left: self.plan.requests,
                bytes_left: 0,
                taken: 0,
                began: now,
            });
        }
        next
    }
}
