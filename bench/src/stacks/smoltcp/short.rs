//! Short connections over smoltcp; the server closes first.

use std::collections::VecDeque;
use std::time::Duration;

use ::smoltcp::iface::SocketHandle;
use ::smoltcp::socket::tcp::{Socket, State};

use super::{Application, End, Ends, SERVER, Sources, new_socket};
use crate::connections::{Pair, Plan};
use crate::stacks::{REQUEST, RESPONSE};

/// A request and an answer fit.
const BUFFER: usize = 1024;
/// Connections that become residents together.
const RESIDENTS_AT_ONCE: usize = 64;

/// The two ends and the conversations between them.
pub struct Short {
    ends: Ends,
    talk: Talk,
    started: Duration,
    conversation: Duration,
    goal: usize,
}

/// Both ends of the conversations.
#[derive(Default)]
struct Talk {
    at_once: usize,
    role: Role,
    open: usize,
    finished: usize,
    sources: Sources,
    /// Sockets of the client in use, with whether each has sent its request, or its last data; and
    /// closed sockets, or ones about to close.
    used: Vec<(SocketHandle, bool)>,
    unused: Vec<SocketHandle>,
    /// Sockets of the server that listen, or that are in use, with whether each has sent its last
    /// data.
    active: Vec<(SocketHandle, bool)>,
    /// Sockets in TIME-WAIT, oldest first.
    time_waits: VecDeque<SocketHandle>,
    /// Inactive sockets, taken out of their sets, the client's and the server's.
    settled: [Vec<Socket<'static>>; 2],
}

/// The fate of a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Role {
    /// It serves a conversation, and its server's socket stays in the set.
    #[default]
    Conversation,
    /// It serves a conversation, but its server's socket leaves the set in TIME-WAIT.
    TimeWait,
    /// It is established, and leaves the set at both ends.
    Idle,
}

impl Pair for Short {
    fn new(plan: &Plan) -> Short {
        let idle = settle(Role::Idle, plan.idle);
        let time_wait = settle(Role::TimeWait, plan.residents());
        let mut ends = Ends::new(1500, true);
        let mut talk = Talk::default();
        ends.client.make_room(plan.idle + 2 * plan.at_once);
        ends.server.make_room(plan.idle + plan.residents() + 2 * plan.at_once);
        let [clients, servers] = idle;
        // Adding to a set walks over every socket in it.
        for (client, server) in clients.into_iter().zip(servers) {
            ends.client.sockets.add(client);
            ends.server.sockets.add(server);
        }
        for socket in time_wait.into_iter().flatten() {
            talk.time_waits.push_back(ends.server.sockets.add(socket));
        }
        talk.add_sockets(&mut ends, plan.at_once);
        // The residents in TIME-WAIT have used the first tuples, and some more were in use when
        // they were complete: a tuple in TIME-WAIT cannot be opened again.
        talk.sources.next = (plan.residents() + 2 * RESIDENTS_AT_ONCE) as u32 % 240_000;
        let started = ends.now;
        Short { ends, talk, started, conversation: plan.conversation, goal: 0 }
    }

    const BEGINS_FULL: bool = true;

    fn into_server(self) -> impl Sized {
        self.ends.server
    }

    fn converse(&mut self, count: usize) {
        self.goal += count;
        while self.talk.finished < self.goal {
            let now = self.started + self.conversation * self.talk.finished as u32;
            self.ends.turn(&mut self.talk, now);
        }
    }

    fn time_apart(&mut self, apart: bool) -> Option<[u64; 2]> {
        self.ends.watch.time_apart(apart)
    }

    fn packets(&self) -> Option<u64> {
        Some(self.ends.packets())
    }

    fn time_waits(&self) -> usize {
        self.talk.time_waits.len()
    }

    fn check(&self) {}

    fn warm_up(plan: &Plan) -> usize {
        // The residents exist already.
        4 * plan.at_once
    }
}

