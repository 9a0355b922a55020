//! Our sockets: two shards on a wire in memory, each with the tasks of an application. The engine
//! does the same work as in [`super::raw`]; the executor, wakers and streams are added.

mod bulk;
mod pingpong;
mod short;

pub use bulk::Bulk;
pub use pingpong::PingPong;
pub use short::Short;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use lightwait::device::MemoryDevice;
use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::{Handle, Shard};
use lightwait_core::{Config, Instant};

use super::raw::{QUIET, SERVER, Sources, assert_sound};
use super::watch::Watch;

/// Frames on the wire, at most, each way.
const WIRE_FRAMES: usize = 4096;
/// The shards' time that a turn takes by itself.
const TURN: Duration = Duration::from_micros(1);

/// Two shards, the wire between them, and their time.
#[derive(Debug)]
struct Ends {
    client: Shard,
    server: Shard,
    now: Instant,
    watch: Watch,
}

impl Ends {
    fn new([client, server]: [Config; 2]) -> Ends {
        let (near, far) = MemoryDevice::pair(client.device, WIRE_FRAMES);
        let client = Shard::in_made_time(client, Box::new(near)).expect("a sound configuration");
        let server = Shard::in_made_time(server, Box::new(far)).expect("a sound configuration");
        Ends { client, server, now: Instant::from_millis(1000), watch: Watch::new() }
    }

    /// Runs a turn of each end, at `now` or a little after the last one.
    fn turn(&mut self, now: Instant) {
        self.now = now.max(self.now + TURN);
        let begin = self.watch.read();
        self.server.turn(self.now);
        let between = self.watch.read();
        self.client.turn(self.now);
        self.watch.turn_over(begin, between);
    }

    /// Lets time pass until idle connections rest.
    fn keep_quiet(&mut self) {
        let until = self.now + QUIET;
        loop {
            let due = self.handles().map(|end| end.with_host(lightwait_core::Host::deadline));
            let Some(at) = due.into_iter().flatten().min().filter(|at| *at <= until) else { break };
            self.turn(at);
        }
    }

    fn handles(&self) -> [Handle; 2] {
        [self.client.handle(), self.server.handle()]
    }

    fn packets(&self) -> u64 {
        self.handles().iter().map(|end| end.with_host(|host| host.counters().frames_out)).sum()
    }

    fn check(&self) {
        for end in self.handles() {
            end.with_host(assert_sound);
        }
    }
}

/// The state that the tasks of an application share.
#[derive(Debug)]
struct Shared {
    /// Completed conversations, answers or bytes.
    done: Cell<usize>,
    sources: RefCell<Sources>,
}

impl Shared {
    fn new(sources: Sources) -> Rc<Shared> {
        Rc::new(Shared { done: Cell::new(0), sources: RefCell::new(sources) })
    }

    /// Opens a connection from the next source.
    async fn open(&self, shard: &Handle) -> TcpStream {
        let source = self.sources.borrow_mut().take();
        let connected = TcpStream::connect_from(shard, source, SERVER).await;
        connected.expect("a free port")
    }

    fn add(&self, count: usize) {
        self.done.set(self.done.get() + count);
    }
}

/// The server: a task for each connection.
async fn serve<F>(listener: TcpListener, answer: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + 'static,
{
    while let Ok((stream, _)) = listener.accept().await {
        spawn_local(answer(stream));
    }
}
