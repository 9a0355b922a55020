//! Packet pair over devices and a link of a known rate. If a stack turns so seldom that one turn
//! receives many acknowledgements, it needs the kernel's receive times, which a packet socket
//! reports and a TAP does not.

use std::io::Read;
use std::net::{SocketAddr, TcpListener as KernelListener};
use std::thread;
use std::time::{Duration, Instant as Moment};

use lightwait::clock::Clock;
use lightwait::device::{AfPacket, Device, Tap, TapConfig};
use lightwait_core::{
    Capabilities, Config, ConnectionId, Event, Host, Instant, Medium, Outbox, RxFrame,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::frames::OUR_MAC;
use crate::namespace;

const RATE_MBIT: f64 = 20.0;
/// Time between two turns: some 16 ACKs come meanwhile.
const TURN: Duration = Duration::from_millis(20);
/// Bytes on the link for a full segment with timestamps, over the payload in it.
const WIRE: f64 = 1514.0 / 1448.0;
/// The longest time that an estimate may take.
const LONG: Duration = Duration::from_secs(4);

/// The time of the next turn.
#[derive(Clone, Copy)]
enum Next {
    /// After [`TURN`], even if frames come meanwhile.
    Late,
    /// As soon as a frame has come.
    Woken,
}

/// The arrival time given to a frame.
#[derive(Clone, Copy)]
enum Arrival {
    /// The device's receive time.
    Told,
    /// The turn's time.
    Turn,
    /// The time of the read: frames are read one by one, with a reading of the clock for each.
    Read,
}

/// A sender of bulk data that the test drives by hand.
struct Sender {
    host: Host,
    device: Box<dyn Device>,
    outbox: Outbox,
    clock: Clock,
    id: ConnectionId,
}

impl Sender {
    fn new(device: Box<dyn Device>, to: SocketAddr) -> Sender {
        let plain = Capabilities::plain(Medium::Ethernet, 1500);
        let config = Config::new(plain, "10.77.0.2/24".parse().unwrap(), [3; 32]);
        let mut host = Host::new(Config { hardware: OUR_MAC, ..config }).unwrap();
        let (clock, outbox) = (Clock::new(), Outbox::new(256));
        let id = host.connect(clock.now(), "10.77.0.2:0".parse().unwrap(), to).unwrap();
        Sender { host, device, outbox, clock, id }
    }

    fn turn(&mut self, arrival: Arrival) {
        let Sender { host, device, outbox, clock, id } = self;
        let now = clock.now();
        let seen = |frame: &RxFrame<'_>| match arrival {
            Arrival::Told => frame.arrived,
            Arrival::Turn => Instant::FAR_FUTURE,
            Arrival::Read => clock.now(),
        };
        let mut sink = |frames: &[RxFrame<'_>]| {
            let frames = frames.iter().map(|frame| RxFrame { arrived: seen(frame), ..*frame });
            host.on_frames(now, &frames.collect::<Vec<_>>());
        };
        let budget = if matches!(arrival, Arrival::Read) { 1 } else { 1024 };
        while device.receive(now, budget, &mut sink).unwrap() == budget {}
        host.on_time(now);
        while let Some(event) = host.event() {
            assert!(matches!(event, Event::Ready(..) | Event::Addresses), "{event:?}");
        }
        while host.write(now, *id, &[b'd'; 4096]).is_ok_and(|len| len == 4096) {}
        host.emit(now, outbox);
        device.transmit(now, outbox).unwrap();
    }

    fn wait(&self, next: Next) {
        match next {
            Next::Late => thread::sleep(TURN),
            Next::Woken => {
                let fd = self.device.wait_on().unwrap();
                let timeout = Timespec { tv_sec: 0, tv_nsec: TURN.subsec_nanos().into() };
                poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
            }
        }
    }

    /// Packet pair's estimate of the rate on the wire, in Mbit/s.
    fn estimate(mut self, next: Next, arrival: Arrival) -> Option<f64> {
        let end = Moment::now() + LONG;
        while Moment::now() < end {
            self.turn(arrival);
            self.wait(next);
        }
        let rate = self.host.info(self.id).unwrap().bottleneck_bytes_per_second;
        rate.map(|bytes| bytes as f64 * 8.0 * WIRE / 1e6)
    }
}