/// Opens `count` connections in small sets, where that is quick. Returns their sockets, the
/// client's and the server's, in the state after the conversation.
fn settle(role: Role, count: usize) -> [Vec<Socket<'static>>; 2] {
    let mut ends = Ends::new(1500, true);
    let mut talk = Talk { role, ..Talk::default() };
    talk.sources.next = if role == Role::Idle { 240_000 } else { 0 };
    talk.add_sockets(&mut ends, RESIDENTS_AT_ONCE.min(count));
    while talk.settled[1].len() < count {
        let now = ends.now;
        ends.turn(&mut talk, now);
    }
    talk.settled.iter_mut().for_each(|sockets| sockets.truncate(count));
    talk.settled
}

impl Talk {
    /// Adds sockets for `at_once` conversations at a time, and as many that are about to close.
    fn add_sockets(&mut self, ends: &mut Ends, at_once: usize) {
        self.at_once = at_once;
        for _ in 0..2 * at_once {
            self.unused.push(ends.client.sockets.add(new_socket(BUFFER)));
            let handle = ends.server.sockets.add(new_socket(BUFFER));
            ends.server.listen(handle);
            self.active.push((handle, false));
        }
    }

    fn open(&mut self, client: &mut End) {
        while self.open < self.at_once {
            let free = self.unused.iter().position(|handle| !client.socket(*handle).is_open());
            let Some(free) = free else { return };
            let handle = self.unused.swap_remove(free);
            let socket = client.sockets.get_mut::<Socket<'_>>(handle);
            let source = self.sources.take();
            socket.connect(client.interface.context(), SERVER, source).expect("a free socket");
            self.used.push((handle, false));
            self.open += 1;
        }
    }

    /// Puts a new socket in the place of one that becomes inactive.
    fn take_out(&mut self, end: &mut End, handle: SocketHandle, side: usize) -> SocketHandle {
        let ::smoltcp::socket::Socket::Tcp(socket) = end.sockets.remove(handle) else {
            unreachable!("there are no others here");
        };
        self.settled[side].push(socket);
        end.sockets.add(new_socket(BUFFER))
    }

    fn end_one(&mut self, place: usize, handle: SocketHandle) {
        self.used.swap_remove(place);
        self.unused.push(handle);
        self.open -= 1;
        self.finished += 1;
    }
}

impl Application for Talk {
    fn on_client(&mut self, client: &mut End) {
        for place in (0..self.used.len()).rev() {
            let (handle, asked) = self.used[place];
            let socket = client.socket(handle);
            if socket.state() == State::Established && self.role == Role::Idle {
                if asked {
                    let handle = self.take_out(client, handle, 0);
                    self.end_one(place, handle);
                } else {
                    self.used[place].1 = true;
                }
            } else if socket.can_recv() {
                // The answer is read whole, after the server's FIN.
                if socket.recv_queue() == RESPONSE && socket.state() == State::CloseWait {
                    let read = socket.recv(|bytes| (bytes.len(), bytes.len()));
                    assert_eq!(read, Ok(RESPONSE), "the whole answer");
                    socket.close();
                    self.end_one(place, handle);
                }
            } else if socket.state() == State::Established && !asked {
                self.used[place].1 = true;
                socket.send_slice(&[b'q'; REQUEST]).expect("room for the question");
            }
        }
        self.open(client);
    }

    fn on_server(&mut self, server: &mut End) {
        for place in 0..self.active.len() {
            let (handle, is_done) = self.active[place];
            let socket = server.socket(handle);
            let is_over = match self.role {
                Role::Idle => socket.state() == State::Established,
                Role::TimeWait => socket.state() == State::TimeWait,
                Role::Conversation => false,
            };
            match socket.state() {
                _ if is_over && is_done => {
                    let handle = self.take_out(server, handle, 1);
                    self.active[place] = (handle, false);
                    server.listen(handle);
                }
                _ if is_over => self.active[place].1 = true,
                State::Established if socket.recv_queue() == REQUEST => {
                    socket.recv(|bytes| (bytes.len(), ())).expect("the question");
                    socket.send_slice(&[b'a'; RESPONSE]).expect("room for the answer");
                    socket.close();
                }
                State::TimeWait => {
                    self.time_waits.push_back(handle);
                    if let Some(oldest) = self.time_waits.pop_front() {
                        self.active[place] = (oldest, false);
                        server.listen(oldest);
                    }
                }
                _ => {}
            }
        }
    }
}
