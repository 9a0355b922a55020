//! In memory: each core has a shard of the server and a client stack of its own, joined by a wire.
//! Frames are IP packets of 1500 bytes at most, with checksums computed and verified.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use lightwait::device::{Device, MemoryDevice};
use lightwait::driver::{self, SPIN, Stop};
use lightwait::local::TcpStream;
use lightwait::rt;
use lightwait::shard::{Handle, Shard};
use lightwait::shards::{self, Cores, Seat};
use lightwait_core::flow::Steering;
use lightwait_core::{Capabilities, Config, Medium};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Barrier;

use super::server::Served;
use super::sources::{self, CLIENT, SERVER, SOURCES};
use super::{Outcome, PATIENCE, Part, Plan, REQUEST_LEN, Workload};

const WIRE: Capabilities = Capabilities::plain(Medium::Ip, 1500);
/// Frames on a wire, at most, each way.
const WIRE_FRAMES: usize = 1024;
/// Ends of connections that a client uses in turn. They are found before the window, since finding
/// one takes longer the more shards there are. Two million connections a second use one again after
/// its TIME-WAIT.
const ENDS: usize = 1 << 18;
/// The prefix of the only link: clients and server need no gateway.
const PREFIX_LEN: u8 = 8;

/// Runs the plan.
///
/// # Errors
/// If a client's request fails, or the kernel refuses a thread.
pub fn run(plan: &Plan) -> io::Result<Outcome> {
    run_on(plan, |_, wire| Box::new(wire))
}

/// Runs the plan on devices that `device` makes of each shard's wire.
pub(super) fn run_on(
    plan: &Plan,
    device: impl Fn(u16, MemoryDevice) -> Box<dyn Device> + Sync,
) -> io::Result<Outcome> {
    let mut host = super::host(WIRE, plan.shards, lightwait::stack::secret()?);
    host.addresses = vec![sources::on_link(*SERVER.ip(), PREFIX_LEN)];
    let start = Arc::new(Barrier::new(plan.shards.into()));
    let stops: Vec<Stop> = (0..plan.shards).map(|_| Stop::new()).collect();
    let parts = Mutex::new(vec![Part::default(); plan.shards.into()]);
    let work = |seat: Seat, ()| {
        let index = usize::from(seat.member().index);
        let part = run_part(plan, &host, seat, &start, &stops[index], &device)?;
        parts.lock().unwrap_or_else(PoisonError::into_inner)[index] = part;
        Ok::<_, io::Error>(())
    };
    let stop = || stops.iter().for_each(Stop::set);
    shards::threads(vec![(); plan.shards.into()], Cores::Pinned, work, stop)?;
    Ok(Outcome { parts: parts.into_inner().unwrap_or_else(PoisonError::into_inner) })
}

/// Runs a shard and its client on this thread.
fn run_part(
    plan: &Plan,
    host: &Config,
    seat: Seat,
    start: &Arc<Barrier>,
    stop: &Stop,
    device: &impl Fn(u16, MemoryDevice) -> Box<dyn Device>,
) -> io::Result<Part> {
    let member = seat.member();
    let (near, far) = MemoryDevice::pair(WIRE, WIRE_FRAMES);
    let server = Shard::new(host.member(member), device(member.index, far))?.seated(seat);
    let served = Served::start(&server.handle(), plan.workload)?;
    let own = sources::on_link(CLIENT, PREFIX_LEN);
    let mut config = Config::new(WIRE, own, lightwait::stack::secret()?);
    config.ranges.push(SOURCES.parse().expect("a range of addresses"));
    let client = Shard::new(config, Box::new(near))?;
    let ends = sources::owned_by(Steering::new(&host.secret, member.of), member.index);
    let clients = Rc::new(Clients {
        shard: client.handle(),
        workload: plan.workload,
        ends: ends.take(ENDS).map(SocketAddr::V4).collect(),
        next: Cell::new(0),
        asked: Cell::new(0),
        answered: Cell::new(0),
        is_over: Cell::new(false),
    });
    let outcome = Rc::new(Cell::new(None));
    let (told, end, start, plan, all) =
        (outcome.clone(), stop.clone(), start.clone(), *plan, clients.clone());
    client.handle().spawn_local(async move {
        start.wait().await;
        let busy = all.start();
        let window = served.window(&plan).await;
        all.is_over.set(true);
        told.set(Some(ended(busy).await.map(|()| window)));
        end.set();
    });
    let handle = server.handle();
    driver::run(&mut [client, server], stop, SPIN)?;
    // Another shard's failure stops this one before its end; `threads` returns that failure.
    let window = outcome.take().unwrap_or_else(|| Err(io::Error::other("stopped")))?;
    let part = handle.with_host(|host| Part::of(window, host));
    Ok(Part { asked: clients.asked.get(), answered: clients.answered.get(), ..part })
}

