//! No scheme allocates to set, cancel, re-arm or fire a timer. Nor does the engine, from a
//! segment's arrival to the frame that answers it, once its tables have their size. Only the
//! recovery after a retransmission timeout has a block of its own while it lasts.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lightwait_core::address::Cidr;
use lightwait_core::config::{Estimator, Scheme, TcpConfig};
use lightwait_core::flow::Seq;
use lightwait_core::frame::RxChecksum;
use lightwait_core::tcp::Keepalive;
use lightwait_core::wire::ip::{self, Packet};
use lightwait_core::wire::options::Options;
use lightwait_core::wire::tcp::{Flags, Header, Segment};
use lightwait_core::{
    Capabilities, Config, ConnectionId, Host, Instant, ListenerId, Medium, Outbox, RxFrame,
};
use lightwait_heap::Heap;

#[global_allocator]
static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

const SCHEMES: [Scheme; 4] = [Scheme::Inline, Scheme::Wheel, Scheme::Scan, Scheme::OrderedList];
const CONNECTIONS: u16 = 400;
/// Enough connections that memory kept for later ones does not count.
const BURST: u16 = 20_000;
const FIRST_PORT: u16 = 2000;
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 };
const ASKED: &[u8] = &[b'?'; 10];
/// Three full segments without options, to a peer without a maximum segment size option.
const BURST_SEGMENTS: usize = 3;
const BURST_BYTES: usize = 536 * BURST_SEGMENTS;
const ANSWER: &[u8] = &[b'!'; 100];

/// The peer's end of a connection.
#[derive(Clone, Copy, Debug)]
struct End {
    id: ConnectionId,
    /// SND.NXT of the peer.
    seq: Seq,
    /// The peer's RCV.NXT.
    ack: Seq,
    /// Segments with data that the host has sent, and segments without.
    heard: (usize, usize),
}

/// A host with connections; the bench writes every segment of the peer. It counts only the host's
/// allocations.
struct Bench {
    host: Host,
    listener: ListenerId,
    outbox: Outbox,
    now: Instant,
    ends: Vec<End>,
    allocations: usize,
    /// Bytes that the host has allocated and not freed.
    held: isize,
    bytes: Vec<u8>,
}

impl Bench {
    fn new(scheme: Scheme) -> Bench {
        Bench::with(scheme, CONNECTIONS)
    }

    fn with(scheme: Scheme, connections: u16) -> Bench {
        let mut bench = Bench::of(connections, |config| config.timers = scheme);
        for number in 0..connections {
            bench.begin(number);
        }
        bench
    }

    /// A bench without connections.
    fn of(connections: u16, set: impl FnOnce(&mut TcpConfig)) -> Bench {
        let capabilities = Capabilities::plain(Medium::Ip, 1500);
        let mut config = Config::new(capabilities, Cidr::new(HOST, 24).unwrap(), [3; 32]);
        config.tcp.ack.quick = 0;
        set(&mut config.tcp);
        let mut host = Host::new(config).unwrap();
        let listener = host.listen(SocketAddr::new(HOST, 80), connections.into()).unwrap();
        Bench {
            host,
            listener,
            outbox: Outbox::new(2 * usize::from(CONNECTIONS)),
            now: Instant::from_millis(1_000_000),
            ends: Vec::new(),
            allocations: 0,
            held: 0,
            bytes: Vec::new(),
        }
    }

    /// Adds a connection.
    fn begin(&mut self, number: u16) {
        let isn = self.open(number);
        let (now, listener) = (self.now, self.listener);
        let id = self.let_it(|host, _, _| host.accept(now, listener)).expect("it is open");
        let mut options = self.host.options(id).unwrap();
        options.keepalive = Some(KEEPALIVE);
        self.let_it(|host, _, now| host.set_options(now, id, options)).unwrap();
        self.ends.push(End { id, seq: Seq(1), ack: isn + 1, heard: (0, 0) });
    }

    /// Lets the host act, and counts its allocations.
    fn let_it<R>(&mut self, act: impl FnOnce(&mut Host, &mut Outbox, Instant) -> R) -> R {
        let heap = Heap::new();
        let result = act(&mut self.host, &mut self.outbox, self.now);
        self.allocations += heap.allocations();
        self.held += heap.bytes();
        result
    }

