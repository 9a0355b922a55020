//! Our sockets for any thread, with the application's tasks in tokio's runtime. Everything is on
//! one thread, so that instructions can be counted: the shards have turns by hand, and tokio's
//! tasks run between them. The engine does the same work as in [`super::sockets`]; the crossing,
//! its wakes and tokio's scheduler are added. What the system takes to wake a thread is not.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lightwait::device::MemoryDevice;
use lightwait::driver::Driven;
use lightwait::net::{ServedShard, StackHandle, TcpListener, TcpStream, serve};
use lightwait::shard::{Handle, Shard};
use lightwait_core::{Config, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use super::raw::{OPENED_AT_ONCE, SERVER, Sources, assert_sound, configs, configs_for, room_for};
use super::{REQUEST, RESPONSE};
use crate::{bulk, connections, pingpong};

/// Frames on the wire, at most, each way.
const WIRE_FRAMES: usize = 4096;
/// The shards' time that a turn takes by itself.
const TURN: Duration = Duration::from_micros(1);
/// Bytes of a read or a write of a bulk transfer.
const CHUNK: usize = 64 << 10;

/// Two stacks, the wire between them, their time, and the application's runtime.
struct Ends {
    shards: [ServedShard; 2],
    stacks: [StackHandle; 2],
    handles: [Handle; 2],
    now: Instant,
    /// When counting began.
    started: Instant,
    runtime: Runtime,
    /// Completed conversations, answers or bytes.
    done: Arc<AtomicUsize>,
    goal: usize,
}

impl Ends {
    fn new([client, server]: [Config; 2]) -> Ends {
        let (near, far) = MemoryDevice::pair(client.device, WIRE_FRAMES);
        let make = |config, device| {
            let shard = Shard::in_made_time(config, Box::new(device));
            shard.expect("a sound configuration")
        };
        let (client, server) = (make(client, near), make(server, far));
        let handles = [client.handle(), server.handle()];
        let ((client, client_stack), (server, server_stack)) = (serve(client), serve(server));
        Ends {
            shards: [client, server],
            stacks: [client_stack, server_stack],
            handles,
            now: Instant::from_millis(1000),
            started: Instant::from_millis(1000),
            runtime: Builder::new_current_thread().build().expect("a runtime"),
            done: Arc::default(),
            goal: 0,
        }
    }

    /// Listens, and answers each connection in a task.
    fn serve<F>(&mut self, backlog: usize, answer: impl Fn(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stack = self.stacks[1].clone();
        self.runtime.spawn(async move {
            let listener = TcpListener::bind_with_backlog(&stack, SERVER, backlog).await;
            let listener = listener.expect("a free port");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
        // The listener is there before the first SYN.
        let done = self.done.clone();
        self.runtime.spawn(async move {
            for _ in 0..10 {
                yield_now().await;
            }
            done.store(1, Ordering::Relaxed);
        });
        self.run_until(1, TURN);
        self.begin();
    }

    /// Gives turns to the shards and to the tasks until `goal` are done. Each takes `pace` of the
    /// shards' time.
    fn run_until(&mut self, goal: usize, pace: Duration) {
        // Taken out for the time of the call, since the runtime runs what gives the turns.
        let idle = Builder::new_current_thread().build().expect("a runtime");
        let runtime = std::mem::replace(&mut self.runtime, idle);
        runtime.block_on(async {
            loop {
                let done = self.done.load(Ordering::Relaxed);
                if done >= goal {
                    break;
                }
                let now = self.started + pace * done as u32;
                self.now = now.max(self.now + TURN);
                self.turn();
                yield_now().await;
            }
        });
        self.runtime = runtime;
    }

    fn turn(&mut self) {
        let now = self.now;
        for shard in self.shards.iter_mut().rev() {
            // As on a thread of its own, it sleeps until there is work.
            if Driven::deadline(shard, now).is_some_and(|deadline| deadline <= now) {
                Driven::turn(shard, now).expect("memory does not fail");
            }
        }
    }

    /// Runs until `count` more are done.
    fn run_for(&mut self, count: usize, pace: Duration) {
        self.goal += count;
        self.run_until(self.goal, pace);
    }

    /// Begins to count, from here on.
    fn begin(&mut self) {
        self.done.store(0, Ordering::Relaxed);
        (self.goal, self.started) = (0, self.now);
    }

    fn packets(&self) -> u64 {
        self.handles.iter().map(|end| end.with_host(|host| host.counters().frames_out)).sum()
    }

    fn check(&self) {
        for end in &self.handles {
            end.with_host(assert_sound);
        }
    }
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ends").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Opens a connection from the next source.
async fn open(stack: &StackHandle, sources: &Mutex<Sources>) -> TcpStream {
    let source = sources.lock().expect("no panic").take();
    TcpStream::connect_from(stack, source, SERVER).await.expect("a free port")
}

async fn answer(mut stream: TcpStream) {
    let mut question = [0; REQUEST];
    while stream.read_exact(&mut question).await.is_ok() {
        stream.write_all(&[b'a'; RESPONSE]).await.expect("a client that listens");
    }
}

/// Requests on connections that stay.
#[derive(Debug)]
pub struct PingPong(Ends);

impl pingpong::Pair for PingPong {
    fn new(plan: &pingpong::Plan) -> PingPong {
        let room = plan.connections + 16;
        let mut configs = configs(1500).map(|config| plan.variant.apply(room_for(config, room)));
        // All are opened at once.
        configs[1].limits.syn_cache = room;
        let mut ends = Ends::new(configs);
        ends.serve(room, answer);
        let sources = Arc::new(Mutex::new(Sources::new(0, plan.connections)));
        for _ in 0..plan.connections {
            let (stack, sources, done) =
                (ends.stacks[0].clone(), sources.clone(), ends.done.clone());
            ends.runtime.spawn(async move {
                let mut stream = open(&stack, &sources).await;
                let mut answer = [0; RESPONSE];
                loop {
                    stream.write_all(&[b'q'; REQUEST]).await.expect("a server that listens");
                    stream.read_exact(&mut answer).await.expect("an answer");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        PingPong(ends)
    }

    fn exchange(&mut self, count: usize) {
        self.0.run_for(count, TURN);
    }

    fn packets(&self) -> Option<u64> {
        Some(self.0.packets())
    }

    fn check(&self) {
        self.0.check();
    }
}

/// Bulk transfer.
#[derive(Debug)]
pub struct Bulk(Ends);

impl bulk::Pair for Bulk {
    fn new(plan: &bulk::Plan) -> Bulk {
        let mut configs = configs(plan.mtu);
        configs.iter_mut().for_each(|config| config.device.checksum = !plan.checksum);
        let mut ends = Ends::new(configs);
        let done = ends.done.clone();
        ends.serve(1, move |mut stream| {
            let done = done.clone();
            async move {
                let mut buffer = vec![0; CHUNK];
                while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                    done.fetch_add(len, Ordering::Relaxed);
                }
            }
        });
        let stack = ends.stacks[0].clone();
        ends.runtime.spawn(async move {
            let mut stream = open(&stack, &Mutex::new(Sources::new(0, 1))).await;
            let data = vec![b'd'; CHUNK];
            while stream.write_all(&data).await.is_ok() {}
        });
        Bulk(ends)
    }

    fn send(&mut self, bytes: usize) {
        self.0.run_for(bytes, Duration::ZERO);
    }

    fn check(&self) {
        self.0.check();
    }
}

/// Short connections; the server closes first.
#[derive(Debug)]
pub struct Short {
    ends: Ends,
    conversation: Duration,
}

impl connections::Pair for Short {
    fn new(plan: &connections::Plan) -> Short {
        let mut ends = Ends::new(configs_for(plan));
        ends.serve(4096, |mut stream| async move {
            let mut question = [0; REQUEST];
            if stream.read_exact(&mut question).await.is_ok() {
                stream.write_all(&[b'a'; RESPONSE]).await.expect("a client that listens");
            }
        });
        let idle = Arc::new(Mutex::new(Sources::new(0, plan.idle)));
        for number in 0..OPENED_AT_ONCE.min(plan.idle) {
            let (stack, idle, done) = (ends.stacks[0].clone(), idle.clone(), ends.done.clone());
            let share = (number..plan.idle).step_by(OPENED_AT_ONCE);
            ends.runtime.spawn(async move {
                let mut held = Vec::new();
                for _ in share {
                    held.push(open(&stack, &idle).await);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                std::future::pending::<()>().await;
            });
        }
        ends.run_for(plan.idle, TURN);
        ends.begin();
        let first = idle.lock().expect("no panic").end();
        let sources = Sources::new(first, plan.residents()).at_least(plan.addresses);
        let sources = Arc::new(Mutex::new(sources));
        for _ in 0..plan.at_once {
            let (stack, sources, done) =
                (ends.stacks[0].clone(), sources.clone(), ends.done.clone());
            ends.runtime.spawn(async move {
                let mut answer = [0; 1024];
                loop {
                    let mut stream = open(&stack, &sources).await;
                    stream.write_all(&[b'q'; REQUEST]).await.expect("a server that listens");
                    let mut read = 0;
                    while let len @ 1.. = stream.read(&mut answer).await.expect("an answer") {
                        read += len;
                    }
                    assert_eq!(read, RESPONSE, "the whole answer");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Short { ends, conversation: plan.conversation }
    }

    fn converse(&mut self, count: usize) {
        self.ends.run_for(count, self.conversation);
    }

    fn into_server(self) -> impl Sized {
        self.ends.shards
    }

    fn time_apart(&mut self, _apart: bool) -> Option<[u64; 2]> {
        None
    }

    fn packets(&self) -> Option<u64> {
        Some(self.ends.packets())
    }

    fn time_waits(&self) -> usize {
        self.ends.handles[1].with_host(lightwait_core::Host::time_wait_len)
    }

    fn check(&self) {
        self.ends.check();
    }
}
