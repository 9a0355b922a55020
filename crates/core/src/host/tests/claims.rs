//! Which host has our addresses, and which addresses our neighbours say they have: hosts on one
//! cable, and forged frames.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::link::{Cable, host};
use crate::config::Config;
use crate::frame::RxFrame;
use crate::ip::conflict::{Claimed, Conflict, PROBE_LONGEST};
use crate::tcp::State;
use crate::time::Duration;
use crate::wire::ethernet::{self, BROADCAST, Mac};
use crate::wire::{arp, icmpv6, ndp};

const FORGER: Mac = [2, 0, 0, 0, 0, 0x66];
const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const OURS: [&str; 2] = ["10.0.0.1", "fd00::1"];
const THEIRS: [&str; 2] = ["10.0.0.2", "fd00::2"];
const SECOND: Duration = Duration::from_secs(1);

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn arp(operation: arp::Operation, from: (Mac, &str), to: (Mac, &str), link: Mac) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ethertype = ethernet::ethertype::ARP;
    ethernet::Header { destination: link, source: from.0, ethertype }.emit(&mut bytes);
    let packet = arp::Packet {
        operation,
        sender_mac: from.0,
        sender: v4(from.1),
        target_mac: to.0,
        target: v4(to.1),
    };
    packet.emit(&mut bytes);
    bytes
}

/// A neighbour advertisement of `target` at `mac`.
fn advertisement(mac: Mac, target: &str, to: (Mac, Ipv6Addr), solicited: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ethertype = ethernet::ethertype::IPV6;
    ethernet::Header { destination: to.0, source: mac, ethertype }.emit(&mut bytes);
    let message = ndp::Message::NeighbourAdvertisement {
        target: v6(target),
        link_layer: Some(mac),
        router: false,
        solicited,
        overrides: true,
    };
    icmpv6::Message::Ndp(message).emit_packet(v6(target), to.1, &mut bytes);
    bytes
}

fn announcement(mac: Mac, address: &str) -> Vec<u8> {
    if address.contains(':') {
        let everybody = (ethernet::ipv6_group(ndp::ALL_NODES), ndp::ALL_NODES);
        return advertisement(mac, address, everybody, false);
    }
    arp(arp::Operation::Request, (mac, address), ([0; 6], address), BROADCAST)
}

fn probing(addresses: &[&str], number: u8, probe: Duration) -> Config {
    let config = host(addresses, number);
    Config { address_probe: probe, address_announce: true, ..config }
}

/// How often a host has announced the address.
fn announced(cable: &Cable, mac: Mac, address: &str) -> usize {
    let wanted = announcement(mac, address);
    cable.seen.iter().filter(|bytes| **bytes == wanted).count()
}

fn conflicts(cable: &mut Cable, host: usize) -> Vec<Conflict> {
    core::iter::from_fn(|| cable.hosts[host].conflict()).collect()
}

#[test]
fn an_address_is_silent_until_it_is_proved_and_then_announced() {
    let addresses = ["10.0.0.1/24", "fd00::1/64"];
    let server = probing(&addresses, 1, PROBE_LONGEST);
    let mut cable = Cable::new(Vec::from([server, host(&["10.0.0.2/24", "fd00::2/64"], 2)]));
    for address in OURS {
        let at = core::net::SocketAddr::new(address.parse().unwrap(), 80);
        cable.hosts[0].listen(at, 4).unwrap();
    }
    assert_eq!(cable.hosts[0].claimed(), Claimed::Pending);
    cable.settle();
    assert_eq!(cable.hosts[0].claimed(), Claimed::Pending);
    let connect = |cable: &mut Cable, address: &str| {
        let remote = core::net::SocketAddr::new(address.parse().unwrap(), 80);
        let now = cable.now;
        cable.hosts[1].connect(now, crate::host::any_local(&remote), remote).unwrap()
    };
    // Asked for meanwhile, neither answers.
    let early = OURS.map(|address| connect(&mut cable, address));
    cable.pass(Duration::from_millis(900));
    let macs = |cable: &Cable| {
        cable.seen.iter().filter(|frame| frame[..6] == MACS[1]).count() // To the host that asked.
    };
    assert_eq!(macs(&cable), 0);
    assert!(early.iter().all(|id| cable.hosts[1].state(*id) == State::SynSent));
    assert_eq!(OURS.map(|address| announced(&cable, MACS[0], address)), [0, 0]);
    cable.pass(SECOND * 10);
    assert_eq!(cable.hosts[0].claimed(), Claimed::All);
    assert_eq!(OURS.map(|address| announced(&cable, MACS[0], address)), [2, 2]);
    let late = OURS.map(|address| connect(&mut cable, address));
    cable.pass(SECOND);
    assert!(late.iter().all(|id| cable.hosts[1].state(*id) == State::Established));
}