type Busy = Vec<lightwait::executor::JoinHandle<io::Result<()>>>;

/// Waits until all clients have ended. Returns their first failure.
async fn ended(busy: Busy) -> io::Result<()> {
    for client in busy {
        let ended = rt::timeout(PATIENCE, client).await;
        let ended = ended.map_err(|_| io::Error::other(format!("no answer in {PATIENCE:?}")))?;
        ended.map_err(io::Error::other)??;
    }
    Ok(())
}

/// The clients of a shard.
struct Clients {
    shard: Handle,
    workload: Workload,
    ends: Vec<SocketAddr>,
    /// The place of the next end.
    next: Cell<usize>,
    asked: Cell<u64>,
    answered: Cell<u64>,
    /// Each ends after its present request.
    is_over: Cell<bool>,
}

impl Clients {
    /// Starts as many as the workload has busy connections.
    fn start(self: &Rc<Self>) -> Busy {
        let start = |_| {
            let client = self.clone();
            self.shard.spawn_local(async move { client.work().await })
        };
        (0..self.workload.connections()).map(start).collect()
    }

    /// Asks until it is over, on one connection or on a new one each time.
    async fn work(&self) -> io::Result<()> {
        let mut buffer = vec![0; self.workload.answer_len().min(1 << 16)];
        loop {
            let end = self.ends[self.next.replace((self.next.get() + 1) % self.ends.len())];
            let mut stream =
                TcpStream::connect_from(&self.shard, end, SocketAddr::V4(SERVER)).await?;
            loop {
                self.ask(&mut stream, &mut buffer).await?;
                if self.workload.closes() || self.is_over.get() {
                    break;
                }
            }
            if self.workload.closes() && stream.read(&mut buffer).await? > 0 {
                return Err(io::Error::other("an answer was too long"));
            }
            if self.is_over.get() {
                return Ok(());
            }
        }
    }

    /// Sends a request and receives its answer.
    async fn ask(&self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
        self.asked.set(self.asked.get() + 1);
        stream.write_all(&[b'?'; REQUEST_LEN]).await?;
        let mut left = self.workload.answer_len();
        while left > 0 {
            let room = buffer.len().min(left);
            match stream.read(&mut buffer[..room]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => left -= len,
            }
        }
        self.answered.set(self.answered.get() + 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_shard_answers_all_and_hands_nothing_over() {
        for workload in Workload::ALL {
            let time = Duration::from_millis(30);
            let plan = Plan { shards: 2, workload, threads: 0, warm_up: time, window: time };
            let outcome = run(&plan).unwrap();
            assert_eq!(outcome.parts.len(), 2);
            for part in &outcome.parts {
                // Each client asks at least once, however busy the machine is.
                assert!(part.asked >= workload.connections() as u64, "{workload:?}: {part:?}");
                assert_eq!(part.asked, part.answered, "{workload:?}");
                // It may be shorter than planned: a sleep counts from when the turn began.
                assert!(!part.window.elapsed.is_zero());
                assert!(part.window.answers <= part.answered);
            }
            assert_eq!((outcome.handed_over(), outcome.lost()), (0, 0), "{workload:?}");
        }
    }
}
