//! Packet pair over a packet socket and a link of a known rate, by a stack that looks at its device
//! so seldom that a turn takes in many acknowledgements at once: their spacing is the kernel's.

use std::io::Read;
use std::net::{SocketAddr, TcpListener as KernelListener};
use std::thread;
use std::time::{Duration, Instant as Moment};

use lightwait::clock::Clock;
use lightwait::device::{AfPacket, Device};
use lightwait_core::{
    Capabilities, Config, ConnectionId, Event, Host, Instant, Medium, Outbox, RxFrame,
};

use crate::frames::OUR_MAC;
use crate::namespace;

const RATE_MBIT: f64 = 20.0;
/// Between two turns: some 16 ACKs come meanwhile.
const TURN: Duration = Duration::from_millis(20);
/// What the link carries of a full segment with timestamps, and the payload in it, in bytes.
const WIRE: f64 = 1514.0 / 1448.0;

/// A sender of bulk data that is driven by hand.
struct Sender {
    host: Host,
    device: AfPacket,
    outbox: Outbox,
    clock: Clock,
    id: ConnectionId,
}

impl Sender {
    fn new(to: SocketAddr) -> Sender {
        let plain = Capabilities::plain(Medium::Ethernet, 1500);
        let config = Config::new(plain, "10.77.0.2/24".parse().unwrap(), [3; 32]);
        let mut host = Host::new(Config { hardware: OUR_MAC, ..config }).unwrap();
        let device = AfPacket::open("lw0", false).unwrap();
        let (clock, outbox) = (Clock::new(), Outbox::new(256));
        let id = host.connect(clock.now(), "10.77.0.2:0".parse().unwrap(), to).unwrap();
        Sender { host, device, outbox, clock, id }
    }

    /// A turn; frames go to the host as `seen` makes them.
    fn turn(&mut self, seen: fn(&RxFrame<'_>) -> Instant) {
        let Sender { host, device, outbox, clock, id } = self;
        let now = clock.now();
        let mut sink = |frames: &[RxFrame<'_>]| {
            let frames = frames.iter().map(|frame| RxFrame { arrived: seen(frame), ..*frame });
            host.on_frames(now, &frames.collect::<Vec<_>>());
        };
        device.receive(now, 1024, &mut sink).unwrap();
        host.on_time(now);
        while let Some(event) = host.event() {
            assert!(matches!(event, Event::Ready(..) | Event::Addresses), "{event:?}");
        }
        while host.write(now, *id, &[b'd'; 4096]).is_ok_and(|len| len == 4096) {}
        host.emit(now, outbox);
        device.transmit(now, outbox).unwrap();
    }

    /// Mbit/s on the wire by packet pair, after so long.
    fn estimate(mut self, long: Duration, seen: fn(&RxFrame<'_>) -> Instant) -> Option<f64> {
        let end = Moment::now() + long;
        while Moment::now() < end {
            self.turn(seen);
            thread::sleep(TURN);
        }
        let rate = self.host.info(self.id).unwrap().bottleneck_bytes_per_second;
        rate.map(|bytes| bytes as f64 * 8.0 * WIRE / 1e6)
    }
}

/// Takes in what comes, on connection after connection.
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
fn packet_pair_finds_the_rate_of_a_link_by_the_kernel_s_receive_times() {
    let test = "packet_pair::packet_pair_finds_the_rate_of_a_link_by_the_kernel_s_receive_times";
    namespace::inside(test, || {
        crate::veth();
        namespace::run("ethtool", "-K lw1 tx off tso off gso off gro off");
        let limit =
            format!("qdisc add dev lw0 root tbf rate {RATE_MBIT}mbit burst 1600 limit 200k");
        namespace::run("tc", &limit);
        let server = listener();
        let long = Duration::from_secs(4);
        let found = Sender::new(server).estimate(long, |frame| frame.arrived);
        let error = found.map(|mbit| (mbit / RATE_MBIT - 1.0).abs());
        assert!(error.is_some_and(|error| error < 0.2), "{found:?} Mbit/s");
        // By the turn's time alone it cannot be found: so the above is shown by the stamps.
        let blind = Sender::new(server).estimate(long, |_| Instant::FAR_FUTURE);
        let error = blind.map(|mbit| (mbit / RATE_MBIT - 1.0).abs());
        assert!(error.is_none_or(|error| error > 0.2), "{blind:?} Mbit/s by turns");
        eprintln!("{found:.2?} Mbit/s of {RATE_MBIT}; by turns {blind:.2?}");
    });
}
