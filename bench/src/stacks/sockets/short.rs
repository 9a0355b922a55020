//! Short connections; the server closes first. The server has a task for each conversation, and the
//! client a task for each of those at a time.

use std::rc::Rc;
use std::time::Duration;

use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::Handle;
use lightwait_core::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Ends, Shared, serve};
use crate::connections::{Pair, Plan};
use crate::stacks::raw::{OPENED_AT_ONCE, SERVER, Sources, configs_for};
use crate::stacks::{REQUEST, RESPONSE};

/// The two shards and the conversations between them.
#[derive(Debug)]
pub struct Short {
    ends: Ends,
    shared: Rc<Shared>,
    started: Instant,
    conversation: Duration,
    goal: usize,
}

impl Pair for Short {
    fn new(plan: &Plan) -> Short {
        let mut ends = Ends::new(configs_for(plan));
        let [client, server] = ends.handles();
        let listener = TcpListener::bind_on(&server, SERVER).expect("a free port");
        server.spawn_local(serve(listener, answer));
        let idle = Shared::new(Sources::new(0, plan.idle));
        let openers = OPENED_AT_ONCE.min(plan.idle);
        for number in 0..openers {
            let share = plan.idle / openers + usize::from(number < plan.idle % openers);
            client.spawn_local(hold(client.clone(), idle.clone(), share));
        }
        while idle.done.get() < plan.idle {
            let now = ends.now;
            ends.turn(now);
        }
        if plan.idle > 0 {
            ends.keep_quiet();
        }
        let first = idle.sources.borrow().end();
        let sources = Sources::new(first, plan.residents()).at_least(plan.addresses);
        let shared = Shared::new(sources);
        for _ in 0..plan.at_once {
            client.spawn_local(converse(client.clone(), shared.clone()));
        }
        let started = ends.now;
        Short { ends, shared, started, conversation: plan.conversation, goal: 0 }
    }

    fn into_server(self) -> impl Sized {
        self.ends.server
    }

    fn converse(&mut self, count: usize) {
        self.goal += count;
        while self.shared.done.get() < self.goal {
            let now = self.started + self.conversation * self.shared.done.get() as u32;
            self.ends.turn(now);
        }
    }

    fn time_apart(&mut self, apart: bool) -> Option<[u64; 2]> {
        self.ends.watch.time_apart(apart)
    }

    fn packets(&self) -> Option<u64> {
        Some(self.ends.packets())
    }

    fn time_waits(&self) -> usize {
        self.ends.server.handle().with_host(lightwait_core::Host::time_wait_len)
    }

    fn check(&self) {
        self.ends.check();
    }
}

async fn answer(mut stream: TcpStream) {
    let mut question = [0; REQUEST];
    if stream.read_exact(&mut question).await.is_ok() {
        stream.write_all(&[b'a'; RESPONSE]).await.expect("a client that listens");
    }
}

/// A client: one conversation after the other.
async fn converse(shard: Handle, shared: Rc<Shared>) {
    let mut answer = [0; 1024];
    loop {
        let mut stream = shared.open(&shard).await;
        stream.write_all(&[b'q'; REQUEST]).await.expect("a server that listens");
        let mut read = 0;
        loop {
            match stream.read(&mut answer).await.expect("an answer") {
                0 => break,
                len => read += len,
            }
        }
        assert_eq!(read, RESPONSE, "the whole answer");
        shared.add(1);
    }
}

/// Opens `count` connections and keeps them.
async fn hold(shard: Handle, shared: Rc<Shared>, count: usize) {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        held.push(shared.open(&shard).await);
        shared.add(1);
    }
    std::future::pending::<()>().await;
}