#[test]
fn probes_are_in_nobodys_name_and_leave_no_trace_at_neighbours() {
    let mut cable = Cable::new(Vec::from([
        probing(&["10.0.0.1/24"], 1, PROBE_LONGEST),
        host(&["10.0.0.2/24"], 2),
    ]));
    cable.pass(SECOND * 10);
    let probe = arp(arp::Operation::Request, (MACS[0], "0.0.0.0"), ([0; 6], OURS[0]), BROADCAST);
    assert_eq!(cable.seen.iter().filter(|frame| **frame == probe).count(), 3);
    assert_eq!(cable.seen.len(), 3 + announced(&cable, MACS[0], OURS[0]));
}

#[test]
fn replies_go_to_the_host_that_asked() {
    let mut cable = Cable::new(Vec::from([host(&["10.0.0.1/24"], 1)]));
    for sender in ["10.0.0.2", "0.0.0.0"] {
        let request = arp(arp::Operation::Request, (MACS[1], sender), ([0; 6], OURS[0]), BROADCAST);
        let now = cable.now;
        cable.hosts[0].on_frame(now, RxFrame::plain(&request));
        cable.settle();
        let reply = arp(arp::Operation::Reply, (MACS[0], OURS[0]), (MACS[1], sender), MACS[1]);
        assert_eq!(cable.seen.pop(), Some(reply));
    }
    assert!(cable.seen.is_empty() && conflicts(&mut cable, 0).is_empty());
}

#[test]
fn an_address_that_another_host_has_is_refused_and_never_used() {
    for (version, address) in ["10.0.0.2/24", "fd00::2/64"].into_iter().enumerate() {
        let late = probing(&[address], 1, PROBE_LONGEST);
        let mut cable = Cable::new(Vec::from([host(&["10.0.0.2/24", "fd00::2/64"], 2)]));
        cable.pass(SECOND * 2);
        cable.hosts.insert(0, crate::host::Host::new(late).unwrap());
        cable.pass(SECOND * 10);
        let address = THEIRS[version].parse().unwrap();
        let conflict = Conflict { address, claimant: MACS[1], kept: false };
        assert_eq!(cable.hosts[0].claimed(), Claimed::Refused(conflict));
        assert_eq!(conflicts(&mut cable, 0), [conflict]);
        assert!(!cable.hosts[0].addresses().contains(&address));
        assert_eq!(announced(&cable, MACS[0], THEIRS[version]), 0);
        assert!(conflicts(&mut cable, 1).is_empty(), "the owner is not troubled");
    }
}

#[test]
fn of_two_hosts_that_want_an_address_at_most_one_gets_it() {
    // ARP probes begin at random, and a host that hears one first gives way; those of IPv6 cross.
    for (address, most) in [("10.0.0.9/24", 1), ("fd00::9/64", 0)] {
        let both = [1, 2].map(|number| probing(&[address], number, PROBE_LONGEST));
        let mut cable = Cable::new(Vec::from(both));
        cable.pass(SECOND * 10);
        let mut held = 0;
        for host in 0..2 {
            match cable.hosts[host].claimed() {
                Claimed::All => held += 1,
                Claimed::Pending => panic!("{address}: undecided"),
                Claimed::Refused(conflict) => assert_eq!(conflict.claimant, MACS[1 - host]),
            }
        }
        assert_eq!(held, most, "{address}");
    }
}

#[test]
fn a_claim_on_a_used_address_is_reported_and_answered_each_10_s() {
    for address in OURS {
        let mut cable = Cable::two();
        cable.pass(SECOND * 2);
        for _ in 0..12 {
            let now = cable.now;
            cable.hosts[0].on_frame(now, RxFrame::plain(&announcement(FORGER, address)));
            cable.pass(SECOND);
        }
        let conflict = Conflict { address: address.parse().unwrap(), claimant: FORGER, kept: true };
        assert_eq!(conflicts(&mut cable, 0), [conflict; 2]);
        assert_eq!(announced(&cable, MACS[0], address), 2);
        let counters = cable.hosts[0].counters();
        assert_eq!((counters.address_conflicts, counters.address_defences), (12, 2));
        assert!(cable.hosts[0].addresses().contains(&conflict.address));
        // An echo of our own is no claim.
        let now = cable.now;
        cable.hosts[0].on_frame(now, RxFrame::plain(&announcement(MACS[0], address)));
        assert_eq!(cable.hosts[0].counters().address_conflicts, 12);
    }
}

#[test]
fn an_address_taken_while_the_link_was_down_is_found_by_a_probe() {
    let ours = probing(&["10.0.0.1/24"], 1, PROBE_LONGEST);
    let mut cable = Cable::new(Vec::from([ours, host(&["10.0.0.2/24"], 2)]));
    cable.pass(SECOND * 10);
    cable.hosts[1] = crate::host::Host::new(host(&["10.0.0.1/24"], 2)).unwrap();
    cable.seen.clear();
    let now = cable.now;
    cable.hosts[0].on_link_up(now);
    cable.pass(SECOND * 2);
    let probe = arp(arp::Operation::Request, (MACS[0], "0.0.0.0"), ([0; 6], OURS[0]), BROADCAST);
    assert_eq!(cable.seen.first(), Some(&probe));
    let address = OURS[0].parse().unwrap();
    let conflict = Conflict { address, claimant: MACS[1], kept: true };
    assert_eq!(conflicts(&mut cable, 0), [conflict]);
    assert_eq!(announced(&cable, MACS[0], OURS[0]), 1, "it is defended");
    assert!(cable.hosts[0].addresses().contains(&address));
}

