//! The target `host`: any sequence of frames and calls, on two hosts joined by a cable.
//!
//! The input's first bytes configure the hosts. Each further piece of it is one step: a call on one
//! of the hosts, a lapse of time, an event on a frame in flight, or a forged frame. After each step
//! the target checks the invariants. At the end everything is closed, and nothing may be left.
//!
//! As long as no frame was forged or damaged, the streams must be right as well: each end reads
//! exactly the bytes that the other end wrote.

mod admission;
mod check;
mod datagrams;
mod end;
mod finish;
mod forge;
mod fragments;
mod ledger;
mod link_messages;
mod setup;

use std::collections::VecDeque;

use lightwait_core::capture::pretty::Line;
use lightwait_core::frame::{Medium, RxChecksum, RxFrame};
use lightwait_core::time::{Duration, Instant};

use crate::source::Source;
use end::End;
use ledger::Ledger;

/// Steps of an input at most; what follows is ignored.
const MAX_STEPS: usize = 400;
/// Frames in flight at most; further frames are lost, as on any full link.
const CABLE_FRAMES: usize = 128;

/// Runs the target on one input. With `trace`, prints every step and frame.
pub fn run(input: &[u8], trace: bool) {
    let mut source = Source::new(input);
    let mut world = World::new(&mut source, trace);
    for _ in 0..MAX_STEPS {
        if source.is_empty() {
            break;
        }
        world.step(&mut source);
        for end in &world.ends {
            check::bounds(end);
        }
    }
    world.drain();
    world.finish();
}

/// A frame in flight.
#[derive(Clone, Debug)]
struct Flight {
    /// The end it goes to.
    to: usize,
    bytes: Vec<u8>,
    checksum: RxChecksum,
    segment_size: u16,
}

/// Two hosts, the cable, and the record of the streams.
struct World {
    now: Instant,
    medium: Medium,
    ends: [End; 2],
    cable: VecDeque<Flight>,
    ledger: Ledger,
    /// Frames may be forged and damaged here.
    forgeries: bool,
    trace: bool,
}

impl World {
    fn new(source: &mut Source<'_>, trace: bool) -> World {
        let (configs, forgeries) = setup::configs(source);
        let medium = configs[0].device.medium;
        let capacity = source.pick(&[64, 1, 3, 16]);
        if trace {
            eprintln!("{medium:?}, outboxes of {capacity}\n{:#?}", configs[0]);
        }
        World {
            now: Instant::from_millis(1_000_000),
            medium,
            ends: configs.map(|config| End::new(config, capacity)),
            cable: VecDeque::new(),
            ledger: Ledger::default(),
            forgeries,
            trace,
        }
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.trace {
            eprintln!("{} {what}", self.now);
        }
    }

    /// One step, as the next bytes of the input say.
    fn step(&mut self, source: &mut Source<'_>) {
        let kind = source.u8();
        let side = usize::from(kind >> 7);
        match kind & 0x7f {
            126.. => self.datagram(side, source),
            75.. if !self.forgeries => self.run_for(source.below(16) + 1),
            0..=7 => self.run_for(source.below(16) + 1),
            8..=11 => self.quiesce(side),
            12..=13 => self.turn(side),
            14..=19 => self.pass_time(source),
            20..=23 => self.connect(side, source),
            24..=26 => self.listen(side, source),
            27..=29 => self.accept(side, source),
            30..=37 => self.write(side, source),
            38..=43 => self.read(side, source),
            44..=46 => self.shutdown(side, source),
            47..=49 => self.close(side, source, false),
            50 => self.close(side, source, true),
            51..=54 => self.set_options(side, source),
            55 => self.close_listener(side, source),
            56..=59 => self.deliver_one(source),
            60..=71 => self.disturb(source),
            72..=74 => self.fragment(source),
            75..=95 => self.forge_segment(side, source),
            96..=99 => self.forge_syns(side, source),
            100..=107 => self.forge_icmp(side, source),
            108..=117 => self.forge_link_message(side, source),
            118..=122 => self.forge_packet(side, source),
            _ => self.forge_bytes(side, source),
        }
    }

    // ---- time and turns

    fn pass_time(&mut self, source: &mut Source<'_>) {
        const MICROSECONDS: [u64; 10] = [
            1,
            1000,
            10_000,
            40_000,
            200_000,
            1_000_000,
            10_000_000,
            61_000_000,
            400_000_000,
            7_300_000_000,
        ];
        let next = self.ends.iter().filter_map(|end| end.host.deadline()).min();
        self.now = match (source.u8(), next) {
            (n @ 0..=127, _) => {
                self.now + Duration::from_micros(MICROSECONDS[usize::from(n) % MICROSECONDS.len()])
            }
            (_, Some(next)) => self.now.max(next),
            (_, None) => self.now,
        };
        self.say(format_args!("-- time passes"));
    }

