//! A device that plays the rest of the world. Some connections send the load. Others send a segment
//! now and then, whose delayed ACK must leave when its timer fires.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use lightwait::device::{Device, Sink};
use lightwait_core::flow::Seq;
use lightwait_core::frame::RxChecksum;
use lightwait_core::time::Duration;
use lightwait_core::wire::ip::{self, Packet};
use lightwait_core::wire::options::Options;
use lightwait_core::wire::tcp::{Flags, Header, Segment};
use lightwait_core::{Capabilities, Instant, Medium, Outbox, RxFrame};
use rustix::time::{ClockId, clock_gettime};

pub(super) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(super) const PORT: u16 = 80;
/// The first client port; each connection has one.
const FIRST_PORT: u16 = 1024;

/// Connections that carry the load.
const BUSY: usize = 256;
/// Connections whose timers are watched.
const WATCHED: usize = 1000;
pub(super) const CONNECTIONS: usize = BUSY + WATCHED;
/// The time between two requests for a delayed ACK; a watched connection makes one every half
/// second.
const BETWEEN: Duration = Duration::from_micros(500);
/// The delay of an ACK.
pub(super) const DELAY: Duration = Duration::from_millis(100);
/// The scheduling clock's resolution: a timer is due at the first tick at or after its deadline.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Payload of a segment of the load, and of one that requests an ACK.
const BUSY_BYTES: usize = 1448;
const WATCHED_BYTES: usize = 100;
/// The most unacknowledged bytes of a connection.
const WINDOW_BYTES: u32 = 32 << 10;
/// The place of a segment's sequence number: after an IPv4 header without options, and the ports.
const SEQ_AT: usize = 20 + 4;

/// The load besides the watched connections.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    Nothing,
    /// Frames a second.
    Rate(f64),
    /// There is always one more frame.
    Saturated,
}

/// Processor time of this thread, without other programs' time.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// One connection, from the client's side.
struct Flow {
    /// Its next segment, without the sequence number.
    frame: Vec<u8>,
    payload_bytes: u32,
    next: Seq,
    acked: Seq,
    is_open: bool,
    /// The time at which its requested ACK is due.
    due: Option<Instant>,
}

/// All connections, and the results of their timers.
pub(super) struct Traffic {
    flows: Vec<Flow>,
    handshakes: VecDeque<Vec<u8>>,
    load: Load,
    /// The beginning of the load, and the number of its frames so far.
    begun: Instant,
    carried: u64,
    /// The next connection to send.
    busy: usize,
    watched: usize,
    next_request: Instant,
    /// The beginning of the shard's present turn, in processor time.
    turn: Duration,
    /// The lateness of each ACK, in µs.
    pub(super) late_us: Vec<f64>,
    pub(super) requests: u64,
}

