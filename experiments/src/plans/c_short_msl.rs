//! §2.2: a loaded server cuts its MSL instead of moving TIME-WAIT away. In virtual time.
//!
//! Our server has 3600 blocks, like the paper's. With 2·MSL of a minute it can hold the TIME-WAIT
//! of 60 connections a second. With more it must cut 2·MSL to 3600 blocks divided by the rate. The
//! clients are hosts behind one address translator. They have no timestamps and initial numbers of
//! 4.3BSD (multiples of 64 000, two a second and one a connection, for ten minutes since the host
//! booted). Each port is used again after all others. The network delivers every second segment
//! with data twice, the second time up to 30 s later, which is an MSL. All this is harsh, so that
//! an effect appears: with only 3976 ports and windows of 8 KB nothing was corrupted. A cut MSL is
//! safe only where none of this occurs.
//!
//! The experiment counts SYNs that TIME-WAIT refuses (*refused*); old segments that arrive at a
//! later connection between the same ends (*met*), which only their numbers keep out; and
//! connections whose data was another's (*corrupted*), as the server's application read it. Our
//! server drops data with an ACK older than the client's largest window (RFC 5961 §5.2), which RFC
//! 793 does not require. That helps against clients with windows of 8 KB, but not against those of
//! 8 MB.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lightwait_core::flow::Seq;
use lightwait_core::rng::Rng;
use lightwait_core::wire::options::Options;
use lightwait_core::wire::tcp::{CHECKSUM_OFFSET, Flags, Header, Segment, checksum};
use lightwait_core::wire::{checksum as sums, ip};
use lightwait_core::{ConnectionId, Event, Host, Instant, Outbox, ReadError, RxFrame};

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::plans::busy::lan::{server, server_config};
use crate::plans::busy::web::PORT;
use crate::report::{Report, Table};
use crate::statistics::mean_and_deviation;

const SEEDS: u64 = 10;
/// Connections a second.
const LOADS: [u32; 5] = [50, 100, 200, 400, 800];
/// The first load at which ports come again while old segments are under way.
const AGAIN: u32 = 200;
const LENGTH: Duration = Duration::from_secs(90);
const FULL: Duration = Duration::from_secs(60);
/// Blocks of the server.
const BLOCKS: u32 = 3600;
/// The most that a cut 2·MSL may have in TIME-WAIT: an old segment may restart one.
const MOST_BLOCKS: usize = BLOCKS as usize / 100 * 101;
/// The translator's ports.
const PORTS: u16 = 5000;
const FIRST_PORT: u16 = 1024;
/// The pause before a client sends data.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest delay of a second delivery.
const MSL_MS: u32 = 30_000;
/// The step of 4.3BSD's initial numbers, and the number of possible ones: two a second for ten
/// minutes.
const ISN_STEP: u32 = 64_000;
const ISNS: u32 = 1200;
/// A client's window in its segments, and its scale.
const SMALL: (u16, u8) = (8192, 0);
const LARGE: (u16, u8) = (65_535, 7);
/// Bytes of a connection's data: its number, twice.
const TEXT: usize = 8;

const CUT: Ablation = Ablation { name: "cut", instead: "2·MSL of a minute is cut, too" };
const UNCUT: Ablation = Ablation { name: "uncut", instead: "2·MSL is a minute at any load" };
const LARGE_WINDOWS: Ablation =
    Ablation { name: "large-windows", instead: "windows of 8 KB are of 8 MB, too" };

/// An event at a client, or in the network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// The next connection opens.
    Opens,
    /// The connection of that port and number sends its data.
    Says(u16, u32),
    /// A segment arrives once more: its port and number, and the packet.
    Again(u16, u32, Vec<u8>),
}

/// A client's connection.
#[derive(Clone, Copy, Debug)]
struct Client {
    number: u32,
    isn: Seq,
    server_isn: Seq,
    is_open: bool,
}

/// The counters.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    opened: u64,
    refused: u64,
    met: u64,
    served: u64,
    corrupted: u64,
    /// The most connections in TIME-WAIT at once.
    most: usize,
}

struct World {
    window: (u16, u8),
    now: Instant,
    host: Host,
    outbox: Outbox,
    rng: Rng,
    queue: BinaryHeap<Reverse<(Instant, u64, Happens)>>,
    order: u64,
    clients: HashMap<u16, Client>,
    next_port: u16,
    next_number: u32,
    /// The server's received data.
    read: HashMap<ConnectionId, Vec<u8>>,
    counts: Counts,
}

