//! Requests on connections that stay, through our sockets: a task for each, at both ends.

use std::rc::Rc;
use std::time::Duration;

use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::Handle;
use lightwait_core::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Ends, Shared, serve};
use crate::pingpong::{Pair, Plan};
use crate::stacks::raw::{SERVER, Sources, configs, room_for};
use crate::stacks::{REQUEST, RESPONSE};

/// The shards' time that each request takes.
const EXCHANGE: Duration = Duration::from_micros(1);

/// The two shards, and the requests between them.
#[derive(Debug)]
pub struct PingPong {
    ends: Ends,
    shared: Rc<Shared>,
    started: Instant,
    goal: usize,
}

impl Pair for PingPong {
    fn new(plan: &Plan) -> PingPong {
        let room = plan.connections + 16;
        let mut configs = configs(1500).map(|config| plan.variant.apply(room_for(config, room)));
        // All are opened at once.
        configs[1].limits.syn_cache = room;
        let ends = Ends::new(configs);
        let [client, server] = ends.handles();
        let listener = TcpListener::bind_with_backlog(&server, SERVER, room).expect("a free port");
        server.spawn_local(serve(listener, answer));
        let shared = Shared::new(Sources::new(0, plan.connections));
        for _ in 0..plan.connections {
            client.spawn_local(ask(client.clone(), shared.clone()));
        }
        let started = ends.now;
        PingPong { ends, shared, started, goal: 0 }
    }

    fn exchange(&mut self, count: usize) {
        self.goal += count;
        while self.shared.done.get() < self.goal {
            let now = self.started + EXCHANGE * self.shared.done.get() as u32;
            self.ends.turn(now);
        }
    }

    fn packets(&self) -> Option<u64> {
        Some(self.ends.packets())
    }

    fn check(&self) {
        self.ends.check();
    }
}

async fn answer(mut stream: TcpStream) {
    let mut question = [0; REQUEST];
    while stream.read_exact(&mut question).await.is_ok() {
        stream.write_all(&[b'a'; RESPONSE]).await.expect("a client that listens");
    }
}

async fn ask(shard: Handle, shared: Rc<Shared>) {
    let mut stream = shared.open(&shard).await;
    let mut answer = [0; RESPONSE];
    loop {
        stream.write_all(&[b'q'; REQUEST]).await.expect("a server that listens");
        stream.read_exact(&mut answer).await.expect("an answer");
        shared.add(1);
    }
}