    /// One end takes note of the time and speaks once.
    fn turn(&mut self, side: usize) {
        let end = &mut self.ends[side];
        end.host.on_time(self.now);
        end.host.emit(self.now, &mut end.outbox);
        assert!(end.outbox.len() <= end.capacity, "the outbox holds more than it may");
        while let Some(event) = self.ends[side].host.event() {
            check::event(event);
        }
        self.send(side);
    }

    /// Puts the frames of an end on the cable.
    fn send(&mut self, side: usize) {
        while let Some(frame) = self.ends[side].outbox.take() {
            let flight = check::emitted(&mut self.ends[side], &frame, 1 - side);
            self.ends[side].outbox.recycle(frame);
            self.show(if side == 0 { "0 >" } else { "1 >" }, &flight.bytes);
            if self.cable.len() < CABLE_FRAMES {
                self.cable.push_back(flight);
            }
        }
    }

    /// Lets one end speak until it has nothing more to say now.
    fn quiesce(&mut self, side: usize) {
        self.turn(side);
        for _ in 0..check::TURNS_MAX {
            if check::is_at_rest(&self.ends[side], self.now) {
                return;
            }
            self.turn(side);
        }
        let host = &self.ends[side].host;
        let (deadline, wants) = (host.deadline(), host.wants_emit());
        panic!("end {side} does not come to rest: next work {deadline:?}, wants to emit: {wants}");
    }

    /// Both ends speak, and hear each other, this many times.
    fn run_for(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.quiesce(0);
            self.quiesce(1);
            if self.cable.is_empty() {
                return;
            }
            for _ in 0..self.cable.len() {
                self.deliver(0);
            }
        }
    }

    // ---- frames in flight

    fn show(&self, arrow: &str, bytes: &[u8]) {
        if self.trace {
            eprintln!("{} {arrow} {}", self.now, Line { medium: self.medium, bytes });
        }
    }

    /// The frame at `index` arrives.
    fn deliver(&mut self, index: usize) {
        if let Some(flight) = self.cable.remove(index) {
            self.arrive(&flight);
        }
    }

    fn arrive(&mut self, flight: &Flight) {
        self.show(if flight.to == 0 { "> 0" } else { "> 1" }, &flight.bytes);
        let Flight { bytes, checksum, segment_size, .. } = flight;
        let (checksum, segment_size) = (*checksum, *segment_size);
        let frame = RxFrame { checksum, segment_size, ..RxFrame::plain(bytes) };
        self.ends[flight.to].host.on_frame(self.now, frame);
    }

    /// A forged frame arrives.
    fn inject(&mut self, to: usize, bytes: Vec<u8>, source: &mut Source<'_>) {
        self.ledger.honest = false;
        let segment_size = source.pick(&[0, 0, 0, 536, 1, 1460]);
        self.arrive(&Flight { to, bytes, checksum: RxChecksum::Unknown, segment_size });
    }

    fn deliver_one(&mut self, source: &mut Source<'_>) {
        let index = source.below(self.cable.len());
        self.deliver(index);
    }

    /// A frame is lost, doubled, overtaken, or damaged (which is not honest).
    fn disturb(&mut self, source: &mut Source<'_>) {
        let mishaps = if self.forgeries { 8 } else { 6 };
        let (what, index) = (source.below(mishaps), source.below(self.cable.len()));
        if self.cable.is_empty() {
            return;
        }
        self.say(format_args!("-- disturbance {what} of frame {index}"));
        match what {
            0 | 1 => drop(self.cable.remove(index)),
            2 => self.cable.clear(),
            3 => {
                let copy = self.cable[index].clone();
                self.cable.push_back(copy);
            }
            4 => self.arrive(&self.cable[index].clone()),
            5 => {
                let other = source.below(self.cable.len());
                self.cable.swap(index, other);
            }
            6 => {
                self.ledger.honest = false;
                let (at, value) = (usize::from(source.u16()), source.u8());
                let bytes = &mut self.cable[index].bytes;
                let at = at % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= value;
                }
            }
            _ => {
                self.ledger.honest = false;
                let len = usize::from(source.u16());
                let bytes = &mut self.cable[index].bytes;
                let len = len % (bytes.len() + 1);
                bytes.truncate(len);
            }
        }
    }
}