    fn say(&mut self, number: u16, flags: Flags, (seq, ack): (Seq, Seq), payload: &[u8]) {
        let header = Header {
            source_port: FIRST_PORT + number,
            destination_port: 80,
            seq,
            ack,
            flags,
            window: 60_000,
            urgent: 0,
            options: Options::default(),
        };
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let len = header.header_len() + payload.len();
        ip::Header::new(PEER, HOST, ip::protocol::TCP, len).unwrap().emit(&mut bytes);
        header.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        self.let_it(|host, _, now| {
            let frame = RxFrame { checksum: RxChecksum::Good, ..RxFrame::plain(&bytes) };
            host.on_frame(now, frame);
        });
        self.bytes = bytes;
    }

    /// The handshake; returns the host's ISN.
    fn open(&mut self, number: u16) -> Seq {
        self.say(number, Flags::SYN, (Seq(0), Seq(0)), &[]);
        self.let_it(|host, outbox, now| host.emit(now, outbox));
        let frame = self.outbox.take().expect("SYN, ACK");
        self.bytes.clear();
        frame.complete_to(&mut self.bytes);
        self.let_it(|_, outbox, _| outbox.recycle(frame));
        let isn = Segment::parse(Packet::parse(&self.bytes).unwrap().payload).unwrap().seq;
        self.say(number, Flags::ACK, (Seq(1), isn + 1), &[]);
        self.hear();
        isn
    }

    /// Runs a turn, and reads the frames that the host sends.
    fn hear(&mut self) {
        self.let_it(|host, outbox, now| {
            host.on_time(now);
            while host.event().is_some() {}
            host.emit(now, outbox);
        });
        while let Some(frame) = self.outbox.take() {
            self.bytes.clear();
            frame.complete_to(&mut self.bytes);
            let segment = Segment::parse(Packet::parse(&self.bytes).unwrap().payload).unwrap();
            let end = &mut self.ends[usize::from(segment.destination_port - FIRST_PORT)];
            match segment.payload.is_empty() {
                false => end.heard.0 += 1,
                true => end.heard.1 += 1,
            }
            self.let_it(|_, outbox, _| outbox.recycle(frame));
        }
    }

    fn each(&mut self, act: impl Fn(&mut Bench, u16)) {
        (0..CONNECTIONS).for_each(|number| act(self, number));
        self.hear();
    }

    /// The host sends data: its retransmission timers are set.
    fn answer(&mut self) {
        self.each(|bench, number| {
            let id = bench.ends[usize::from(number)].id;
            let written = bench.let_it(|host, _, now| host.write(now, id, ANSWER));
            assert_eq!(written, Ok(ANSWER.len()));
        });
    }

    /// The peer acknowledges `len` more bytes: the timers are re-armed, or cancelled.
    fn acknowledge(&mut self, len: usize) {
        self.each(|bench, number| {
            let end = &mut bench.ends[usize::from(number)];
            end.ack += len as u32;
            let at = (end.seq, end.ack);
            bench.say(number, Flags::ACK, at, &[]);
        });
    }

    /// The peer sends a request: timers of delayed ACKs are set.
    fn ask(&mut self) {
        self.each(|bench, number| {
            let end = &mut bench.ends[usize::from(number)];
            let (id, at) = (end.id, (end.seq, end.ack));
            end.seq += ASKED.len() as u32;
            bench.say(number, Flags::ACK, at, ASKED);
            let mut read = [0; ASKED.len()];
            let count = bench.let_it(|host, _, now| host.read(now, id, &mut read));
            assert_eq!(count, Ok(ASKED.len()));
        });
    }

    /// Runs until every end has received that many more segments.
    fn wait(&mut self, texts: usize, others: usize) {
        let before: Vec<End> = self.ends.clone();
        let has_heard = |(end, before): (&End, &End)| {
            end.heard.0 >= before.heard.0 + texts && end.heard.1 >= before.heard.1 + others
        };
        while !self.ends.iter().zip(&before).all(has_heard) {
            self.now = self.host.deadline().expect("timers are set").max(self.now);
            self.hear();
        }
    }

