//! A cable between two hosts: an emulated link each way, and an oracle that sees both ends. It may
//! have several lanes, each with links of its own. It then stands for as many separate paths, such
//! as those of a server's clients.

mod router;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::{fmt, io};

use lightwait::device::{Device, Sink};
use lightwait::shard::Handle;
use lightwait_core::capture::pretty::Line;
use lightwait_core::frame::in_bursts;
use lightwait_core::{Capabilities, Instant, Medium, Outbox, RxFrame};
use lightwait_netem::{Link, LinkConfig, Packet};

use crate::oracle::Oracle;
use router::Fate;

/// One end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first end.
    A,
    /// The second end.
    B,
}

impl Side {
    /// The other end.
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    /// 0 or 1.
    pub fn index(self) -> usize {
        match self {
            Side::A => 0,
            Side::B => 1,
        }
    }
}

/// A frame passes one end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The time.
    pub now: Instant,
    /// The end.
    pub side: Side,
    /// True if the frame leaves the cable there; else it enters the cable.
    pub arrives: bool,
    /// True if the cable loses the frame: it enters and never leaves.
    pub is_lost: bool,
}

/// The state that the two ends of a cable share.
#[derive(Debug)]
pub struct Cable {
    lanes: Vec<Lane>,
    /// By the sending side: the lanes with frames on their way, in order of their next arrival.
    due: [BTreeSet<(Instant, usize)>; 2],
    choose: Chooser,
    oracle: Oracle,
    /// The shards at the ends, whose hosts the oracle looks at.
    shards: [Vec<Handle>; 2],
    /// A hash of every frame so far: equal for equal runs.
    digest: u64,
    trace: bool,
    watcher: Watcher,
    scratch: Vec<u8>,
    /// By the sending side: from when on a router in the middle has a narrower link, and its MTU.
    narrow: [Option<(Instant, u16)>; 2],
    /// The buffers of packets that have arrived. The next packet gets one, whatever its lane: a
    /// stock for each of ten thousand lanes would lie in no cache.
    spare: Vec<Packet>,
}

/// A link for each sending side.
type Lane = [Direction; 2];

/// A link, and the next arrival on it.
#[derive(Debug)]
struct Direction {
    link: Link,
    due: Option<Instant>,
}

/// Chooses a frame's lane.
struct Chooser(Box<Choose>);

type Choose = dyn Fn(&[u8]) -> usize;

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chooser")
    }
}

/// Receives every frame.
struct Watcher(Box<Watch>);

type Watch = dyn FnMut(Passage, &[u8]);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

impl Cable {
    /// A cable with a link from each side to the other, and its two ends. The ends carry plain
    /// Ethernet frames with packets of at most `mtu` bytes.
    pub fn new(
        a_to_b: LinkConfig,
        b_to_a: LinkConfig,
        mtu: u16,
    ) -> (Rc<RefCell<Cable>>, [Port; 2]) {
        Cable::with_lanes([[a_to_b, b_to_a]], mtu, |_| 0)
    }

    /// A cable of lanes, each with a link from A to B and one back. `choose` returns a frame's
    /// lane, from its bytes.
    pub fn with_lanes(
        lanes: impl IntoIterator<Item = [LinkConfig; 2]>,
        mtu: u16,
        choose: impl Fn(&[u8]) -> usize + 'static,
    ) -> (Rc<RefCell<Cable>>, [Port; 2]) {
        let lane = |links: [LinkConfig; 2]| {
            links.map(|config| Direction { link: Link::new(config), due: None })
        };
        let cable = Rc::new(RefCell::new(Cable {
            lanes: lanes.into_iter().map(lane).collect(),
            due: Default::default(),
            choose: Chooser(Box::new(choose)),
            oracle: Oracle::default(),
            shards: Default::default(),
            digest: 0,
            trace: false,
            watcher: Watcher(Box::new(|_, _| {})),
            scratch: Vec::new(),
            narrow: [None; 2],
            spare: Vec::new(),
        }));
        let capabilities = Capabilities::plain(Medium::Ethernet, mtu);
        let ports =
            [Side::A, Side::B].map(|side| Port { cable: cable.clone(), side, capabilities });
        (cable, ports)
    }

    /// Prints a line for each sent frame from now on.
    pub fn trace(&mut self) {
        self.trace = true;
    }

    /// Calls `watcher` for every frame that enters or leaves the cable, from now on.
    pub fn watch(&mut self, watcher: impl FnMut(Passage, &[u8]) + 'static) {
        self.watcher = Watcher(Box::new(watcher));
    }

    /// The oracle looks at the hosts of the shards at that end from now on, each time they have
    /// sent.
    pub(crate) fn attach(&mut self, side: Side, shards: Vec<Handle>) {
        self.shards[side.index()] = shards;
    }

    /// From that time on a router on the way from `side` has a link of this MTU before it: it cuts
    /// packets where it may, and else drops them and tells their sender.
    pub fn narrow(&mut self, side: Side, from: Instant, mtu: u16) {
        self.narrow[side.index()] = Some((from, mtu));
    }

