//! Idle connections cost no time: their shard sleeps until a timer is due, or until the next tick
//! with the schemes that tick.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lightwait::device::memory::{MemoryDevice, Wire};
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::{Handle, Shard};
use lightwait_core::address::Cidr;
use lightwait_core::config::Scheme;
use lightwait_core::flow::Seq;
use lightwait_core::frame::{RxChecksum, RxFrame};
use lightwait_core::tcp::Keepalive;
use lightwait_core::wire::ip::{self, Packet};
use lightwait_core::wire::options::Options;
use lightwait_core::wire::tcp::{Flags, Header, Segment};
use lightwait_core::{Capabilities, Config, Instant, Medium};

const CONNECTIONS: u32 = if cfg!(debug_assertions) { 10_000 } else { 1_000_000 };
/// Connections opened together: no more frames than a shard receives at once.
const TOGETHER: u32 = 100;
/// Ports of each client, from 1024 on.
const PORTS: u32 = 50_000;
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const TICK: Duration = Duration::from_millis(1);

/// One crowd at a time: each takes a gigabyte or two.
static ALONE: Mutex<()> = Mutex::new(());

/// A segment of the server's: the client's number, flags, sequence number and acknowledgement.
type Heard = (u32, Flags, Seq, Seq);

/// A shard with a server, and clients by the million; the test writes every segment of theirs.
struct Crowd {
    now: Instant,
    shard: Shard,
    wire: Wire,
    streams: Rc<RefCell<Vec<TcpStream>>>,
    /// The server's ISN of the first client's connection.
    first: Seq,
}

impl Crowd {
    fn new(scheme: Scheme) -> Crowd {
        let capabilities = Capabilities::plain(Medium::Ip, 1500);
        let mut config = Config::new(capabilities, Cidr::new(SERVER, 8).unwrap(), [1; 32]);
        config.tcp.ack.quick = 0;
        config.tcp.timers = scheme;
        config.limits.connections = CONNECTIONS as usize;
        config.limits.pages = 1 << 26;
        config.limits.receive_window_bytes = 1 << 38;
        let (device, wire) = MemoryDevice::with_wire(capabilities, 1024);
        let shard = Shard::in_made_time(config, Box::new(device)).unwrap();
        let streams: Rc<RefCell<Vec<TcpStream>>> = Rc::default();
        accept(&shard.handle(), streams.clone());
        Crowd { now: Instant::from_millis(1_000), shard, wire, streams, first: Seq(0) }
    }

    fn say(&mut self, client: u32, flags: Flags, seq: u32, ack: Seq, payload: &[u8]) {
        let source = Ipv4Addr::from_bits(0x0a01_0000 + client / PORTS).into();
        let header = Header {
            source_port: (1024 + client % PORTS) as u16,
            destination_port: 80,
            seq: Seq(seq),
            ack,
            flags,
            window: 60_000,
            urgent: 0,
            options: Options::default(),
        };
        let len = header.header_len() + payload.len();
        let mut bytes = Vec::new();
        ip::Header::new(source, SERVER, ip::protocol::TCP, len).unwrap().emit(&mut bytes);
        header.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        let frame = RxFrame { checksum: RxChecksum::Good, ..RxFrame::plain(&bytes) };
        assert!(self.wire.inject(frame), "a ring holds them");
    }

    /// Runs turns until there is nothing more to do at once. Returns the time of the next work.
    fn sleep(&mut self) -> Option<Instant> {
        loop {
            let next = self.shard.turn(self.now);
            if next.is_none_or(|next| next > self.now) {
                return next;
            }
        }
    }

    /// The segments that the server has sent.
    fn hear(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        while let Some(frame) = self.wire.drain() {
            let packet = Packet::parse(&frame.bytes).unwrap();
            let IpAddr::V4(address) = packet.destination else { panic!("not ours") };
            let segment = Segment::parse(packet.payload).unwrap();
            let port = u32::from(segment.destination_port) - 1024;
            let client = (address.to_bits() - 0x0a01_0000) * PORTS + port;
            heard.push((client, segment.flags, segment.seq, segment.ack));
            self.wire.recycle(frame);
        }
        heard
    }

    fn open_all(&mut self) {
        for first in (0..CONNECTIONS).step_by(TOGETHER as usize) {
            for client in first..first + TOGETHER {
                self.say(client, Flags::SYN, 0, Seq(0), &[]);
            }
            self.sleep();
            let heard = self.hear();
            assert_eq!(heard.len(), TOGETHER as usize);
            for (client, flags, seq, _) in heard {
                assert_eq!(flags, Flags::SYN | Flags::ACK);
                self.say(client, Flags::ACK, 1, seq + 1, &[]);
                if client == 0 {
                    self.first = seq;
                }
            }
            self.sleep();
        }
        assert_eq!(self.streams.borrow().len(), CONNECTIONS as usize);
    }
}