    /// Connections send a burst of segments, each acknowledged a while after the one before, and
    /// close, the peer first. Returns the bytes that the host then holds.
    fn pass(&mut self) -> isize {
        (0..CONNECTIONS).for_each(|number| self.begin(number));
        self.each(|bench, number| {
            let id = bench.ends[usize::from(number)].id;
            let written = bench.let_it(|host, _, now| host.write(now, id, &[0; BURST_BYTES]));
            assert_eq!(written, Ok(BURST_BYTES));
        });
        for _ in 0..BURST_SEGMENTS {
            self.now = self.now + Duration::from_millis(1);
            self.acknowledge(BURST_BYTES / BURST_SEGMENTS);
        }
        self.each(|bench, number| {
            let End { id, seq, ack, .. } = bench.ends[usize::from(number)];
            bench.say(number, Flags::FIN | Flags::ACK, (seq, ack), &[]);
            bench.let_it(|host, _, now| host.close(now, id));
        });
        self.each(|bench, number| {
            let End { seq, ack, .. } = bench.ends[usize::from(number)];
            bench.say(number, Flags::ACK, (seq + 1, ack + 1), &[]);
        });
        self.ends.clear();
        assert_eq!(self.host.connections(), 0);
        self.held
    }

    /// Runs every kind of timer event on each connection. Returns the number of allocations.
    fn round(&mut self) -> usize {
        self.allocations = 0;
        self.answer();
        self.acknowledge(ANSWER.len() / 2);
        self.acknowledge(ANSWER.len() / 2);
        self.ask();
        self.answer();
        self.acknowledge(ANSWER.len());
        self.ask();
        self.wait(0, 1);
        self.answer();
        self.wait(1, 0);
        self.acknowledge(ANSWER.len());
        self.now = self.now + Duration::from_micros(1_234_567);
        self.hear();
        self.allocations
    }
}

/// Rounds in which tables may grow to their size.
const FIRST_ROUNDS: usize = 3;

#[test]
fn no_scheme_allocates_to_set_cancel_rearm_or_fire_a_timer() {
    for scheme in SCHEMES {
        let mut bench = Bench::new(scheme);
        let first: usize = (0..FIRST_ROUNDS).map(|_| bench.round()).sum();
        assert!(first > 0, "{scheme:?}: whoever counts sees the tables grow");
        let later: Vec<usize> = (0..30).map(|_| bench.round()).collect();
        let recoveries = usize::from(CONNECTIONS);
        assert_eq!(later, [recoveries; 30], "{scheme:?}: nothing else than a block of each");
        let counters = *bench.host.counters();
        let rounds = (FIRST_ROUNDS + 30) as u64;
        assert_eq!(counters.timeouts, rounds * u64::from(CONNECTIONS), "{scheme:?}: all fired");
    }
}

/// Memory for many connections is given back when they are gone. The host keeps some for later
/// ones: blocks of 256 connections at most, and the tables' first pieces.
#[test]
fn what_a_burst_of_connections_took_is_given_back() {
    let mut bench = Bench::with(Scheme::Inline, BURST);
    let peak = bench.held;
    for end in bench.ends.clone() {
        bench.let_it(|host, _, now| host.abort(now, end.id));
    }
    while bench.host.wants_emit() {
        bench.hear();
    }
    assert_eq!(bench.host.connections(), 0);
    assert!(bench.held < peak / 20, "{} bytes of {peak} are still held", bench.held);
}

/// Connections leave behind neither the state of another RTT estimator nor the rates that a burst
/// has shown.
#[test]
fn connections_that_close_in_order_leave_no_memory_behind() {
    for estimator in [Estimator::Rfc6298, Estimator::Bsd] {
        let mut bench = Bench::of(CONNECTIONS, |config| config.rto.estimator = estimator);
        (0..FIRST_ROUNDS).for_each(|_| _ = bench.pass());
        let held = bench.held;
        (0..10).for_each(|_| assert_eq!(bench.pass(), held, "{estimator:?}"));
    }
}

/// A tree of timers, like a shard's for its tasks' sleeps, does allocate.
#[test]
fn a_timer_in_a_tree_allocates_and_whoever_counts_sees_it() {
    let mut timers = BTreeMap::new();
    let mut round = || {
        let heap = Heap::new();
        for number in 0..u64::from(CONNECTIONS) {
            timers.insert((number * 10, number), number);
            assert_eq!(timers.remove(&(number * 10, number)), Some(number));
            timers.insert((number * 20, number), number);
        }
        while timers.pop_first().is_some() {}
        heap.allocations()
    };
    (0..FIRST_ROUNDS).for_each(|_| _ = round());
    assert!(round() > 0);
}
