//! A flood at the first shard, and the rate that the second keeps. Both are in memory, each with
//! its client on a core of its own.
//!
//! The first shard's device has frames of the flood whenever it is asked, as many as a turn takes.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use lightwait::device::{Device, Losses, MemoryDevice, Sink};
use lightwait_core::frame::{Outbox, RxFrame, in_bursts};
use lightwait_core::wire::icmpv4::{Echo, Message};
use lightwait_core::wire::ip::{Header, protocol};
use lightwait_core::{Capabilities, Instant};

use super::sources::{CLIENT, SERVER};
use super::{Outcome, Plan, TIME_WAIT, Workload, memory};
use crate::sample::median;

/// Frames of a flood, each of its own, that come again and again.
const FRAMES: u16 = 4096;

/// What floods the first shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storm {
    /// First fragments of packets that are never whole.
    Fragments,
    /// ICMP errors about connections. The other shard owns half of these.
    Errors,
    /// Echo requests.
    Echoes,
}

impl Storm {
    /// All of them.
    pub const ALL: [Storm; 3] = [Storm::Fragments, Storm::Errors, Storm::Echoes];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Storm::Fragments => "fragments",
            Storm::Errors => "ICMP errors",
            Storm::Echoes => "echo requests",
        }
    }

    /// Its frame of that number: an IPv4 packet.
    fn frame(self, number: u16) -> Vec<u8> {
        let mut payload = Vec::new();
        match self {
            Storm::Fragments => payload = vec![0; 1400],
            Storm::Errors => {
                let quoted = [[80, number].map(u16::to_be_bytes).concat(), vec![0; 16]].concat();
                let quoted = &packet(*SERVER.ip(), CLIENT, protocol::TCP, &quoted);
                Message::Unreachable { code: 1, next_hop_mtu: 0, quoted }.emit(&mut payload);
            }
            Storm::Echoes => {
                let data = &[7; 56];
                Message::EchoRequest(Echo { id: 1, seq: number, data }).emit(&mut payload);
            }
        }
        if self != Storm::Fragments {
            return packet(CLIENT, *SERVER.ip(), protocol::ICMPV4, &payload);
        }
        let mut bytes = packet(CLIENT, *SERVER.ip(), protocol::TCP, &payload);
        bytes[4..8].copy_from_slice(&[number.to_be_bytes(), [0x20, 0]].concat());
        bytes[10..12].fill(0);
        let sum = lightwait_core::wire::checksum::sum(&bytes[..20]).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

fn packet(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (IpAddr::V4(from), IpAddr::V4(to));
    let mut bytes = Vec::new();
    let header = Header::new(from, to, protocol, payload.len()).expect("a short packet");
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// A device on which a flood comes beside the frames of the wire.
struct Flooded {
    wire: MemoryDevice,
    flood: Vec<Vec<u8>>,
    next: usize,
}

impl Device for Flooded {
    fn capabilities(&self) -> Capabilities {
        self.wire.capabilities()
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let received = self.wire.receive(now, budget, sink)?;
        let first = self.next;
        self.next = (first + budget - received) % self.flood.len();
        let frames = self.flood.iter().cycle().skip(first).take(budget - received);
        in_bursts(frames.map(|frame| RxFrame::plain(frame)), sink);
        Ok(budget)
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        self.wire.transmit(now, outbox)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(Instant::ZERO)
    }

    fn losses(&mut self) -> io::Result<Losses> {
        self.wire.losses()
    }
}

/// The second shard's rates beside a flood, and without one.
#[derive(Clone, Debug)]
pub struct Row {
    /// What floods the first.
    pub storm: Storm,
    /// Requests a second of the second shard without a flood, of each run.
    pub calm: Vec<f64>,
    /// Its rate beside the flood, of each run.
    pub flooded: Vec<f64>,
    /// Requests in a second of the processor time of its thread beside the flood, as a part of
    /// those without one, of each run.
    pub kept_of_core: Vec<f64>,
    /// Frames that the first shard took in, in a second from its beginning on, as a median.
    pub frames: f64,
}

impl Row {
    /// The part of its rate that the second shard keeps, as a median of the runs.
    pub fn kept(&self) -> f64 {
        let both = self.flooded.iter().zip(&self.calm);
        median(&mut both.map(|(flooded, calm)| flooded / calm).collect::<Vec<_>>())
    }
}

/// Measures every flood so often, each run for `window` with it and `window` without.
///
/// # Errors
/// Those of [`memory::run`].
pub fn run(runs: u32, window: Duration) -> io::Result<Vec<Row>> {
    let workload = Workload::Requests;
    let plan = Plan { shards: 2, workload, threads: 0, warm_up: 2 * TIME_WAIT, window };
    let life = plan.warm_up + plan.window;
    let mut rows = Vec::new();
    for storm in Storm::ALL {
        let [mut calm, mut flooded, mut kept_of_core, mut frames] = [const { Vec::new() }; 4];
        for _ in 0..runs {
            let alone = second(&memory::run(&plan)?);
            let outcome = memory::run_on(&plan, |index, wire| flood(storm, index, wire))?;
            let beside = second(&outcome);
            calm.push(alone.rate(workload));
            flooded.push(beside.rate(workload));
            kept_of_core.push(beside.rate_of_core(workload) / alone.rate_of_core(workload));
            frames.push(outcome.parts[0].frames as f64 / life.as_secs_f64());
        }
        rows.push(Row { storm, calm, flooded, kept_of_core, frames: median(&mut frames) });
    }
    Ok(rows)
}

/// The second shard's part of it.
fn second(outcome: &Outcome) -> Outcome {
    Outcome { parts: vec![outcome.parts[1]] }
}

/// The device of the shard `index`: the first has the flood.
fn flood(storm: Storm, index: u16, wire: MemoryDevice) -> Box<dyn Device> {
    if index > 0 {
        return Box::new(wire);
    }
    let flood = (0..FRAMES).map(|number| storm.frame(number)).collect();
    Box::new(Flooded { wire, flood, next: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_shard_answers_beside_every_flood() {
        let rows = run(1, Duration::from_millis(30)).unwrap();
        assert_eq!(rows.iter().map(|row| row.storm).collect::<Vec<_>>(), Storm::ALL);
        for row in rows {
            assert!(row.flooded[0] > 0.0 && row.calm[0] > 0.0, "{row:?}");
            // The first has little else to do than to take it in.
            assert!(row.frames > 1000.0, "{row:?}");
        }
    }

    #[test]
    fn floods_are_what_they_are_called() {
        use lightwait_core::wire::ip::Packet;
        for storm in Storm::ALL {
            let bytes = storm.frame(7);
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!(packet.fragment.is_some(), storm == Storm::Fragments, "{storm:?}");
            assert_eq!(packet.protocol == protocol::ICMPV4, storm != Storm::Fragments);
            assert_ne!(bytes, storm.frame(8));
        }
    }
}