/// True if there is an estimate, and its relative error is less than `part`.
fn is_within(part: f64, mbit: Option<f64>) -> bool {
    mbit.is_some_and(|mbit| (mbit / RATE_MBIT - 1.0).abs() < part)
}

/// Limits the rate of the frames that leave by this interface.
fn limit_rate(interface: &str) {
    let limit =
        format!("qdisc add dev {interface} root tbf rate {RATE_MBIT}mbit burst 1600 limit 200k");
    namespace::run("tc", &limit);
}

/// Reads everything on connection after connection.
fn listener() -> SocketAddr {
    let listener = KernelListener::bind("10.77.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || while stream.read(&mut [0; 65_536]).is_ok_and(|len| len > 0) {});
        }
    });
    address
}

#[test]
fn packet_pair_finds_a_links_rate_by_the_kernels_receive_times() {
    let test = "packet_pair::packet_pair_finds_a_links_rate_by_the_kernels_receive_times";
    namespace::inside(test, || {
        crate::veth();
        namespace::run("ethtool", "-K lw1 tx off tso off gso off gro off");
        limit_rate("lw0");
        let server = listener();
        let estimate = |arrival| {
            let device = Box::new(AfPacket::open("lw0", false).unwrap());
            Sender::new(device, server).estimate(Next::Late, arrival)
        };
        let found = estimate(Arrival::Told);
        assert!(is_within(0.2, found), "{found:?} Mbit/s");
        // The turn's time alone gives no estimate, so the result above comes from the receive
        // times.
        let blind = estimate(Arrival::Turn);
        assert!(!is_within(0.2, blind), "{blind:?} Mbit/s by turns");
        eprintln!("{found:.2?} Mbit/s of {RATE_MBIT}; by turns {blind:.2?}");
    });
}

/// An open TAP on a bridge with one end of a veth; the kernel listens at the other end, behind a
/// link with a limited rate.
fn bridged_tap() -> Tap {
    let tap = Tap::open(&TapConfig { offload: false, ..TapConfig::new("lw0") }).unwrap();
    namespace::ip("link add br0 type bridge");
    namespace::ip("link add lw1 type veth peer name lw2");
    // The bridge receives the same ARP requests, and the listener's address is not its own.
    std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").unwrap();
    namespace::ip("addr add 10.77.0.1/24 dev lw2");
    for interface in ["lw1", "lw2"] {
        namespace::run("ethtool", &format!("-K {interface} tx off tso off gso off gro off"));
    }
    for change in ["lw0 master br0", "lw1 master br0", "lw1 up", "lw2 up", "br0 up"] {
        namespace::ip(&format!("link set {change}"));
    }
    limit_rate("lw1");
    tap
}

#[test]
fn on_a_tap_only_a_stack_that_each_frame_wakes_finds_the_rate() {
    let test = "packet_pair::on_a_tap_only_a_stack_that_each_frame_wakes_finds_the_rate";
    namespace::inside(test, || {
        if !namespace::can_make_tap() {
            return;
        }
        let tap = bridged_tap();
        let server = listener();
        let estimate = |next, arrival| {
            let fd = tap.wait_on().unwrap().try_clone_to_owned().unwrap();
            Sender::new(Box::new(Tap::from_fd(fd).unwrap()), server).estimate(next, arrival)
        };
        let woken = estimate(Next::Woken, Arrival::Told);
        assert!(is_within(0.5, woken), "{woken:?} Mbit/s");
        // A TAP reports no receive times: all frames of a turn have one time.
        let late = estimate(Next::Late, Arrival::Told);
        assert!(!is_within(0.5, late), "{late:?} Mbit/s by turns");
        // Reading the clock for each frame measures how fast frames leave the queue.
        let read = estimate(Next::Late, Arrival::Read);
        assert!(!is_within(0.5, read), "{read:?} Mbit/s by the time of reading");
        eprintln!(
            "woken {woken:.2?} Mbit/s of {RATE_MBIT}; late {late:.2?}; by reading {read:.2?}"
        );
    });
}