fn accept(handle: &Handle, streams: Rc<RefCell<Vec<TcpStream>>>) {
    let listener = TcpListener::bind_on(handle, (SERVER, 80)).unwrap();
    handle.spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            streams.borrow_mut().push(stream);
        }
    });
}

impl Crowd {
    /// Without traffic, the shard wakes up to let its connections rest, and then never again.
    fn rest(&mut self) {
        let mut wakeups = 0;
        while let Some(at) = self.sleep() {
            self.now = at;
            wakeups += 1;
        }
        assert!(wakeups <= 2, "{wakeups}");
    }

    /// One client sends data, and its ACK is delayed.
    fn whisper(&mut self) {
        self.say(0, Flags::ACK, 1, self.first + 1, b"x");
    }

    /// The server's answer to that.
    fn ack(&self) -> Heard {
        (0, Flags::ACK, self.first + 1, Seq(2))
    }

    /// Sets a timer on all connections.
    fn keep_alive(&mut self, idle: Duration) {
        for stream in self.streams.borrow().iter() {
            let mut options = stream.options().unwrap();
            options.keepalive = Some(Keepalive { idle, interval: idle, probes: 1 });
            stream.set_options(options).unwrap();
        }
    }

    /// Lets time pass until the server sends. Returns the times at which it woke up, and its
    /// segments.
    fn wait(&mut self) -> (Vec<Instant>, Vec<Heard>) {
        let mut wakeups = Vec::new();
        loop {
            self.now = self.sleep().expect("timers are set");
            wakeups.push(self.now);
            self.shard.turn(self.now);
            let heard = self.hear();
            if !heard.is_empty() {
                return (wakeups, heard);
            }
            assert!(wakeups.len() < 100, "awake at {} with nothing due", self.now);
        }
    }
}

/// The shard wakes up when a timer is due, and otherwise only for an entry that is early.
fn sleeps_until_something_is_due(scheme: Scheme) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut crowd = Crowd::new(scheme);
    crowd.open_all();
    crowd.rest();

    crowd.whisper();
    let asked = crowd.now;
    let due = crowd.sleep().expect("a delayed ACK");
    let delay = due.since(asked);
    assert!(delay >= Duration::from_millis(50) && delay <= Duration::from_millis(150) + TICK);
    crowd.now = Instant::from_nanos(due.as_nanos() - 1);
    assert_eq!((crowd.sleep(), crowd.hear()), (Some(due), vec![]));
    crowd.now = due;
    crowd.rest();
    assert_eq!(crowd.hear(), [crowd.ack()]);

    let idle = Duration::from_secs(7200);
    crowd.keep_alive(idle);
    let armed = crowd.now;
    let (wakeups, heard) = crowd.wait();
    assert!(wakeups.len() <= 4, "{wakeups:?}");
    assert_eq!(heard[0].1, Flags::ACK);
    let waited = crowd.now.since(armed);
    assert!(waited >= idle && waited <= idle + TICK, "{waited:?}");
}

/// The shard wakes up every 200 and every 500 ms from the first timer on, like 4.4BSD, and never in
/// between.
fn wakes_with_the_ticks(scheme: Scheme) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut crowd = Crowd::new(scheme);
    crowd.open_all();
    assert_eq!(crowd.sleep(), None, "for ever, if no timer was ever set");

    crowd.whisper();
    let (wakeups, heard) = crowd.wait();
    assert_eq!((wakeups, heard), (vec![Instant::from_millis(1_200)], vec![crowd.ack()]));
    crowd.keep_alive(Duration::from_secs(2));
    let (wakeups, heard) = crowd.wait();
    let ticks = (1_201..).filter(|ms| ms % 200 == 0 || ms % 500 == 0);
    let expected: Vec<Instant> = ticks.take(wakeups.len()).map(Instant::from_millis).collect();
    assert_eq!(wakeups, expected, "fast and slow ticks and nothing else");
    assert_eq!(crowd.now, Instant::from_millis(3_000), "four slow ticks later");
    assert_eq!(heard[0].1, Flags::ACK);
}

/// A million connections in a release build.
#[test]
fn a_shard_of_many_idle_connections_sleeps_until_one_is_due() {
    sleeps_until_something_is_due(Scheme::Inline);
}

#[test]
fn with_the_eager_wheel_it_sleeps_as_long() {
    sleeps_until_something_is_due(Scheme::Wheel);
}

#[test]
fn with_the_scan_it_wakes_with_each_tick_and_no_sooner() {
    wakes_with_the_ticks(Scheme::Scan);
}

#[test]
fn with_the_ordered_list_it_wakes_with_each_tick_and_no_sooner() {
    wakes_with_the_ticks(Scheme::OrderedList);
}
