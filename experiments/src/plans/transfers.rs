//! The set-up of Cohen & Cohen: a server with files on a disk, and clients each on a path of its
//! own, in virtual time. The server's process is the paper's Procedure 3.2: it reads a block, which
//! takes [`Load::read_time`], writes it, and reads the next one when all of it is in the send
//! buffer.
//!
//! The hosts are ours, unmodified. They have the parameters of the paper's simulator: segments of
//! 512 bytes, an initial window of one, Reno without SACK, no timestamps. Unlike there, the clients
//! delay acknowledgements, as ours do.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use lightwait::local::{Control, TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::config::{Limits, LossDetection, TcpConfig};
use lightwait_core::time::Duration;
use lightwait_sim::Side;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::plan::Failure;
use crate::plans::newreno;
use crate::plans::paths::{self, Way, client, server};

/// Bytes of data in a segment, and in a page of the server's pool.
pub(super) const SEGMENT: u64 = 512;
/// A client's window. The paper does not give it, but its buffer of 32 KB lacks a segment less than
/// once a transfer, so that its windows cannot have been larger.
const WINDOW: u32 = 32 << 10;
/// The interval at which the server's memory is sampled.
const LOOK: Duration = Duration::from_millis(20);
/// The limit of any experiment's world.
const END: Duration = Duration::from_secs(7200);

/// The server's load.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// The paths, with a client at the end of each.
    pub(super) ways: Vec<Way>,
    /// The order of the transfers, as indices of `ways`.
    pub(super) order: Vec<usize>,
    /// The number of transfers at a time.
    pub(super) at_once: usize,
    /// Bytes of a transfer.
    pub(super) bytes: u64,
    /// The time of a file access.
    pub(super) read_time: Duration,
    /// The time of a file access that the server reports to its sockets.
    pub(super) told_read_time: Duration,
    /// Bytes of a file access; `None` if the socket decides.
    pub(super) block: Option<u64>,
}

/// A complete transfer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Transfer {
    pub(super) way: usize,
    /// From the connection's opening to its last byte.
    pub(super) seconds: f64,
    pub(super) misses: u64,
    /// File accesses.
    pub(super) reads: u64,
    /// The time that its first data waited for a buffer.
    pub(super) first_wait_ms: f64,
    /// Its allowance by its rule, and the held memory, in bytes: means over its time.
    pub(super) mean_hiwat: f64,
    pub(super) mean_held: f64,
}

/// Samples of a connection's send buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    count: u64,
    hiwat: u64,
    held: u64,
}

/// The results of one world.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) transfers: Vec<Transfer>,
    /// Pages in use: the mean over the time in which every place was taken.
    pub(super) mean_pages: f64,
    /// Times that a blocked writer was woken for room.
    pub(super) writers_woken: u64,
}

/// The state that the tasks of a world share.
#[derive(Default)]
struct Shared {
    next: Cell<usize>,
    transfers: RefCell<Vec<Transfer>>,
    /// Transfers by the client's address.
    served: RefCell<HashMap<IpAddr, Transfer>>,
    open: RefCell<HashMap<IpAddr, (Control, Looks)>>,
    /// Sums of pages in use at the samples while every place was taken, and the number of samples.
    pages: Cell<(u64, u64)>,
}

/// The TCP parameters of the paper's simulator.
pub(super) fn tcp() -> TcpConfig {
    newreno().with(|tcp| {
        (tcp.timestamps, tcp.sack) = (false, false);
        tcp.congestion.detection = LossDetection::Count;
        tcp.congestion.initial_window = 1;
        tcp.mss_max = SEGMENT as u16;
        tcp.buffers.receive = WINDOW;
        tcp.buffers.receive_max = WINDOW;
    })
}

/// Runs a world to its end, with the given TCP and limits at the server.
pub(super) fn run(
    load: &Load,
    tcp: TcpConfig,
    limits: Limits,
    seed: u64,
) -> Result<Found, Failure> {
    let mut world =
        paths::world(&load.ways, SEGMENT, [(self::tcp(), Limits::default()), (tcp, limits)], seed)?;
    let shared = Rc::new(Shared::default());
    let listener = TcpListener::bind_on(&world.handle(Side::B), server())?;
    world.spawn(Side::B, accept(listener, load.clone(), shared.clone()));
    world.spawn(Side::B, look(load.clone(), shared.clone()));
    let load = Rc::new(load.clone());
    for _ in 0..load.at_once {
        world.spawn(Side::A, fetch(load.clone(), shared.clone()));
    }
    let all = load.order.len();
    world.run_until(END, |_| shared.transfers.borrow().len() == all)?;
    let (sum, looks) = shared.pages.get();
    Ok(Found {
        transfers: shared.transfers.take(),
        mean_pages: sum as f64 / looks.max(1) as f64,
        writers_woken: world.host(Side::B, |host| host.counters().writers_woken),
    })
}

