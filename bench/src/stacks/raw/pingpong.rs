//! Requests on connections that stay, between two bare hosts.

use std::time::Duration;

use lightwait_core::{ConnectionId, Event, Host, Instant, Readiness};

use super::{Application, Ends, OPENED_AT_ONCE, SERVER, Sources, configs, count_on, room_for};
use crate::pingpong::{Pair, Plan};
use crate::stacks::{REQUEST, RESPONSE};

/// The hosts' time that each request takes.
const EXCHANGE: Duration = Duration::from_micros(1);

/// The two hosts, and the requests between them.
#[derive(Debug)]
pub struct PingPong {
    ends: Ends,
    game: Game,
    started: Instant,
    goal: usize,
}

/// Both ends of the application.
#[derive(Debug)]
struct Game {
    sources: Sources,
    /// Connections not yet open, including those that are being opened.
    left: usize,
    opening: usize,
    clients: Vec<ConnectionId>,
    answered: usize,
    client_read: Vec<usize>,
    server_read: Vec<usize>,
    buffer: Vec<u8>,
}

impl Pair for PingPong {
    fn new(plan: &Plan) -> PingPong {
        let room = plan.connections + 16;
        let mut ends =
            Ends::new(configs(1500).map(|config| plan.variant.apply(room_for(config, room))));
        ends.server.host.listen(SERVER, 4096).expect("a free port");
        let mut game = Game {
            sources: Sources::new(0, plan.connections),
            left: plan.connections,
            opening: 0,
            clients: Vec::new(),
            answered: 0,
            client_read: Vec::new(),
            server_read: Vec::new(),
            buffer: vec![0; 4096],
        };
        while game.clients.len() < plan.connections {
            let now = ends.now;
            ends.turn(&mut game, now);
        }
        for &id in &game.clients {
            ask(&mut ends.client.host, ends.now, id);
        }
        let started = ends.now;
        PingPong { ends, game, started, goal: 0 }
    }

    fn exchange(&mut self, count: usize) {
        self.goal += count;
        while self.game.answered < self.goal {
            let now = self.started + EXCHANGE * self.game.answered as u32;
            self.ends.turn(&mut self.game, now);
        }
    }

    fn packets(&self) -> Option<u64> {
        Some(self.ends.frames())
    }

    fn check(&self) {
        self.ends.check();
    }
}

fn ask(host: &mut Host, now: Instant, id: ConnectionId) {
    host.write(now, id, &[b'q'; REQUEST]).expect("room for the question");
}

impl Application for Game {
    fn on_client(&mut self, host: &mut Host, now: Instant, event: Event) {
        let Event::Ready(id, readiness) = event else { return };
        if self.opening > 0 && readiness.contains(Readiness::WRITABLE) {
            self.opening -= 1;
            self.clients.push(id);
        }
        if !readiness.contains(Readiness::READABLE) {
            return;
        }
        let Ok(len) = host.read(now, id, &mut self.buffer) else { return };
        let read = count_on(&mut self.client_read, id);
        *read += len;
        if *read == RESPONSE {
            *read = 0;
            self.answered += 1;
            ask(host, now, id);
        }
    }

    fn on_server(&mut self, host: &mut Host, now: Instant, event: Event) {
        match event {
            Event::Acceptable(listener) => while host.accept(now, listener).is_ok() {},
            Event::Ready(id, readiness) if readiness.contains(Readiness::READABLE) => {
                let Ok(len) = host.read(now, id, &mut self.buffer) else { return };
                let read = count_on(&mut self.server_read, id);
                *read += len;
                if *read == REQUEST {
                    *read = 0;
                    host.write(now, id, &[b'a'; RESPONSE]).expect("room for the answer");
                }
            }
            Event::Ready(..) | Event::Udp(..) | Event::Flow | Event::Addresses => {}
        }
    }

    fn before_client(&mut self, host: &mut Host, now: Instant) {
        while self.left > 0 && self.opening < OPENED_AT_ONCE {
            host.connect(now, self.sources.take(), SERVER).expect("a free port");
            self.left -= 1;
            self.opening += 1;
        }
    }
}
