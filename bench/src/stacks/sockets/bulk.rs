//! Bulk transfer through our sockets.

use std::rc::Rc;
use std::time::Duration;

use lightwait::local::TcpListener;
use lightwait::shard::Handle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Ends, Shared};
use crate::bulk::{Pair, Plan};
use crate::stacks::raw::{SERVER, Sources, configs};

/// The shards' time that a turn takes.
const TURN: Duration = Duration::from_micros(20);
/// Bytes of a read or a write.
const CHUNK: usize = 64 << 10;

/// The two shards, and the bytes from the client to the server.
#[derive(Debug)]
pub struct Bulk {
    ends: Ends,
    shared: Rc<Shared>,
    goal: usize,
}

impl Pair for Bulk {
    fn new(plan: &Plan) -> Bulk {
        let mut configs = configs(plan.mtu);
        configs.iter_mut().for_each(|config| config.device.checksum = !plan.checksum);
        let ends = Ends::new(configs);
        let [client, server] = ends.handles();
        let shared = Shared::new(Sources::new(0, 1));
        let listener = TcpListener::bind_on(&server, SERVER).expect("a free port");
        server.spawn_local(take(listener, shared.clone()));
        client.spawn_local(give(client.clone(), shared.clone()));
        Bulk { ends, shared, goal: 0 }
    }

    fn send(&mut self, bytes: usize) {
        self.goal += bytes;
        while self.shared.done.get() < self.goal {
            let now = self.ends.now + TURN;
            self.ends.turn(now);
        }
    }

    fn check(&self) {
        self.ends.check();
    }
}

async fn give(shard: Handle, shared: Rc<Shared>) {
    let mut stream = shared.open(&shard).await;
    let data = vec![b'd'; CHUNK];
    while stream.write_all(&data).await.is_ok() {}
}

async fn take(listener: TcpListener, shared: Rc<Shared>) {
    let (mut stream, _) = listener.accept().await.expect("a client");
    let mut buffer = vec![0; CHUNK];
    while let Ok(len @ 1..) = stream.read(&mut buffer).await {
        shared.add(len);
    }
}
