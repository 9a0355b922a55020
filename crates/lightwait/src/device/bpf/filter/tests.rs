//! The program in the kernel, on frames that are ours and frames that are the kernel's.

use super::*;
use crate::device::bpf::{Kind, Program};

const OURS: u32 = 1;
const KERNELS: u32 = PASS as u32;

/// The program, loaded; none where the kernel does not let us.
fn program(ports: Option<&RangeInclusive<u16>>) -> Option<Program> {
    program_for(&["10.0.0.9", "fd00::9", "192.168.200.201", "fe80::1"], ports)
}

fn program_for(addresses: &[&str], ports: Option<&RangeInclusive<u16>>) -> Option<Program> {
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let code = ours(&addresses, ports, Take::Verdict(OURS as i32));
    match Program::load(Kind::Xdp, &code) {
        Ok(program) => Some(program),
        Err(error) if error.to_string().contains("CAP_BPF") => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn arp(target: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend([0; 16]);
    frame.extend(target);
    frame
}

/// An IPv4 packet of `protocol` behind so many words of options, to `port`.
fn ipv4(to: [u8; 4], protocol: u8, options: u8, port: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45 + options, 0, 0, 60, 0, 0, 0x40, 0, 64, protocol, 0, 0, 1, 2, 3, 4]);
    frame.extend(to);
    frame.resize(frame.len() + 4 * usize::from(options), 1);
    frame.extend([0xff, 0xff]);
    frame.extend(port.to_be_bytes());
    frame
}

fn ipv6(to: &str, next: u8, data: &[u8]) -> Vec<u8> {
    let to: std::net::Ipv6Addr = to.parse().unwrap();
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, next, 64]);
    frame.extend([0xfe; 16]);
    frame.extend(to.octets());
    frame.extend(data);
    frame
}

/// A message about a neighbour: the address that it asks for or tells.
fn neighbour(to: &str, kind: u8, target: &str) -> Vec<u8> {
    let target: std::net::Ipv6Addr = target.parse().unwrap();
    ipv6(to, 58, &[&[kind, 0, 0, 0, 0, 0, 0, 0], &target.octets()[..]].concat())
}

fn port(port: u16) -> Vec<u8> {
    [[0xff, 0xff], port.to_be_bytes()].concat()
}

fn judge(program: &Program, cases: Vec<(Vec<u8>, u32, &str)>) {
    for (frame, verdict, what) in cases {
        assert_eq!(program.run(&frame).unwrap(), verdict, "{what}: {frame:02x?}");
    }
}

#[test]
fn what_is_for_our_addresses_is_ours() {
    let Some(program) = program(None) else { return };
    judge(
        &program,
        vec![
            (arp([10, 0, 0, 9]), OURS, "ARP for ours"),
            (arp([192, 168, 200, 201]), OURS, "ARP for another of ours"),
            (arp([10, 0, 0, 8]), KERNELS, "ARP for others"),
            (ipv4([10, 0, 0, 9], 6, 0, 80), OURS, "TCP"),
            (ipv4([10, 0, 0, 9], 17, 0, 80), OURS, "UDP"),
            (ipv4([10, 0, 0, 9], 1, 0, 0), OURS, "ICMP"),
            (ipv4([10, 0, 0, 8], 6, 0, 80), KERNELS, "TCP to others"),
            (ipv4([9, 0, 0, 10], 6, 0, 80), KERNELS, "the bytes in another order"),
            (ipv6("fd00::9", 6, &port(80)), OURS, "TCP"),
            (ipv6("fd00::9", 0, &port(80)), OURS, "behind an extension header"),
            (ipv6("fe80::1", 58, &[128; 8]), OURS, "an echo"),
            (ipv6("fd00::8", 6, &port(80)), KERNELS, "TCP to others"),
            (ipv6("fd01::9", 6, &port(80)), KERNELS, "the same end"),
            (neighbour("ff02::1:ff00:9", 135, "fd00::9"), OURS, "a question for ours"),
            (neighbour("ff02::1:ff00:9", 135, "fd01::9"), KERNELS, "of the same group"),
            (neighbour("ff02::1", 136, "fd00::9"), OURS, "who tells that it has ours"),
            (neighbour("ff02::1", 134, "fd00::9"), KERNELS, "a router's"),
            (neighbour("fd00::9", 136, "fd00::8"), OURS, "an answer to us"),
        ],
    );
}

#[test]
fn of_a_version_that_we_have_no_address_of_all_is_the_kernels() {
    let (four, six) = (ipv4([10, 0, 0, 9], 6, 0, 80), ipv6("fd00::9", 6, &port(80)));
    for ports in [None, Some(&(80..=443))] {
        let Some(program) = program_for(&["10.0.0.9"], ports) else { return };
        judge(&program, vec![(four.clone(), OURS, "IPv4"), (six.clone(), KERNELS, "IPv6")]);
        let Some(program) = program_for(&["fd00::9"], ports) else { return };
        judge(&program, vec![(four.clone(), KERNELS, "IPv4"), (six.clone(), OURS, "IPv6")]);
    }
    let Some(program) = program_for(&[], None) else { return };
    judge(&program, vec![(four, KERNELS, "without an address"), (six, KERNELS, "without any")]);
}

#[test]
fn with_ports_only_their_tcp_and_icmp_are_ours() {
    let Some(program) = program(Some(&(80..=443))) else { return };
    let fragment = |mut frame: Vec<u8>| {
        frame[20] = 0x20;
        frame
    };
    let mut cases = vec![
        (arp([10, 0, 0, 9]), OURS, "ARP"),
        (ipv4([10, 0, 0, 9], 1, 0, 0), OURS, "ICMP"),
        (ipv4([10, 0, 0, 9], 17, 0, 80), KERNELS, "UDP"),
        (fragment(ipv4([10, 0, 0, 9], 6, 0, 80)), KERNELS, "a fragment"),
        (ipv4([10, 0, 0, 8], 6, 0, 80), KERNELS, "to others"),
        (ipv6("fd00::9", 58, &[128; 8]), OURS, "ICMPv6"),
        (ipv6("fd00::9", 0, &port(80)), KERNELS, "behind an extension header"),
        (neighbour("ff02::1:ff00:9", 135, "fd00::9"), OURS, "a neighbour"),
        (ipv4([10, 0, 0, 9], 6, 0, 80)[..36].to_vec(), KERNELS, "without ports"),
    ];
    for (number, verdict) in [(79, KERNELS), (80, OURS), (443, OURS), (444, KERNELS)] {
        for options in [0, 1, 10] {
            cases.push((ipv4([10, 0, 0, 9], 6, options, number), verdict, "TCP over IPv4"));
        }
        cases.push((ipv6("fd00::9", 6, &port(number)), verdict, "TCP over IPv6"));
    }
    judge(&program, cases);
}

#[test]
fn a_frame_with_a_tag_or_cut_short_is_the_kernels() {
    let Some(program) = program(None) else { return };
    let whole = ipv6("fd00::9", 6, &port(80));
    let mut tagged = whole.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    assert_eq!(program.run(&tagged).unwrap(), KERNELS);
    for (frame, least) in [(whole, 54), (arp([10, 0, 0, 9]), 42)] {
        for len in 14..=frame.len() {
            let verdict = if len < least { KERNELS } else { OURS };
            assert_eq!(program.run(&frame[..len]).unwrap(), verdict, "{len}");
        }
    }
}
