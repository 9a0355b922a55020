//! The program in the kernel beside [`Steering::owner`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lightwait_core::flow::Tuple;

use super::*;
use crate::device::bpf::{Kind, Program};

/// True if a capability is missing, which it prints: the test is skipped then.
fn is_capability(error: &std::io::Error) -> bool {
    let is = error.to_string().contains("CAP_BPF");
    if is {
        eprintln!("skipped: {error}");
    }
    is
}

/// The program of each start, loaded; none where the kernel does not let us.
fn programs(steering: &Steering) -> Option<[Program; 2]> {
    let load = |start| Program::load(Kind::SocketFilter, &owner(steering, start));
    match [load(Start::Link), load(Start::Network)] {
        [Ok(link), Ok(network)] => Some([link, network]),
        [Err(error), _] if is_capability(&error) => None,
        [link, network] => panic!("{link:?} {network:?}"),
    }
}

/// What both programs return for a frame. A test run starts behind the first Ethernet header: a
/// program that starts at it gets a second one.
fn judged(programs: &[Program; 2], frame: &[u8]) -> u32 {
    let [link, network] = programs;
    let network = network.run(frame).unwrap();
    let link = link.run(&[&frame[..14], frame].concat()).unwrap();
    assert_eq!(network, link, "{frame:02x?}");
    network
}

/// Bytes that a seed yields: a generator of Marsaglia's.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| (self.next() >> 56) as u8)
    }
}

/// A frame of TCP to us, and its ends. Words of options: IPv4 alone has them.
fn tcp(ours: (IpAddr, u16), peer: (IpAddr, u16), options: usize) -> Vec<u8> {
    let mut frame = vec![0; 12];
    match (peer.0, ours.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([8, 0, 0x45 + options as u8, 0, 0, 60, 1, 2, 0x40, 0, 64, 6, 0, 0]);
            frame.extend([from.octets(), to.octets()].concat());
            frame.resize(frame.len() + 4 * options, 1);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x6a, 0xbc, 0, 0, 0, 20, 6, 64]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        _ => unreachable!("both of one version"),
    }
    frame.extend([peer.1.to_be_bytes(), ours.1.to_be_bytes()].concat());
    frame.resize(frame.len() + 16, 0xa5);
    frame
}

#[test]
fn segments_and_datagrams_go_to_their_owner() {
    let mut chance = Chance(7);
    for shards in [1, 2, 3, 8, 200, u16::MAX] {
        let steering = Steering::new(&chance.bytes(), shards);
        let Some(programs) = programs(&steering) else { return };
        for round in 0..400 {
            let [ours, peer] = [(); 2].map(|()| match round % 2 {
                0 => Ipv4Addr::from(chance.bytes()).into(),
                _ => Ipv6Addr::from(chance.bytes::<16>()).into(),
            });
            let [our_port, peer_port] = [(); 2].map(|()| u16::from_be_bytes(chance.bytes()));
            let (ours, peer) = ((ours, our_port), (peer, peer_port));
            let owner = steering.owner(&Tuple::new(ours, peer));
            for options in [0, 1, 10] {
                let frame = tcp(ours, peer, options);
                assert_eq!(judged(&programs, &frame), owner.into(), "{ours:?} {peer:?}");
                let mut datagram = frame;
                datagram[if round % 2 == 0 { 23 } else { 20 }] = 17;
                assert_eq!(judged(&programs, &datagram), owner.into(), "{ours:?} {peer:?}");
            }
        }
    }
}

/// Frames of the given ends that another shard than 0 owns.
fn owned_by_another(steering: &Steering, ours: IpAddr, peer: IpAddr) -> Vec<u8> {
    let owner = |port: &u16| steering.owner(&Tuple::new((ours, 80), (peer, *port)));
    let port = (1024..).find(|port| owner(port) > 0).unwrap();
    tcp((ours, 80), (peer, port), 0)
}

#[test]
fn all_else_goes_to_the_first() {
    let steering = Steering::new(&[9; 32], 8);
    let Some(programs) = programs(&steering) else { return };
    let pairs: [[IpAddr; 2]; 2] = [
        [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
        ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()],
    ];
    let [ipv4, ipv6] = pairs.map(|[ours, peer]| owned_by_another(&steering, ours, peer));
    assert!(judged(&programs, &ipv4) > 0 && judged(&programs, &ipv6) > 0);
    let changed = |frame: &[u8], changes: &[(usize, u8)]| {
        let mut frame = frame.to_vec();
        changes.iter().for_each(|(at, byte)| frame[*at] = *byte);
        judged(&programs, &frame)
    };
    for (changes, what) in [
        (&[(12, 8), (13, 6)][..], "ARP"),
        (&[(12, 0x81), (13, 0)], "a tag"),
        (&[(20, 0x20)], "more fragments"),
        (&[(21, 1)], "the last fragment"),
        (&[(20, 0x1f), (21, 0xff)], "a late fragment"),
        (&[(23, 1)], "ICMP"),
        (&[(14, 0x44)], "a header too short"),
        (&[(14, 0x65)], "another version"),
        (&[(14, 0x4f)], "options behind the end"),
    ] {
        assert_eq!(changed(&ipv4, changes), 0, "{what}");
    }
    assert!(changed(&ipv4, &[(20, 0x80)]) > 0, "a reserved bit is no fragment");
    for (next, what) in [(0, "options"), (44, "a fragment"), (58, "ICMP")] {
        assert_eq!(changed(&ipv6, &[(20, next)]), 0, "{what}");
    }
    assert_eq!(changed(&ipv6, &[(14, 0x50)]), 0, "another version");
}

#[test]
fn a_frame_may_end_anywhere() {
    let steering = Steering::new(&[9; 32], 8);
    let Some([link, _]) = programs(&steering) else { return };
    // A test run takes no frame with less than an IP header behind its Ethernet header.
    for (ours, peer, least) in [("10.0.0.1", "10.0.0.2", 20), ("fd00::1", "fd00::2", 40)] {
        let frame = owned_by_another(&steering, ours.parse().unwrap(), peer.parse().unwrap());
        let ports = frame.len() - 16;
        let judged = |frame: &[u8]| link.run(&[&frame[..14], frame].concat()).unwrap();
        for len in least..=frame.len() {
            let owner = if len < ports { 0 } else { judged(&frame) };
            assert_eq!(judged(&frame[..len]), owner, "{len}");
        }
    }
}

#[test]
fn a_program_that_is_wrong_is_refused_with_the_verifiers_reason() {
    let mut wrong = Assembler::default();
    wrong.alu_by(Op::Move, Reg::R0, Reg::R7);
    wrong.exit();
    let error = Program::load(Kind::SocketFilter, &wrong.finish()).unwrap_err();
    let text = error.to_string();
    assert!(is_capability(&error) || text.contains("R7 !read_ok"), "{text}");
}
