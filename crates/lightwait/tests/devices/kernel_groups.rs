//! Our multicast against the kernel's: who has joined a group hears it, both ways and over both IP
//! versions, and tshark sees what we tell routers and switches of it.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket as KernelSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use lightwait::device::{AfPacket, Device};
use lightwait::local::UdpSocket;
use lightwait::rt;
use lightwait::shard::Handle;

use crate::frames::OUR_MAC;
use crate::kernel_udp::exchange;
use crate::namespace;

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
const PORT: u16 = 5353;
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of an interface, as `ip` prints it.
fn index_of(interface: &str) -> u32 {
    let output = Command::new("ip").args(["-o", "link", "show", interface]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(':').next().unwrap().parse().unwrap()
}

/// tshark's reports of an interface, one a line, from when it has begun to watch. `None`: it is
/// not there, which a test of CI must not pass over.
fn watch(interface: &str) -> Option<Child> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-l", "-i", interface, "-f", "igmp or icmp6 or ip6"]);
    let ours = OUR_MAC.map(|byte| format!("{byte:02x}")).join(":");
    let reports = format!("eth.src == {ours} && (igmp.type == 0x22 || icmpv6.type == 143)");
    tshark.args(["-Y", &reports, "-T", "fields"]);
    for field in ["igmp.maddr", "igmp.record_type"] {
        tshark.args(["-e", field]);
    }
    for field in ["icmpv6.mldr.mar.multicast_address", "icmpv6.mldr.mar.record_type"] {
        tshark.args(["-e", field]);
    }
    let started = tshark.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut tshark = match started {
        Ok(tshark) => tshark,
        Err(error) if error.kind() == ErrorKind::NotFound && std::env::var_os("CI").is_none() => {
            eprintln!("without tshark nobody sees the reports");
            return None;
        }
        Err(error) => panic!("tshark: {error}"),
    };
    let mut said = BufReader::new(tshark.stderr.take().unwrap()).lines();
    let begins = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("Capturing")));
    begins.expect("tshark begins").unwrap();
    // It must not block on what it has to say.
    std::thread::spawn(move || said.count());
    Some(tshark)
}

/// What tshark has seen: the records, as `group type`.
fn seen(mut tshark: Child) -> Vec<String> {
    std::thread::sleep(Duration::from_secs(1));
    tshark.kill().unwrap();
    let mut text = String::new();
    tshark.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    tshark.wait().unwrap();
    let mut records = Vec::new();
    for line in text.lines() {
        let fields: Vec<Vec<&str>> =
            line.split('\t').map(|field| field.split(',').collect()).collect();
        for pair in fields.chunks(2) {
            let both = pair[0].iter().zip(&pair[1]).filter(|(group, _)| !group.is_empty());
            records.extend(both.map(|(group, kind)| format!("{group} {kind}")));
        }
    }
    records
}

/// Our end: hears each group, sends to it, and leaves it.
async fn ours(handle: Handle, told: mpsc::Sender<&'static str>) {
    let mut buffer = [0; 100];
    let socket = UdpSocket::bind_on(&handle, ("::", PORT)).unwrap();
    socket.join_multicast_v4(GROUP, Ipv4Addr::UNSPECIFIED).unwrap();
    socket.join_multicast_v6(&GROUP_V6, 0).unwrap();
    let stranger = socket.join_multicast_v4(GROUP, Ipv4Addr::new(10, 77, 0, 1)).unwrap_err();
    assert_eq!(stranger.kind(), ErrorKind::AddrNotAvailable, "not our interface");
    // An interface that has just come up may lose the first report; the second comes within 1 s.
    rt::sleep(Duration::from_secs(2)).await;
    told.send("joined").unwrap();
    for group in [SocketAddr::from((GROUP, PORT)), (GROUP_V6, PORT).into()] {
        let heard = rt::timeout(PATIENCE, socket.recv_from(&mut buffer)).await;
        let (len, from) = heard.expect("what the kernel sends is heard").unwrap();
        assert_eq!(&buffer[..len], b"from the kernel");
        assert_eq!(from.is_ipv4(), group.is_ipv4());
        socket.send_to(b"from us", group).await.unwrap();
        let mine = rt::timeout(PATIENCE, socket.recv_from(&mut buffer)).await;
        let (len, from) = mine.expect("what we send is heard here").unwrap();
        assert_eq!((&buffer[..len], from.port()), (&b"from us"[..], PORT));
        told.send("sent").unwrap();
    }
    socket.leave_multicast_v4(GROUP, Ipv4Addr::UNSPECIFIED).unwrap();
    socket.leave_multicast_v6(&GROUP_V6, 0).unwrap();
    told.send("left").unwrap();
    let heard = rt::timeout(Duration::from_secs(2), socket.recv_from(&mut buffer)).await;
    assert!(heard.is_err(), "nothing is heard of a group that was left");
}

