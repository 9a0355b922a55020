//! Short connections between two bare hosts; the server closes first.

use std::net::SocketAddr;
use std::time::Duration;

use lightwait_core::{ConnectionId, Event, Host, Instant, ListenerId, Readiness};

use super::{Application, Ends, OPENED_AT_ONCE, QUIET, Sources, configs_for, count_on};
use crate::connections::{Pair, Plan};
use crate::stacks::{REQUEST, RESPONSE};

/// The hosts' time for each idle connection that opens: a hundred thousand open in a second.
const OPENING: Duration = Duration::from_micros(10);
/// The hosts' time for each connection that the server closes, so that few are whole at a time.
const LEAVING: Duration = Duration::from_millis(1);

/// The two hosts and the conversations between them.
#[derive(Debug)]
pub struct Short {
    ends: Ends,
    talk: Talk,
    /// The hosts' time when the first conversation began, and the time of each.
    started: Instant,
    conversation: Duration,
    /// The number of conversations to finish.
    goal: usize,
}

/// Both ends of the conversations.
#[derive(Debug)]
struct Talk {
    at_once: usize,
    /// Conversations that are not yet open.
    left: usize,
    open: usize,
    finished: usize,
    sources: Sources,
    server: SocketAddr,
    /// Clients send no request: the connections stay as they are.
    is_mute: bool,
    /// The server closes connections that it has accepted.
    leaves: bool,
    /// Bytes read by the client and by the server, by the connection's slot.
    client_read: Vec<usize>,
    server_read: Vec<usize>,
    buffer: Vec<u8>,
}

impl Short {
    /// The server alone, with what connections it has.
    pub fn into_host(self) -> Host {
        self.ends.server.host
    }
}

impl Pair for Short {
    fn new(plan: &Plan) -> Short {
        let (residents, idle) = (plan.residents(), plan.idle);
        let mut ends = Ends::new(configs_for(plan));
        let server = plan.ip.server();
        ends.server.host.listen(server, 4096).expect("a free port");
        let sources = Sources::new(0, idle).over(plan.ip);
        let mut mute = Talk::new(sources, server, OPENED_AT_ONCE);
        (mute.is_mute, mute.leaves, mute.left) = (true, plan.half_closed, idle);
        let opening = if plan.half_closed { LEAVING } else { OPENING };
        let begin = ends.now;
        while mute.finished < idle {
            let now = begin + opening * mute.finished as u32;
            ends.turn(&mut mute, now);
        }
        if idle > 0 {
            ends.pass(&mut mute, QUIET);
        }
        let sources = Sources::new(mute.sources.end(), residents).over(plan.ip);
        let talk = Talk::new(sources.at_least(plan.addresses), server, plan.at_once);
        let started = ends.now;
        Short { ends, talk, started, conversation: plan.conversation, goal: 0 }
    }

    fn into_server(self) -> impl Sized {
        self.ends.server
    }

    fn converse(&mut self, count: usize) {
        // When the last one ends, further ones are in progress, so that their number stays the
        // same.
        self.goal += count;
        while self.talk.finished < self.goal {
            let now = self.started + self.conversation * self.talk.finished as u32;
            self.ends.turn(&mut self.talk, now);
        }
    }

    fn pass(&mut self, time: Duration) -> bool {
        let left = std::mem::take(&mut self.talk.left);
        self.ends.pass(&mut self.talk, time);
        self.talk.left = left;
        self.started = self.ends.now - self.conversation * self.talk.finished as u32;
        true
    }

    fn time_apart(&mut self, apart: bool) -> Option<[u64; 2]> {
        self.ends.watch.time_apart(apart)
    }

    fn packets(&self) -> Option<u64> {
        Some(self.ends.frames())
    }

    fn time_waits(&self) -> usize {
        self.ends.server.host.time_wait_len()
    }

    fn check(&self) {
        self.ends.check();
    }
}

impl Short {
    /// Connections with a control block at the client and at the server.
    pub fn connections(&self) -> [usize; 2] {
        [self.ends.client.host.connections(), self.ends.server.host.connections()]
    }
}

impl Talk {
    fn new(sources: Sources, server: SocketAddr, at_once: usize) -> Talk {
        Talk {
            at_once,
            left: usize::MAX,
            open: 0,
            finished: 0,
            sources,
            server,
            is_mute: false,
            leaves: false,
            client_read: Vec::new(),
            server_read: Vec::new(),
            buffer: vec![0; 4096],
        }
    }

    fn accept(&mut self, host: &mut Host, now: Instant, listener: ListenerId) {
        while let Ok(id) = host.accept(now, listener) {
            if self.leaves {
                host.close(now, id);
            } else if !self.is_mute {
                *count_on(&mut self.server_read, id) = 0;
            }
        }
    }

    fn answer(&mut self, host: &mut Host, now: Instant, id: ConnectionId) {
        let Ok(len) = host.read(now, id, &mut self.buffer) else { return };
        let read = count_on(&mut self.server_read, id);
        *read += len;
        if *read == REQUEST {
            host.write(now, id, &[b'a'; RESPONSE]).expect("room for the answer");
            host.close(now, id);
        }
    }

    fn take_answer(&mut self, host: &mut Host, now: Instant, id: ConnectionId) {
        while let Ok(len) = host.read(now, id, &mut self.buffer) {
            let read = count_on(&mut self.client_read, id);
            *read += len;
            if len == 0 {
                assert_eq!(*read, RESPONSE, "the whole answer");
                host.close(now, id);
                return self.end_one();
            }
        }
    }

    fn end_one(&mut self) {
        self.open -= 1;
        self.finished += 1;
    }
}

impl Application for Talk {
    fn on_client(&mut self, host: &mut Host, now: Instant, event: Event) {
        let Event::Ready(id, readiness) = event else { return };
        if readiness.contains(Readiness::WRITABLE) && self.is_mute {
            self.end_one();
        } else if readiness.contains(Readiness::WRITABLE) {
            *count_on(&mut self.client_read, id) = 0;
            host.write(now, id, &[b'q'; REQUEST]).expect("room for the question");
        }
        if readiness.contains(Readiness::READABLE) && !self.is_mute {
            self.take_answer(host, now, id);
        }
    }

    fn on_server(&mut self, host: &mut Host, now: Instant, event: Event) {
        match event {
            Event::Acceptable(listener) => self.accept(host, now, listener),
            Event::Ready(id, readiness) if readiness.contains(Readiness::READABLE) => {
                self.answer(host, now, id);
            }
            Event::Ready(..) | Event::Udp(..) | Event::Flow | Event::Addresses => {}
        }
    }

    fn before_client(&mut self, host: &mut Host, now: Instant) {
        while self.left > 0 && self.open < self.at_once {
            host.connect(now, self.sources.take(), self.server).expect("a free port");
            self.left -= 1;
            self.open += 1;
        }
    }
}