fn translator() -> IpAddr {
    Ipv4Addr::new(10, 1, 0, 1).into()
}

impl World {
    fn new(time_wait: Duration, window: (u16, u8), seed: u64) -> World {
        let mut config = server_config();
        config.tcp.timestamps = false;
        config.tcp.time_wait.length = time_wait;
        let mut host = Host::new(config).expect("a sound configuration");
        host.listen(server(PORT), 4096).expect("a free port");
        World {
            window,
            now: Instant::from_millis(1000),
            host,
            outbox: Outbox::new(64),
            rng: Rng::from_seed(seed),
            queue: BinaryHeap::new(),
            order: 0,
            clients: HashMap::new(),
            next_port: 0,
            next_number: 1,
            read: HashMap::new(),
            counts: Counts::default(),
        }
    }

    fn at(&mut self, when: Instant, what: Happens) {
        self.order += 1;
        self.queue.push(Reverse((when, self.order, what)));
    }

    /// Runs with `rate` connections a second.
    fn run(mut self, rate: u32) -> Counts {
        let (begin, end) = (self.now, self.now + LENGTH);
        let spacing = Duration::from_secs(1) / rate;
        self.at(begin, Happens::Opens);
        while let Some(Reverse((when, _, what))) = self.queue.pop() {
            if when >= end {
                break;
            }
            self.now = when;
            match what {
                Happens::Opens => {
                    self.open();
                    self.at(when + spacing, Happens::Opens);
                }
                Happens::Says(port, number) => self.say(port, number),
                Happens::Again(port, number, packet) => self.hear_again(port, number, &packet),
            }
            self.counts.most = self.counts.most.max(self.host.time_wait_len());
        }
        self.counts
    }

    fn open(&mut self) {
        let port = FIRST_PORT + self.next_port;
        self.next_port = (self.next_port + 1) % PORTS;
        let number = self.next_number;
        self.next_number += 1;
        let isn = Seq(1 + ISN_STEP * self.rng.below(ISNS));
        let client = Client { number, isn, server_isn: Seq(0), is_open: false };
        self.clients.insert(port, client);
        let syn = packet(self.window, (port, Flags::SYN), isn, Seq(0), &[]);
        self.deliver(&syn);
        if self.clients.get(&port).is_some_and(|client| client.is_open) {
            self.counts.opened += 1;
            self.at(self.now + PAUSE, Happens::Says(port, number));
        } else {
            self.counts.refused += 1;
            self.clients.remove(&port);
        }
    }

    fn say(&mut self, port: u16, number: u32) {
        let Some(&client) = self.clients.get(&port).filter(|client| client.number == number) else {
            return;
        };
        let text = number.to_be_bytes().repeat(2);
        let (seq, ack) = (client.isn + 1, client.server_isn + 1);
        let segment = packet(self.window, (port, Flags::ACK | Flags::PSH), seq, ack, &text);
        if self.rng.below(2) == 0 {
            let late = Duration::from_millis(u64::from(self.rng.below(MSL_MS)));
            self.at(self.now + late, Happens::Again(port, number, segment.clone()));
        }
        self.deliver(&segment);
    }

    fn hear_again(&mut self, port: u16, number: u32, packet: &[u8]) {
        let is_met = self.clients.get(&port).is_some_and(|client| client.number != number);
        self.counts.met += u64::from(is_met);
        self.deliver(packet);
    }

    /// Delivers a packet to the server, and the server's answers to its client.
    fn deliver(&mut self, packet: &[u8]) {
        let now = self.now;
        self.host.on_frame(now, RxFrame::plain(packet));
        loop {
            self.host.on_time(now);
            self.serve();
            self.host.emit(now, &mut self.outbox);
            let mut answers = Vec::new();
            while let Some(frame) = self.outbox.front() {
                let mut bytes = Vec::new();
                frame.copy_to(&mut bytes);
                self.outbox.pop();
                answers.extend(self.answer(&bytes));
            }
            if answers.is_empty() {
                return;
            }
            for answer in answers {
                self.host.on_frame(now, RxFrame::plain(&answer));
            }
        }
    }

    /// The server's application reads the data, and closes.
    fn serve(&mut self) {
        while let Some(event) = self.host.event() {
            match event {
                Event::Acceptable(listener) => {
                    while let Ok(id) = self.host.accept(self.now, listener) {
                        self.read.insert(id, Vec::new());
                        self.take(id);
                    }
                }
                Event::Ready(id, _) => self.take(id),
                Event::Udp(..) | Event::Flow | Event::Addresses => {}
            }
        }
    }