fn frame(port: u16, flags: Flags, (seq, ack): (Seq, Seq), payload: &[u8]) -> Vec<u8> {
    let header = Header {
        source_port: port,
        destination_port: PORT,
        seq,
        ack,
        flags,
        window: 60_000,
        urgent: 0,
        options: Options::default(),
    };
    let mut bytes = Vec::new();
    let len = header.header_len() + payload.len();
    if let Some(ip) = ip::Header::new(CLIENT, SERVER, ip::protocol::TCP, len) {
        ip.emit(&mut bytes);
    }
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

impl Traffic {
    /// Every connection begins with a SYN.
    pub(super) fn new() -> Traffic {
        let port = |number: usize| FIRST_PORT + number as u16;
        let syn = |number| frame(port(number), Flags::SYN, (Seq(0), Seq(0)), &[]);
        let flow = |number: usize| Flow {
            frame: Vec::new(),
            payload_bytes: if number < BUSY { BUSY_BYTES } else { WATCHED_BYTES } as u32,
            next: Seq(1),
            acked: Seq(1),
            is_open: false,
            due: None,
        };
        Traffic {
            flows: (0..CONNECTIONS).map(flow).collect(),
            handshakes: (0..CONNECTIONS).map(syn).collect(),
            load: Load::Nothing,
            begun: Instant::FAR_FUTURE,
            carried: 0,
            busy: 0,
            watched: 0,
            next_request: Instant::FAR_FUTURE,
            turn: Duration::ZERO,
            late_us: Vec::new(),
            requests: 0,
        }
    }

    pub(super) fn all_are_open(&self) -> bool {
        self.handshakes.is_empty() && self.flows.iter().all(|flow| flow.is_open)
    }

    /// Starts `load` at `now`, and watches timers from then on.
    pub(super) fn begin(&mut self, load: Load, now: Instant) {
        (self.load, self.begun, self.next_request) = (load, now, now);
    }

    /// The shard begins a turn.
    pub(super) fn begin_turn(&mut self) {
        self.turn = processor_time();
    }

    /// Frames of the load so far.
    pub(super) fn carried(&self) -> u64 {
        self.carried
    }

    /// The real time in a turn that began at `now`: the shard treats the whole turn as one moment.
    fn inside(&self, now: Instant) -> Instant {
        now + self.spent()
    }

    /// The processor time of the shard's present turn so far.
    pub(super) fn spent(&self) -> Duration {
        processor_time() - self.turn
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> usize {
        let inside = self.inside(now);
        let mut received = 0;
        while received < budget {
            if let Some(bytes) = self.handshakes.pop_front() {
                hand_over(&bytes, sink);
            } else if self.next_request <= inside {
                self.next_request = self.next_request + BETWEEN;
                self.ask(now, sink);
            } else if self.awaits_more(inside) && self.carry(sink) {
                self.carried += 1;
            } else {
                break;
            }
            received += 1;
        }
        received
    }

    /// The next watched connection sends a segment that is not acknowledged at once.
    fn ask(&mut self, now: Instant, sink: &mut Sink<'_>) {
        let flow = &mut self.flows[BUSY + self.watched];
        self.watched = (self.watched + 1) % WATCHED;
        let due_ns = (now + DELAY).as_nanos().next_multiple_of(TICK.as_nanos() as u64);
        let earlier = flow.due.replace(Instant::from_nanos(due_ns));
        assert!(earlier.is_none(), "half a second late");
        self.requests += 1;
        flow.send(sink);
    }

    fn awaits_more(&self, inside: Instant) -> bool {
        match self.load {
            Load::Nothing => false,
            Load::Rate(rate) => {
                (self.carried as f64) < inside.since(self.begun).as_secs_f64() * rate
            }
            Load::Saturated => self.begun <= inside,
        }
    }

    /// The next busy connection with room in its window sends. Returns false if there is none.
    fn carry(&mut self, sink: &mut Sink<'_>) -> bool {
        for _ in 0..BUSY {
            let flow = &mut self.flows[self.busy];
            self.busy = (self.busy + 1) % BUSY;
            if flow.next.since(flow.acked) + flow.payload_bytes <= WINDOW_BYTES {
                flow.send(sink);
                return true;
            }
        }
        false
    }

    /// The shard has sent a frame.
    fn on_frame(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        let Ok(segment) = Segment::parse(packet.payload) else { return };
        let number = usize::from(segment.destination_port - FIRST_PORT);
        let flow = &mut self.flows[number];
        if segment.flags.contains(Flags::SYN) {
            let ack = segment.seq + 1;
            let port = segment.destination_port;
            let payload = vec![7; flow.payload_bytes as usize];
            flow.frame = frame(port, Flags::ACK, (Seq(1), ack), &payload);
            flow.is_open = true;
            self.handshakes.push_back(frame(port, Flags::ACK, (Seq(1), ack), &[]));
            return;
        }
        flow.acked = segment.ack;
        if let Some(due) = flow.due.take() {
            let left = self.inside(now);
            assert!(left >= due, "an ACK before its time");
            self.late_us.push(left.since(due).as_secs_f64() * 1e6);
        }
    }

    /// The time of the next arrival.
    fn next_arrival(&self) -> Instant {
        if !self.handshakes.is_empty() {
            return Instant::ZERO;
        }
        match self.load {
            Load::Nothing => self.next_request,
            Load::Rate(rate) => {
                let next = Duration::from_secs_f64(self.carried as f64 / rate);
                self.next_request.min(self.begun + next)
            }
            Load::Saturated => Instant::ZERO,
        }
    }
}

impl Flow {
    fn send(&mut self, sink: &mut Sink<'_>) {
        self.frame[SEQ_AT..][..4].copy_from_slice(&self.next.0.to_be_bytes());
        self.next += self.payload_bytes;
        hand_over(&self.frame, sink);
    }
}

/// Hands a frame over like a card that has verified the checksum.
fn hand_over(bytes: &[u8], sink: &mut Sink<'_>) {
    sink(&[RxFrame { checksum: RxChecksum::Good, ..RxFrame::plain(bytes) }]);
}

/// The shard's end.
#[derive(Clone)]
pub(super) struct Line(pub(super) Rc<RefCell<Traffic>>);

impl Device for Line {
    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(Medium::Ip, 1500)
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        Ok(self.0.borrow_mut().receive(now, budget, sink))
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        let mut traffic = self.0.borrow_mut();
        while let Some(frame) = outbox.take() {
            traffic.on_frame(now, &frame.head);
            outbox.recycle(frame);
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.0.borrow().next_arrival())
    }
}
