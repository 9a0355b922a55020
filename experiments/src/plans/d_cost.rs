//! The instructions that our file server takes for a byte of a long file, by a send buffer that
//! follows the window and by a fixed one of 4 MB. Callgrind counts the turns of the server's shard,
//! and no other work: the client, the wire and the disk's content are left out.
//!
//! ```text
//!   disk, 1 ms a read ─▶ file server ─ TCP ─▶ 1 Gbit/s, 10 ms ─▶ client, window of 1 MiB
//! ```
//!
//! A file of 16 MB and one of 64 MB stand in for one of 1 GiB. Their difference is counted, so that
//! the beginning drops out.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use lightwait::device::memory::{MemoryDevice, MemoryFrame, Wire};
use lightwait::local::TcpStream;
use lightwait::shard::Shard;
use lightwait_bench::instructions::{self, Uncounted, section};
use lightwait_core::address::Cidr;
use lightwait_core::config::{PageSize, SendRule};
use lightwait_core::time::Duration;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use lightwait_http::{Files, FilesConfig, Server, ServerConfig};
use lightwait_sim::disk::Disk;
use lightwait_sim::web;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ablation::Ablation;
use crate::plan::{Failure, Outcome};
use crate::plans::newreno;
use crate::report::{Report, Table};

const MB: u64 = 1_000_000;
const SIZES_MB: [u64; 2] = [16, 64];
const READ_TIME: Duration = Duration::from_millis(1);
const DELAY: Duration = Duration::from_millis(5);
const NS_A_BYTE: u64 = 8;
const WINDOW: u32 = 1 << 20;
const FIXED: u32 = 4 << 20;
const MTU: u16 = 1500;
/// Frames that a device's ring holds.
const RING: usize = 4096;
/// The goal: instructions by LOS, as a part of those by the fixed buffer.
const MOST: f64 = 1.05;

/// The rule, bytes of a page of the pool, and the name.
type Rule = (SendRule, PageSize, &'static str);
const RULES: [Rule; 3] = [
    (SendRule::Los, PageSize::Auto, "LOS"),
    (SendRule::Fixed, PageSize::Auto, "fixed 4 MB"),
    (SendRule::Los, PageSize::Segment, "LOS, pages of a segment"),
];
const LOS: usize = 0;
const LOS_SMALL: usize = 2;
/// The number of rules that are shown.
const SHOWN: usize = 2;

const SMALL_PAGES: Ablation =
    Ablation { name: "small-pages", instead: "LOS takes pages of a segment" };

/// Devices: one with no offload, and one that completes checksums and cuts segments as a TAP does.
const DEVICES: [(Capabilities, &str); 2] = [
    (Capabilities::plain(Medium::Ip, MTU), "plain"),
    (
        Capabilities {
            checksum: true,
            segmentation: 65_535,
            ..Capabilities::plain(Medium::Ip, MTU)
        },
        "offload",
    ),
];

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn host(side: usize) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, side as u8 + 1).into()
}

/// Two shards, and the wires between them.
struct Network {
    shards: [Shard; 2],
    wires: [Wire; 2],
    /// By the sending side: what is on its way, and when it arrives.
    under_way: [VecDeque<(Instant, MemoryFrame)>; 2],
    /// When each side's wire is free again.
    free: [Instant; 2],
    now: Instant,
}

impl Network {
    fn new(device: Capabilities, (rule, page, _): Rule) -> Result<Network, Failure> {
        let now = Instant::from_millis(1000);
        let end = |side: usize| -> Result<(Shard, Wire), Failure> {
            let (port, wire) = MemoryDevice::with_wire(device, RING);
            let mut config =
                Config::new(device, Cidr::new(host(side), 24).ok_or("24 bits")?, [side as u8; 32]);
            config.limits.page = if side == SERVER { page } else { PageSize::Auto };
            config.tcp = newreno().with(|tcp| match side {
                CLIENT => (tcp.buffers.receive, tcp.buffers.receive_max) = (WINDOW, WINDOW),
                _ => (tcp.buffers.send_size, tcp.buffers.send) = (rule, FIXED),
            });
            Ok((Shard::in_made_time(config, Box::new(port))?, wire))
        };
        let ((client, client_wire), (server, server_wire)) = (end(CLIENT)?, end(SERVER)?);
        let (shards, wires) = ([client, server], [client_wire, server_wire]);
        let under_way = Default::default();
        Ok(Network { shards, wires, under_way, free: [now; 2], now })
    }

    /// Runs until `is_done`, and counts the server's turns as a section of that name.
    fn run(&mut self, name: &str, mut is_done: impl FnMut() -> bool) -> Outcome {
        while !is_done() {
            self.deliver();
            let now = self.now;
            let [client, server] = &mut self.shards;
            if client.deadline(now).is_some_and(|due| due <= now) {
                client.turn(now);
            }
            // A turn in which nothing is due would be counted, too.
            if server.deadline(now).is_some_and(|due| due <= now) {
                section(name, 0, || server.turn(now));
            }
            self.carry();
            let arrivals = self.under_way.iter().filter_map(|frames| Some(frames.front()?.0));
            let due = self.shards.iter().filter_map(|shard| shard.deadline(now));
            self.now = arrivals.chain(due).min().ok_or("nothing will happen any more")?.max(now);
        }
        Ok(())
    }