/// Runs one client after the other, while there are transfers.
async fn fetch(load: Rc<Load>, shared: Rc<Shared>) {
    loop {
        let turn = shared.next.get();
        let Some(&way) = load.order.get(turn) else { return };
        shared.next.set(turn + 1);
        let begin = Handle::current().now();
        let got = get(way, turn).await;
        assert_eq!(got.as_ref().ok(), Some(&load.bytes), "{got:?}: every transfer is whole");
        let seconds = Handle::current().now().since(begin).as_secs_f64();
        let served = shared.served.borrow_mut().remove(&client(way)).unwrap_or_default();
        shared.transfers.borrow_mut().push(Transfer { way, seconds, ..served });
    }
}

/// Runs one client, and returns the received bytes.
async fn get(way: usize, turn: usize) -> io::Result<u64> {
    let local = SocketAddr::new(client(way), 10_000 + turn as u16);
    let mut stream = TcpStream::connect_from(&Handle::current(), local, server()).await?;
    let (mut count, mut chunk) = (0, vec![0; 1 << 16]);
    loop {
        match stream.read(&mut chunk).await? {
            0 => return Ok(count),
            read => count += read as u64,
        }
    }
}

async fn accept(listener: TcpListener, load: Load, shared: Rc<Shared>) {
    let load = Rc::new(load);
    while let Ok((stream, peer)) = listener.accept().await {
        let (load, shared) = (load.clone(), shared.clone());
        Handle::current().spawn_local(async move {
            let (client, control) = (peer.ip(), stream.control());
            shared.open.borrow_mut().insert(client, (control, Looks::default()));
            let served = send(stream, &load).await;
            assert!(served.is_ok(), "{served:?}: nobody is reset");
            let looks = shared.open.borrow_mut().remove(&client).unwrap().1;
            let mean = |sum: u64| sum as f64 / looks.count.max(1) as f64;
            let (mean_hiwat, mean_held) = (mean(looks.hiwat), mean(looks.held));
            let served = Transfer { mean_hiwat, mean_held, ..served.unwrap_or_default() };
            shared.served.borrow_mut().insert(client, served);
        });
    }
}

/// Runs Procedure 3.2.
async fn send(mut stream: TcpStream, load: &Load) -> io::Result<Transfer> {
    let (control, begin) = (stream.control(), Handle::current().now());
    let (mut transfer, mut left, mut first_wait) = (Transfer::default(), load.bytes, None);
    while left > 0 {
        let wanted = control.send_demand().read as u64;
        let size = load.block.unwrap_or(wanted).clamp(SEGMENT, left.max(SEGMENT)).min(left);
        rt::sleep(load.read_time).await;
        (left, transfer.reads) = (left - size, transfer.reads + 1);
        control.set_supply(load.told_read_time, left > 0);
        // One segment at a time, as `sosend` fills one buffer after the other.
        for segment in vec![0; size as usize].chunks(SEGMENT as usize) {
            stream.write_all(segment).await?;
            let waited = || Handle::current().now().since(begin + load.read_time);
            first_wait.get_or_insert_with(waited);
        }
    }
    transfer.misses = control.send_info().map_or(0, |info| info.misses);
    transfer.first_wait_ms = first_wait.map_or(0.0, |wait| wait.as_secs_f64() * 1000.0);
    stream.shutdown().await?;
    Ok(transfer)
}

/// Samples the memory of the server's connections.
async fn look(load: Load, shared: Rc<Shared>) {
    loop {
        rt::sleep(LOOK).await;
        for (control, looks) in shared.open.borrow_mut().values_mut() {
            let Some(info) = control.send_info() else { continue };
            looks.count += 1;
            looks.hiwat += info.hiwat as u64;
            looks.held += info.held_bytes as u64;
        }
        let begun = shared.next.get();
        if begun >= load.at_once && begun < load.order.len() {
            let (sum, count) = shared.pages.get();
            let pages = Handle::current().with_host(|host| host.pool_info().in_use as u64);
            shared.pages.set((sum + pages, count + 1));
        }
    }
}