/// The kernel's end.
fn kernel(interface: &str, told: &mpsc::Receiver<&'static str>) {
    let index = index_of(interface);
    let four = KernelSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    four.join_multicast_v4(&GROUP, &Ipv4Addr::new(10, 77, 0, 1)).unwrap();
    four.set_multicast_loop_v4(false).unwrap();
    let six = SocketAddrV6::new(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1), PORT, 0, 0);
    let six = KernelSocket::bind(six).unwrap();
    six.set_multicast_loop_v6(false).unwrap();
    let six_member = SocketAddrV6::new(GROUP_V6, PORT, 0, index);
    let six_member = KernelSocket::bind(six_member).unwrap();
    six_member.join_multicast_v6(&GROUP_V6, index).unwrap();
    let mut buffer = [0; 100];
    assert_eq!(told.recv_timeout(PATIENCE), Ok("joined"));
    let groups = [
        (&four, &four, SocketAddr::from((GROUP, PORT))),
        (&six, &six_member, SocketAddrV6::new(GROUP_V6, PORT, 0, index).into()),
    ];
    for (sender, member, group) in groups {
        sender.send_to(b"from the kernel", group).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok("sent"));
        member.set_read_timeout(Some(PATIENCE)).unwrap();
        let (len, _) = member.recv_from(&mut buffer).expect("the kernel hears us");
        assert_eq!(&buffer[..len], b"from us", "{group}");
    }
    assert_eq!(told.recv_timeout(PATIENCE), Ok("left"));
    for (sender, _, group) in groups {
        sender.send_to(b"to nobody", group).unwrap();
    }
}

/// Both ends, over the kernel's `interface`.
fn groups(open: impl FnOnce() -> Box<dyn Device> + Send + 'static, interface: &'static str) {
    // The kernel's socket chooses an interface by its routes.
    namespace::ip(&format!("route add 224.0.0.0/4 dev {interface}"));
    let tshark = watch(interface);
    let (teller, told) = mpsc::channel();
    let kernel = std::thread::spawn(move || kernel(interface, &told));
    exchange(open, move |handle| ours(handle, teller), || {});
    kernel.join().unwrap();
    let Some(tshark) = tshark else { return };
    let records = seen(tshark);
    // To exclude nothing: joined. To include nothing: left.
    let count = |record: &str| records.iter().filter(|seen| *seen == record).count();
    for group in ["224.0.0.251", "ff02::fb"] {
        assert!((1..=2).contains(&count(&format!("{group} 4"))), "{group} in {records:?}");
        assert_eq!(count(&format!("{group} 3")), 2, "{group} in {records:?}");
    }
}

#[test]
fn groups_over_a_tap() {
    namespace::inside("kernel_groups::groups_over_a_tap", || {
        if namespace::can_make_tap() {
            let tap = crate::tap(true);
            groups(move || Box::new(tap), "lw0");
        }
    });
}

#[test]
fn groups_over_a_packet_socket() {
    namespace::inside("kernel_groups::groups_over_a_packet_socket", || {
        crate::veth();
        groups(|| Box::new(AfPacket::open("lw0", true).unwrap()), "lw1");
    });
}