    /// Hands over what has arrived.
    fn deliver(&mut self) {
        for from in [CLIENT, SERVER] {
            while let Some((_, frame)) = self.under_way[from].pop_front_if(|it| it.0 <= self.now) {
                assert!(self.wires[1 - from].inject(frame.as_rx()), "the ring has room");
            }
        }
    }

    /// Takes what was sent. The ring gets its buffers back at once: it would move all that are
    /// under way in each turn.
    fn carry(&mut self) {
        for from in [CLIENT, SERVER] {
            while let Some(frame) = self.wires[from].drain() {
                let begin = self.free[from].max(self.now);
                let sent = begin + Duration::from_nanos(frame.bytes.len() as u64 * NS_A_BYTE);
                self.free[from] = sent;
                self.under_way[from].push_back((sent + DELAY, frame.clone()));
                self.wires[from].recycle(frame);
            }
        }
    }
}

/// A download.
#[derive(Clone, Copy, Debug)]
struct Found {
    seconds: f64,
    misses: u64,
    /// Times that the blocked writer was woken because there was room.
    woken: u64,
}

/// Downloads a file, and counts the server's turns as a section of that name.
fn download(name: &str, device: usize, rule: usize, megabytes: u64) -> Result<Found, Failure> {
    let mut network = Network::new(DEVICES[device].0, RULES[rule])?;
    let at = network.shards[SERVER].handle();
    let (clock, memory) = (web::clock_of(at.clone()), web::memory_of(&at));
    let disk = Disk::new(&[("file", megabytes * MB, 1)], READ_TIME, u64::MAX);
    let disk = disk.with_many_arms().without_content();
    let files = Files::new(disk, FilesConfig::default(), clock.clone()).with_memory(memory.clone());
    let server = Rc::new(Server::new(files, ServerConfig::default(), clock).with_memory(memory));
    let address = SocketAddr::new(host(SERVER), 80);
    web::serve_on(&at, address, &server)?;
    let received = Rc::new(Cell::new(None));
    let note = received.clone();
    let begin = network.now;
    let client = network.shards[CLIENT].handle();
    let task = client.spawn_local(async move { note.set(get(address).await.ok()) });
    network.run(name, || task.is_finished())?;
    let bytes = received.take().ok_or("no download")?;
    if bytes < megabytes * MB {
        return Err("the file is not whole".into());
    }
    let seconds = network.now.since(begin).as_secs_f64();
    let counts =
        at.with_host(|host| (host.counters().buffer_misses, host.counters().writers_woken));
    Ok(Found { seconds, misses: counts.0, woken: counts.1 })
}

/// Downloads the file, and returns the received bytes.
async fn get(address: SocketAddr) -> io::Result<u64> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await?;
    let (mut count, mut chunk) = (0, vec![0; 1 << 20]);
    loop {
        match stream.read(&mut chunk).await? {
            0 => return Ok(count),
            read => count += read as u64,
        }
    }
}

/// The name of a section: its device, rule and size.
fn name_of(device: usize, rule: usize, megabytes: u64) -> String {
    format!("{device}/{rule}/{megabytes}")
}

/// Runs the section of that name, for callgrind.
pub(crate) fn sections(chosen: &str) -> Outcome {
    for device in 0..DEVICES.len() {
        for rule in 0..RULES.len() {
            for megabytes in SIZES_MB {
                let name = name_of(device, rule, megabytes);
                if name == chosen {
                    download(&name, device, rule, megabytes)?;
                }
            }
        }
    }
    Ok(())
}

/// Instructions of a kilobyte.
fn count(device: usize, rule: usize) -> Result<f64, Uncounted> {
    let [short, long] = SIZES_MB.map(|megabytes| {
        let name = name_of(device, rule, megabytes);
        let counted = instructions::count(&["d-cost".to_owned(), format!("--section={name}")])?;
        counted.ok_or_else(|| Uncounted::Failed(format!("no section {name}")))
    });
    Ok((long? - short?) / ((SIZES_MB[1] - SIZES_MB[0]) * MB) as f64 * 1000.0)
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    report.say(
        "A file by our HTTP server over 1 Gbit/s and 10 ms, a read takes 1 ms; the server's \
         instructions\nof a file of 64 MB less those of one of 16 MB. Device: plain, or one that \
         sums and cuts.",
    );
    let mut table =
        Table::new(&["device", "buffer", "instructions a KB", "Mbit/s", "misses", "wake-ups a MB"]);
    let last_mb = SIZES_MB[SIZES_MB.len() - 1];
    let is_small = report.is_ablated(&SMALL_PAGES);
    for (device, (_, device_name)) in DEVICES.iter().enumerate() {
        let mut counts = Vec::new();
        for rule in 0..SHOWN {
            let rule = if rule == LOS && is_small { LOS_SMALL } else { rule };
            let found = download("", device, rule, last_mb)?;
            let instructions = count(device, rule)?;
            counts.push(instructions);
            table.row(&[
                device_name,
                &RULES[rule].2,
                &format!("{instructions:.1}"),
                &format!("{:.1}", last_mb as f64 * 8.0 / found.seconds),
                &found.misses,
                &format!("{:.1}", found.woken as f64 / last_mb as f64),
            ]);
        }
        let part = counts[LOS] / counts[1 - LOS];
        report.claim(
            &format!(
                "LOS takes no more than 5 % more instructions a byte than the fixed buffer, \
                 {device_name}"
            ),
            &SMALL_PAGES,
            part <= MOST,
            format!("{:+.1} %", (part - 1.0) * 100.0),
        );
    }
    report.table("instructions", &table)
}