    /// True if there is such a router.
    pub(crate) fn is_narrow(&self, side: Side) -> bool {
        self.narrow[side.index()].is_some()
    }

    /// The oracle, which checks the rules.
    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// The link for frames from this side; with several lanes, the first one's.
    pub fn link_from(&self, side: Side) -> &Link {
        &self.lanes[0][side.index()].link
    }

    /// A hash of every frame so far, and of its time.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    fn send(&mut self, now: Instant, side: Side, shard: u16, outbox: &mut Outbox) {
        if let Some(handle) = self.shards[side.index()].get(usize::from(shard)) {
            handle.with_host(|host| self.oracle.on_emitted(now, (side, shard), host));
        }
        while let Some(frame) = outbox.front() {
            self.scratch.clear();
            frame.copy_to(&mut self.scratch);
            outbox.pop();
            if self.trace {
                let line = Line { medium: Medium::Ethernet, bytes: &self.scratch };
                println!("{now} {side:?} {line}");
            }
            self.digest = fold(fold(self.digest, &now.as_nanos().to_le_bytes()), &self.scratch);
            self.oracle.on_sent(now, side, &self.scratch);
            let scratch = std::mem::take(&mut self.scratch);
            let fate = match self.narrow[side.index()] {
                Some((from, mtu)) if from <= now => router::judge(&scratch, mtu),
                _ => Fate::Passes,
            };
            let is_lost = match fate {
                Fate::Passes => self.push(now, side, &scratch),
                Fate::Cut(pieces) => {
                    let mut is_lost = false;
                    for piece in &pieces {
                        is_lost |= self.push(now, side, piece);
                    }
                    is_lost
                }
                Fate::TooBig(error) => {
                    self.push(now, side.other(), &error);
                    true
                }
            };
            self.scratch = scratch;
            (self.watcher.0)(Passage { now, side, arrives: false, is_lost }, &self.scratch);
        }
    }

    /// Puts a frame on the link from that side. True if it is lost there.
    fn push(&mut self, now: Instant, side: Side, bytes: &[u8]) -> bool {
        let lane = (self.choose.0)(bytes);
        let link = &mut self.lanes[lane][side.index()].link;
        let before = link.in_flight();
        self.spare.pop().into_iter().for_each(|packet| link.recycle(packet));
        link.push(now, bytes);
        let is_lost = link.in_flight() == before;
        self.note_due(lane, side.index());
        is_lost
    }

    /// The next frame that has arrived at this side.
    fn take(&mut self, now: Instant, side: Side) -> Option<Packet> {
        let from = side.other().index();
        let lane = self.due[from].first().filter(|(at, _)| *at <= now)?.1;
        let packet = self.lanes[lane][from].link.pop(now);
        self.note_due(lane, from);
        let packet = packet?;
        self.oracle.on_delivered(side, &packet);
        (self.watcher.0)(Passage { now, side, arrives: true, is_lost: false }, &packet);
        Some(packet)
    }

    /// Updates the next arrival of a link, after a frame has entered or left it.
    fn note_due(&mut self, lane: usize, from: usize) {
        let Direction { link, due } = &mut self.lanes[lane][from];
        let next = link.deadline();
        if next != *due {
            let places = &mut self.due[from];
            due.iter().for_each(|at| _ = places.remove(&(*at, lane)));
            next.iter().for_each(|at| _ = places.insert((*at, lane)));
            *due = next;
        }
    }
}

/// FNV-1a, eight bytes at a time: it only needs to show any difference.
pub(crate) fn fold(digest: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(digest ^ bytes.len() as u64, |digest, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (digest ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

/// One end of a cable, as a shard's device.
#[derive(Debug)]
pub struct Port {
    cable: Rc<RefCell<Cable>>,
    side: Side,
    capabilities: Capabilities,
}

impl Port {
    /// The next frame that has arrived.
    pub(crate) fn take(&self, now: Instant) -> Option<Packet> {
        self.cable.borrow_mut().take(now, self.side)
    }

    /// Gives a frame's buffer back.
    pub(crate) fn recycle(&self, packet: Packet) {
        self.cable.borrow_mut().spare.push(packet);
    }

    /// Sends what the shard of that index has to send.
    pub(crate) fn send(&self, now: Instant, shard: u16, outbox: &mut Outbox) {
        self.cable.borrow_mut().send(now, self.side, shard, outbox);
    }
}

impl Device for Port {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let next = || self.take(now);
        let arrived: Vec<Packet> = std::iter::from_fn(next).take(budget).collect();
        in_bursts(arrived.iter().map(|packet| RxFrame::plain(packet)), &mut *sink);
        let received = arrived.len();
        self.cable.borrow_mut().spare.extend(arrived);
        Ok(received)
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        self.send(now, 0, outbox);
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        self.cable.borrow().due[self.side.other().index()].first().map(|(at, _)| *at)
    }
}