#[test]
fn who_speaks_from_our_address_claims_it() {
    let mut cable = Cable::two();
    cable.pass(SECOND * 2);
    let request = arp(arp::Operation::Request, (FORGER, OURS[0]), ([0; 6], THEIRS[0]), BROADCAST);
    let group = ndp::solicited_node(v6(THEIRS[1]));
    let mut solicit = Vec::new();
    let (destination, ethertype) = (ethernet::ipv6_group(ndp::ALL_NODES), 0x86dd);
    ethernet::Header { destination, source: FORGER, ethertype }.emit(&mut solicit);
    let message = ndp::Message::NeighbourSolicit {
        target: v6(OURS[1]),
        link_layer: Some(FORGER),
        nonce: None,
    };
    icmpv6::Message::Ndp(message).emit_packet(v6(OURS[1]), ndp::ALL_NODES, &mut solicit);
    assert_ne!(group, ndp::ALL_NODES);
    for (frame, address) in [(request, OURS[0]), (solicit, OURS[1])] {
        let now = cable.now;
        cable.hosts[0].on_frame(now, RxFrame::plain(&frame));
        cable.settle();
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(conflicts(&mut cable, 0), [Conflict { address, claimant: FORGER, kept: true }]);
    }
}

#[test]
fn a_duplicate_of_an_address_in_use_is_reported() {
    // Both use it at once (RFC 4429), and the second finds the first.
    let both = [1, 2].map(|number| host(&["fd00::9/64"], number));
    let mut cable = Cable::new(Vec::from(both));
    let first = cable.hosts.remove(1);
    cable.pass(SECOND * 2);
    cable.hosts.insert(0, first);
    cable.pass(SECOND * 2);
    let address = "fd00::9".parse().unwrap();
    assert_eq!(conflicts(&mut cable, 0), [Conflict { address, claimant: MACS[0], kept: false }]);
    assert!(!cable.hosts[0].addresses().contains(&address));
    assert!(cable.hosts[1].addresses().contains(&address));
}

// ---- what others say of our neighbours

/// What makes host 0 believe, if anything does, that the neighbour is at `mac`.
fn lies(mac: Mac, neighbour: &str) -> Vec<Vec<u8>> {
    let unasked = announcement(mac, neighbour);
    if neighbour.contains(':') {
        let us = (MACS[0], v6(OURS[1]));
        return Vec::from([advertisement(mac, neighbour, us, true), unasked]);
    }
    let us = (MACS[0], OURS[0]);
    let reply = arp(arp::Operation::Reply, (mac, neighbour), us, MACS[0]);
    let request = arp(arp::Operation::Request, (mac, neighbour), us, BROADCAST);
    Vec::from([reply, unasked, request])
}

/// The frame is of ARP.
fn is_arp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 6]
}

#[test]
fn forged_frames_take_nobodys_packets_away() {
    for neighbour in THEIRS {
        for lie in lies(FORGER, neighbour) {
            let mut cable = Cable::two();
            let listener = cable.hosts[1].listen("[::]:80".parse().unwrap(), 4).unwrap();
            let remote = core::net::SocketAddr::new(neighbour.parse().unwrap(), 80);
            let id = cable.connect(&std::format!("{remote}"));
            cable.pass(SECOND * 2);
            let now = cable.now;
            let peer = cable.hosts[1].accept(now, listener).unwrap();
            for second in 0..70 {
                let (now, sent) = (cable.now, cable.seen.len());
                (0..3).for_each(|_| cable.hosts[0].on_frame(now, RxFrame::plain(&lie)));
                cable.hosts[0].write(now, id, b"still there?").unwrap();
                cable.pass(SECOND / 10);
                let astray = |frame: &&Vec<u8>| frame[..6] == FORGER && !is_arp(frame);
                assert_eq!(cable.seen[sent..].iter().find(astray), None, "second {second}");
                let now = cable.now;
                assert_eq!(cable.hosts[1].read(now, peer, &mut [0; 99]), Ok(12), "second {second}");
                cable.pass(SECOND * 9 / 10);
            }
        }
    }
}

#[test]
fn a_neighbour_that_comes_back_with_another_address_is_followed() {
    for neighbour in THEIRS {
        let addresses = ["10.0.0.2/24", "fd00::2/64"];
        let mut cable = Cable::two();
        let remote = core::net::SocketAddr::new(neighbour.parse().unwrap(), 80);
        let remote = std::format!("{remote}");
        cable.connect(&remote);
        cable.pass(SECOND * 2);
        // Another in its place, which announces itself.
        let again = probing(&addresses, 3, Duration::ZERO);
        cable.hosts[1] = crate::host::Host::new(again).unwrap();
        cable.hosts[1].listen("[::]:80".parse().unwrap(), 4).unwrap();
        cable.pass(SECOND * 2);
        let id = cable.connect(&remote);
        cable.pass(SECOND / 2);
        assert_eq!(cable.hosts[0].state(id), State::Established, "{neighbour}");
    }
}