    fn take(&mut self, id: ConnectionId) {
        let mut bytes = [0; TEXT];
        let Some(read) = self.read.get_mut(&id) else { return };
        match self.host.read(self.now, id, &mut bytes) {
            Ok(len @ 1..) => read.extend_from_slice(&bytes[..len]),
            Err(ReadError::WouldBlock) => return,
            Ok(_) | Err(_) => {
                self.read.remove(&id);
                self.host.close(self.now, id);
                return;
            }
        }
        if read.len() < TEXT {
            return;
        }
        let peer = self.host.peer_address(id).map_or(0, |peer: SocketAddr| peer.port());
        let number = self.clients.get(&peer).map_or(0, |client| client.number);
        let is_its_own = *read == number.to_be_bytes().repeat(2);
        self.counts.served += 1;
        self.counts.corrupted += u64::from(!is_its_own);
        self.read.remove(&id);
        self.host.close(self.now, id);
    }

    /// The client's answer to a packet of the server's.
    fn answer(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let outer = ip::Packet::parse(bytes).ok()?;
        let segment = Segment::parse(outer.payload).ok()?;
        let port = segment.destination_port;
        let client = self.clients.get_mut(&port)?;
        if segment.flags.contains(Flags::SYN) {
            if segment.ack != client.isn + 1 {
                return None;
            }
            (client.server_isn, client.is_open) = (segment.seq, true);
            let (seq, ack) = (client.isn + 1, segment.seq + 1);
            return Some(packet(self.window, (port, Flags::ACK), seq, ack, &[]));
        }
        if segment.flags.contains(Flags::RST) {
            self.clients.remove(&port);
            return None;
        }
        if segment.flags.contains(Flags::FIN) {
            // It has sent all its data, and closes as well.
            let how = (port, Flags::FIN | Flags::ACK);
            let answer = packet(self.window, how, segment.ack, segment.end(), &[]);
            self.clients.remove(&port);
            return Some(answer);
        }
        None
    }
}

/// A packet of the client at that port, with that window.
fn packet(
    (window, shift): (u16, u8),
    (port, flags): (u16, Flags),
    seq: Seq,
    ack: Seq,
    text: &[u8],
) -> Vec<u8> {
    let options = match flags.contains(Flags::SYN) {
        true => Options { mss: Some(1460), window_scale: Some(shift), ..Options::default() },
        false => Options::default(),
    };
    let (source_port, destination_port) = (port, PORT);
    let header =
        Header { source_port, destination_port, seq, ack, flags, window, urgent: 0, options };
    let (source, destination) = (translator(), server(PORT).ip());
    let len = header.header_len() + text.len();
    let outer = ip::Header::new(source, destination, ip::protocol::TCP, len);
    let mut bytes = Vec::new();
    outer.expect("one version, and short").emit(&mut bytes);
    let start = bytes.len();
    header.emit(&mut bytes);
    let value = checksum(source, destination, &bytes[start..], sums::sum(text), text.len());
    bytes[start + CHECKSUM_OFFSET..][..2].copy_from_slice(&value.to_be_bytes());
    bytes.extend_from_slice(text);
    bytes
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let head =
        ["2·MSL", "conn/s", "s", "most waiting", "refused %", "met ‰", "corrupted of a million"];
    let mut table = Table::new(&head);
    let mut chart = Chart::new("Old segments that meet a later connection", "conn/s", "‰");
    let mut all = Vec::new();
    let seeds = report.seeds(SEEDS);
    for (name, is_cut, window) in
        [("a minute", false, LARGE), ("cut", true, LARGE), ("cut, windows of 8 KB", true, SMALL)]
    {
        let is_cut = (is_cut || report.is_ablated(&CUT)) && !report.is_ablated(&UNCUT);
        let window = if report.is_ablated(&LARGE_WINDOWS) { LARGE } else { window };
        let mut found = Vec::new();
        for rate in LOADS {
            let cut = Duration::from_secs(u64::from(BLOCKS)) / rate;
            let time_wait = if is_cut { cut.min(FULL) } else { FULL };
            let run = |seed| World::new(time_wait, window, seed).run(rate);
            let counts: Vec<Counts> = seeds.clone().map(run).collect();
            let part = |of: fn(&Counts) -> u64, scale: f64| {
                let parts =
                    counts.iter().map(|c| of(c) as f64 * scale / (c.opened + c.refused) as f64);
                mean_and_deviation(&parts.collect::<Vec<f64>>())
            };
            let refused = part(|counts| counts.refused, 100.0);
            let met = part(|counts| counts.met, 1000.0);
            let corrupted = part(|counts| counts.corrupted, 1e6);
            let most = counts.iter().map(|counts| counts.most).max().unwrap_or_default();
            table.row(&[
                &name,
                &rate,
                &format!("{:.1}", time_wait.as_secs_f64()),
                &most,
                &format!("{:.1} ± {:.1}", refused.0, refused.1),
                &format!("{:.2} ± {:.2}", met.0, met.1),
                &format!("{:.1} ± {:.1}", corrupted.0, corrupted.1),
            ]);
            found.push((refused.0, met.0, corrupted.0, most));
        }
        chart.draw(
            &format!("2·MSL {name}"),
            Mark::Line,
            LOADS.iter().zip(&found).map(|(rate, found)| (f64::from(*rate), found.1)).collect(),
        );
        all.push(found);
    }
    report.table("short-msl", &table)?;
    report.picture("met", &chart)?;
    claims(report, &all);
    Ok(())
}

fn most_corrupted(points: &[Point]) -> f64 {
    points.iter().map(|point| point.2).fold(0.0, f64::max)
}

/// Refused in %, met in ‰, corrupted in a million, and the most in TIME-WAIT.
type Point = (f64, f64, f64, usize);

fn claims(report: &mut Report, all: &[Vec<Point>]) {
    let [full, cut, small] = all else { return };
    let last = LOADS.len() - 1;
    report.claim(
        "with a minute no connection is corrupted, at any load",
        &CUT,
        full.iter().all(|point| point.2 == 0.0),
        format!("{:.1} of a million at the most", most_corrupted(full)),
    );
    report.claim(
        "but connections are refused where ports come again sooner, and blocks are too few",
        &CUT,
        full[0].0 == 0.0 && full[last].0 > 10.0 && full[last].3 > BLOCKS as usize,
        format!("{:.1} % at {} a second, {} in TIME-WAIT", full[last].0, LOADS[last], full[last].3),
    );
    report.claim(
        "cut, the memory is bounded and nobody is refused",
        &UNCUT,
        cut.iter().all(|point| point.0 == 0.0 && point.3 <= MOST_BLOCKS),
        format!("{} at most", cut.iter().map(|point| point.3).max().unwrap_or_default()),
    );
    let grows = cut.windows(2).all(|pair| pair[1].1 >= pair[0].1);
    // With a minute, too, some meet old segments once ports come again, but no more with more load.
    let again = LOADS.iter().position(|load| *load >= AGAIN).unwrap_or(last);
    report.claim(
        "cut, connections are the less protected the more load there is",
        &UNCUT,
        grows && cut[last].1 > 2.0 * cut[again].1,
        format!(
            "{:?} ‰ meet an old segment",
            cut.iter().map(|p| (p.1 * 100.0).round() / 100.0).collect::<Vec<f64>>()
        ),
    );
    report.claim(
        "cut, connections are corrupted",
        &UNCUT,
        cut[last].2 > 0.0,
        format!("{:.1} of a million at {} a second", cut[last].2, LOADS[last]),
    );
    report.claim(
        "cut, where clients have small windows, the check of their ACKs keeps old text out",
        &LARGE_WINDOWS,
        small[last].1 > 0.0 && small.iter().all(|point| point.2 == 0.0),
        format!(
            "{:.2} ‰ met, {:.1} of a million corrupted at the most",
            small[last].1,
            most_corrupted(small)
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_within_a_minute_is_refused_or_has_higher_numbers() {
        let counts = World::new(FULL, LARGE, 1).run(100);
        assert!(counts.refused > 0 && counts.opened > counts.refused, "{counts:?}");
        assert_eq!((counts.corrupted, counts.most > BLOCKS as usize), (0, true), "{counts:?}");
    }

    #[test]
    fn every_connection_that_opens_is_served() {
        let counts = World::new(Duration::from_secs(5), SMALL, 1).run(50);
        // Connections of the last second have sent no data yet.
        assert_eq!((counts.opened, counts.served, counts.refused), (4500, 4450, 0));
        assert_eq!((counts.met, counts.corrupted), (0, 0), "no port comes again");
    }
}
