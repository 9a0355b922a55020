//! Hosts on Ethernet: neighbours, routes, ICMP, path MTUs, fragments.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::pair::config;
use super::peer::{HOSTS, Peer, S, Say};
use crate::config::Config;
use crate::error::Error;
use crate::event::ConnectionId;
use crate::frame::{Capabilities, Medium, Outbox, RxFrame};
use crate::host::Host;
use crate::ip::shards::Content;
use crate::tcp::State;
use crate::time::{Duration, Instant};
use crate::wire::icmpv4::{Echo, Message};
use crate::wire::{arp, ethernet, icmpv6, ip};

/// Hosts on one cable, and a tap that sees every frame and may swallow it.
pub(super) struct Cable {
    pub(super) now: Instant,
    pub(super) hosts: Vec<Host>,
    frames: VecDeque<(usize, Vec<u8>)>,
    pub(super) seen: Vec<Vec<u8>>,
    /// The frames of this host are lost.
    pub(super) muted: Option<usize>,
    /// Frames longer than this are lost.
    pub(super) longest: usize,
    /// What of a limit one shard gives another is lost on its way.
    pub(super) loses_grants: bool,
    /// Which shard a frame comes to, of so many that have one hardware address.
    pub(super) steer: fn(&[u8], u16) -> u16,
}

pub(super) fn host(addresses: &[&str], number: u8) -> Config {
    let device = Capabilities::plain(Medium::Ethernet, 1500);
    let mut config = Config::new(device, addresses[0].parse().unwrap(), [number; 32]);
    config.addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    config.hardware = [2, 0, 0, 0, 0, number];
    config
}

impl Cable {
    pub(super) fn new(configs: Vec<Config>) -> Cable {
        Cable {
            now: Instant::from_millis(1000),
            hosts: configs.into_iter().map(|config| Host::new(config).unwrap()).collect(),
            frames: VecDeque::new(),
            seen: Vec::new(),
            muted: None,
            longest: usize::MAX,
            loses_grants: false,
            steer: |_, _| 0,
        }
    }

    /// A frame arrives at host `to`, if its device hands it the frame.
    fn arrive(&mut self, to: usize, bytes: &[u8]) {
        let member = self.hosts[to].config().member;
        if (self.steer)(bytes, member.of) == member.index {
            self.hosts[to].on_frame(self.now, RxFrame::plain(bytes));
        }
    }

    /// Carries what shards tell each other, while there is something.
    fn exchange(&mut self) {
        for from in 0..self.hosts.len() {
            while let Some((to, message)) = self.hosts[from].message() {
                let (sender, now) = (self.hosts[from].config().member.index, self.now);
                let first = from - usize::from(sender);
                if self.loses_grants && matches!(message.content, Content::Grant(_)) {
                    self.hosts[from].on_message_lost(to, &message);
                    continue;
                }
                self.hosts[first + usize::from(to)].on_message(now, sender, message);
            }
        }
        if self.hosts.iter().any(Host::has_message) {
            self.exchange();
        }
    }

    pub(super) fn two() -> Cable {
        let a = host(&["10.0.0.1/24", "fd00::1/64"], 1);
        Cable::new(Vec::from([a, host(&["10.0.0.2/24", "fd00::2/64"], 2)]))
    }

    /// Lets frames pass until no host has anything to send.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            let now = self.now;
            for (i, host) in self.hosts.iter_mut().enumerate() {
                host.on_time(now);
                let mut outbox = Outbox::new(64);
                host.emit(now, &mut outbox);
                while let Some(frame) = outbox.take() {
                    let mut bytes = Vec::new();
                    frame.copy_to(&mut bytes);
                    self.seen.push(bytes.clone());
                    if self.muted != Some(i) && bytes.len() <= self.longest {
                        self.frames.push_back((i, bytes));
                    }
                }
                while host.event().is_some() {}
            }
            while let Some((from, bytes)) = self.frames.pop_front() {
                let hardware = self.hosts[from].config().hardware;
                for to in 0..self.hosts.len() {
                    // Nothing comes back to its sender, nor to the shards beside it.
                    if self.hosts[to].config().hardware != hardware {
                        self.arrive(to, &bytes);
                    }
                }
            }
            self.exchange();
            if !self.hosts.iter().any(|host| host.wants_emit() || host.has_message()) {
                return;
            }
        }
        panic!("the cable does not come to rest");
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        while let Some(at) = self.hosts.iter().filter_map(Host::deadline).min() {
            if at > until {
                break;
            }
            self.now = self.now.max(at);
            self.settle();
        }
        self.now = until;
        self.settle();
    }

    pub(super) fn connect(&mut self, remote: &str) -> ConnectionId {
        let remote: SocketAddr = remote.parse().unwrap();
        let now = self.now;
        self.hosts[0].connect(now, crate::host::any_local(&remote), remote).unwrap()
    }

    /// A packet from nowhere arrives at host 0.
    pub(super) fn inject(&mut self, packet: &[u8]) {
        self.arrive(0, &framed(packet));
        self.exchange();
    }

    /// An ICMPv4 message from 10.0.0.2 arrives at host 0.
    pub(super) fn icmp(&mut self, message: &Message<'_>) {
        self.arrive(0, &icmp_frame(message));
        self.exchange();
    }

    /// The last TCP packet that host 0 sent.
    fn last_sent(&self) -> Vec<u8> {
        let sent = self.seen.iter().rev().find(|bytes| bytes[6..12] == [2, 0, 0, 0, 0, 1]);
        sent.unwrap()[14..].to_vec()
    }
}

/// The frame from the second host's hardware address to the first's that carries `packet`.
fn framed(packet: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (destination, source) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ethertype = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    ethernet::Header { destination, source, ethertype }.emit(&mut bytes);
    bytes.extend_from_slice(packet);
    bytes
}

/// The frame with an ICMPv4 message from 10.0.0.2 to 10.0.0.1.
pub(super) fn icmp_frame(message: &Message<'_>) -> Vec<u8> {
    let (mut packet, mut payload) = (Vec::new(), Vec::new());
    let (from, to) = (ipv4("10.0.0.2"), ipv4("10.0.0.1"));
    message.emit(&mut payload);
    ip::Header::new(from, to, ip::protocol::ICMPV4, payload.len()).unwrap().emit(&mut packet);
    packet.extend_from_slice(&payload);
    framed(&packet)
}

fn ipv4(text: &str) -> IpAddr {
    IpAddr::V4(text.parse::<Ipv4Addr>().unwrap())
}

#[test]
fn neighbours_are_found_and_connections_wait_for_them() {
    let mut cable = Cable::two();
    cable.hosts[1].listen("[::]:80".parse().unwrap(), 4).unwrap();
    let over_ipv4 = cable.connect("10.0.0.2:80");
    let over_ipv6 = cable.connect("[fd00::2]:80");
    cable.pass(Duration::from_secs(2));
    assert_eq!(cable.hosts[0].state(over_ipv4), State::Established);
    assert_eq!(cable.hosts[0].state(over_ipv6), State::Established);
    let requests = cable.seen.iter().filter(|bytes| bytes[12..14] == [8, 6]).count();
    assert_eq!(requests, 2, "one ARP request and its reply");
}

#[test]
fn a_neighbour_that_does_not_answer_fails_the_attempt() {
    let mut cable = Cable::two();
    let id = cable.connect("10.0.0.9:80");
    cable.pass(Duration::from_millis(2_900));
    assert_eq!(cable.hosts[0].state(id), State::SynSent);
    cable.pass(Duration::from_millis(200));
    assert_eq!(cable.hosts[0].take_error(id), Some(Error::HostUnreachable));
}

#[test]
fn a_neighbour_evicted_during_resolution_is_asked_for_again() {
    let mut config = host(&["10.0.0.1/24"], 1);
    config.limits.neighbours = 1;
    let servers = [host(&["10.0.0.2/24"], 2), host(&["10.0.0.3/24"], 3)];
    let mut cable = Cable::new([config].into_iter().chain(servers).collect());
    for server in 1..3 {
        cable.hosts[server].listen("0.0.0.0:80".parse().unwrap(), 4).unwrap();
    }
    let ids = ["10.0.0.2:80", "10.0.0.3:80"].map(|remote| cable.connect(remote));
    cable.pass(Duration::from_secs(5));
    assert_eq!(ids.map(|id| cable.hosts[0].state(id)), [State::Established; 2]);
    // A reset that cannot leave is given up, and holds up no connection.
    let now = cable.now;
    for id in ids {
        cable.hosts[0].abort(now, id);
    }
    cable.pass(Duration::from_secs(5));
    assert_eq!(cable.hosts[0].connections(), 0);
}

#[test]
fn no_route_is_no_way() {
    let mut cable = Cable::two();
    let id = cable.connect("192.0.2.1:80");
    cable.settle();
    assert_eq!(cable.hosts[0].take_error(id), Some(Error::HostUnreachable));
}

#[test]
fn what_lies_beyond_goes_to_the_gateway() {
    let mut config = host(&["10.0.0.1/24"], 1);
    config.gateways = Vec::from([ipv4("10.0.0.2")]);
    let mut cable = Cable::new(Vec::from([config, host(&["10.0.0.2/24"], 2)]));
    cable.connect("192.0.2.1:80");
    cable.settle();
    let is_ipv4 = |bytes: &&Vec<u8>| bytes[12..14] == [8, 0];
    let syn = cable.seen.iter().find(is_ipv4).unwrap();
    assert_eq!(syn[..6], [2, 0, 0, 0, 0, 2], "to the gateway's hardware address");
    let packet = ip::Packet::parse(&syn[14..]).unwrap();
    assert_eq!(packet.destination, ipv4("192.0.2.1"));
}

#[test]
fn a_range_of_addresses_answers_without_neighbour_entries() {
    let mut server = host(&["10.0.0.2/24"], 2);
    server.ranges = Vec::from(["10.64.0.0/16".parse().unwrap()]);
    let mut client = host(&["10.0.0.1/24"], 1);
    client.gateways = Vec::from([ipv4("10.0.0.2")]);
    let mut cable = Cable::new(Vec::from([client, server]));
    cable.hosts[1].listen("0.0.0.0:80".parse().unwrap(), 64).unwrap();
    let ids: Vec<_> = (1..40).map(|i| cable.connect(&std::format!("10.64.{i}.{i}:80"))).collect();
    cable.pass(Duration::from_secs(1));
    assert!(ids.iter().all(|id| cable.hosts[0].state(*id) == State::Established));
    let arps = cable.seen.iter().filter(|bytes| bytes[12..14] == [8, 6]).count();
    assert_eq!(arps, 2);
}

#[test]
fn a_connection_outlives_a_silent_neighbour_to_its_user_timeout() {
    let mut cable = Cable::two();
    cable.hosts[1].listen("0.0.0.0:80".parse().unwrap(), 4).unwrap();
    let id = cable.connect("10.0.0.2:80");
    cable.pass(Duration::from_secs(1));
    cable.muted = Some(1);
    let now = cable.now;
    cable.hosts[0].write(now, id, b"hello?").unwrap();
    cable.pass(Duration::from_secs(290));
    assert_eq!(cable.hosts[0].state(id), State::Established);
    cable.pass(Duration::from_secs(90));
    assert_eq!(cable.hosts[0].state(id), State::Closed);
}

#[test]
fn a_reply_that_waits_for_its_neighbour_counts_when_sent() {
    // From 10.0.0.1, which host 0 has to ask for, to 10.0.0.2, as of both IP versions.
    let syns = HOSTS.map(|host| Peer::listening(config(host)).packet(Say::new(S, 0, 0)));
    for (syn, is_listening) in syns.iter().zip([false, true]) {
        let addresses = [["10.0.0.2/24", "fd00::2/64"], ["10.0.0.1/24", "fd00::1/64"]];
        let mut cable = Cable::new(Vec::from([host(&addresses[0], 1), host(&addresses[1], 2)]));
        if is_listening {
            cable.hosts[0].listen("[::]:80".parse().unwrap(), 4).unwrap();
        }
        cable.inject(syn);
        cable.settle();
        let [host, peer] = [0, 1].map(|number| cable.hosts[number].counters());
        assert_eq!(host.resets_to_strangers, u64::from(!is_listening));
        assert_eq!((host.segments_out, peer.segments_in), (1, 1), "RST, or SYN and ACK");
    }
    // What is none is not counted as one.
    let mut cable = Cable::two();
    cable.icmp(&Message::EchoRequest(Echo { id: 7, seq: 1, data: b"ping" }));
    cable.settle();
    let counters = cable.hosts[0].counters();
    assert_eq!((counters.echo_replies, counters.segments_out), (1, 0));
}

#[test]
fn a_reply_whose_neighbour_stays_silent_counts_as_dropped() {
    for (is_silent, dropped) in [(true, 1), (false, 0)] {
        let mut cable = Cable::two();
        cable.muted = is_silent.then_some(1);
        cable.icmp(&Message::EchoRequest(Echo { id: 7, seq: 1, data: b"ping" }));
        cable.settle();
        assert_eq!(cable.hosts[0].counters().neighbour_drops, 0, "it waits, or has left");
        cable.pass(Duration::from_secs(5));
        let counters = cable.hosts[0].counters();
        assert_eq!((counters.echo_replies, counters.neighbour_drops), (1, dropped));
    }
}

// ---- ICMP

#[test]
fn echo_is_answered_within_the_limit() {
    let mut config = host(&["10.0.0.1/24"], 1);
    config.limits.replies_per_second = 2;
    let mut cable = Cable::new(Vec::from([config, host(&["10.0.0.2/24"], 2)]));
    for seq in 0..5 {
        cable.icmp(&Message::EchoRequest(Echo { id: 7, seq, data: b"ping" }));
    }
    cable.settle();
    assert_eq!(cable.hosts[0].counters().echo_replies, 2);
    let reply = ip::Packet::parse(&cable.seen.last().unwrap()[14..]).unwrap().payload.to_vec();
    let expected = Message::EchoReply(Echo { id: 7, seq: 1, data: b"ping" });
    assert_eq!(Message::parse(&reply), Ok(expected));
}

/// A connection of host 0 whose SYN is out, and the packet.
fn opening() -> (Cable, ConnectionId, Vec<u8>) {
    let mut cable = Cable::two();
    let id = cable.connect("10.0.0.2:80");
    cable.muted = Some(0);
    cable.inject_arp();
    cable.settle();
    let packet = cable.last_sent();
    (cable, id, packet)
}

impl Cable {
    /// Host 0 learns the hardware address of 10.0.0.2.
    fn inject_arp(&mut self) {
        self.settle();
        let reply = arp::Packet {
            operation: arp::Operation::Reply,
            sender_mac: [2, 0, 0, 0, 0, 2],
            sender: "10.0.0.2".parse().unwrap(),
            target_mac: [2, 0, 0, 0, 0, 1],
            target: "10.0.0.1".parse().unwrap(),
        };
        let mut bytes = Vec::new();
        let (destination, source) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        ethernet::Header { destination, source, ethertype: 0x0806 }.emit(&mut bytes);
        reply.emit(&mut bytes);
        self.hosts[0].on_frame(self.now, RxFrame::plain(&bytes));
    }
}

#[test]
fn a_hard_error_ends_an_attempt_and_a_soft_one_is_its_reason() {
    let (mut cable, id, packet) = opening();
    cable.icmp(&Message::Unreachable { code: 3, next_hop_mtu: 0, quoted: &packet });
    assert_eq!(cable.hosts[0].take_error(id), Some(Error::ConnectionRefused));
    let (mut cable, id, packet) = opening();
    cable.icmp(&Message::Unreachable { code: 1, next_hop_mtu: 0, quoted: &packet });
    assert_eq!(cable.hosts[0].state(id), State::SynSent);
    cable.muted = Some(1);
    cable.pass(Duration::from_secs(200));
    assert_eq!(cable.hosts[0].take_error(id), Some(Error::HostUnreachable));
}

#[test]
fn an_error_that_quotes_another_number_is_not_believed() {
    let (mut cable, id, mut packet) = opening();
    packet[27] ^= 1;
    cable.icmp(&Message::Unreachable { code: 3, next_hop_mtu: 0, quoted: &packet });
    assert_eq!(cable.hosts[0].state(id), State::SynSent);
    let counters = cable.hosts[0].counters();
    assert_eq!((counters.icmp_rejected, counters.icmp_accepted), (1, 0));
}

#[test]
fn administratively_prohibited_ends_an_attempt_over_ipv6() {
    let mut cable = Cable::two();
    cable.connect("[fd00::2]:80");
    cable.settle();
    cable.muted = Some(1);
    for (code, state) in [(3, State::SynSent), (1, State::Closed)] {
        let id = cable.connect("[fd00::2]:80");
        cable.settle();
        let packet = cable.last_sent();
        let (from, to): (Ipv6Addr, Ipv6Addr) =
            ("fd00::2".parse().unwrap(), "fd00::1".parse().unwrap());
        let mut message = Vec::new();
        icmpv6::Message::Unreachable { code, quoted: &packet }.emit(from, to, &mut message);
        let mut bytes = Vec::new();
        let header = ip::Header::new(from.into(), to.into(), ip::protocol::ICMPV6, message.len());
        header.unwrap().emit(&mut bytes);
        bytes.extend_from_slice(&message);
        cable.inject(&bytes);
        assert_eq!(cable.hosts[0].state(id), state, "code {code}");
    }
}

#[test]
fn an_error_is_about_what_its_receiver_sent() {
    let mut cable = Cable::two();
    // The neighbours are known; then the peer falls silent, and a SYN stays in flight.
    cable.connect("[fd00::2]:80");
    cable.settle();
    cable.muted = Some(1);
    let id = cable.connect("[fd00::2]:80");
    cable.settle();
    let packet = cable.last_sent();
    assert_eq!((packet[0] >> 4, cable.hosts[0].state(id)), (6, State::SynSent));
    // A message to our IPv4 address does not concern what went out from the IPv6 address.
    cable.icmp(&Message::Unreachable { code: 3, next_hop_mtu: 0, quoted: &packet });
    assert_eq!(cable.hosts[0].counters().icmp_rejected, 1);
    cable.icmp(&Message::Unreachable { code: 3, next_hop_mtu: 0, quoted: &packet[..47] });
    assert_eq!(cable.hosts[0].counters().frames_malformed, 1);
    assert_eq!(cable.hosts[0].counters().icmp_accepted, 0);
    assert_eq!(cable.hosts[0].state(id), State::SynSent);
}

#[test]
fn a_packet_too_big_is_sent_again_in_smaller_ones() {
    let mut cable = Cable::two();
    cable.hosts[1].listen("0.0.0.0:80".parse().unwrap(), 4).unwrap();
    let id = cable.connect("10.0.0.2:80");
    cable.pass(Duration::from_secs(1));
    cable.muted = Some(0);
    let now = cable.now;
    cable.hosts[0].write(now, id, &[1; 3000]).unwrap();
    cable.settle();
    let packet = cable.seen.iter().rev().find(|bytes| bytes.len() == 1514).unwrap()[14..].to_vec();
    cable.icmp(&Message::Unreachable { code: 4, next_hop_mtu: 1000, quoted: &packet });
    cable.muted = None;
    let mark = cable.seen.len();
    cable.settle();
    let longest = cable.seen[mark..].iter().map(Vec::len).max().unwrap();
    assert_eq!(longest, 1014);
    let info = cable.hosts[0].info(id).unwrap();
    assert_eq!((info.mss_bytes, info.in_flight_bytes), (960, 0));
    assert_eq!(cable.hosts[0].counters().path_mtu_lowered, 1);
}

#[test]
fn what_we_do_not_speak_is_answered() {
    let mut cable = Cable::two();
    cable.inject_arp();
    for (protocol, code) in [(ip::protocol::UDP, 3), (99, 2)] {
        let mut packet = Vec::new();
        let (from, to) = (ipv4("10.0.0.2"), ipv4("10.0.0.1"));
        ip::Header::new(from, to, protocol, 8).unwrap().emit(&mut packet);
        packet.extend_from_slice(&[0, 9, 0, 7, 0, 8, 0, 0]);
        let before = cable.seen.len();
        cable.inject(&packet);
        cable.settle();
        let answers = cable.seen[before..].iter().filter_map(|bytes| {
            let packet = ip::Packet::parse(bytes.get(14..)?).ok()?;
            match Message::parse(packet.payload).ok()? {
                Message::Unreachable { code, .. } => Some(code),
                _ => None,
            }
        });
        assert_eq!(answers.collect::<Vec<_>>(), [code]);
    }
}

#[test]
fn fragments_are_put_together_and_reach_their_connection() {
    let mut cable = Cable::two();
    let request = Message::EchoRequest(Echo { id: 1, seq: 2, data: &[7; 100] });
    let mut payload = Vec::new();
    request.emit(&mut payload);
    for (offset, more) in [(64, false), (0, true)] {
        let part = &payload[offset..if more { 64 } else { payload.len() }];
        let mut packet = Vec::new();
        let (from, to) = (ipv4("10.0.0.2"), ipv4("10.0.0.1"));
        let mut header = ip::Header::new(from, to, ip::protocol::ICMPV4, part.len()).unwrap();
        header.dont_fragment = false;
        header.identification = 99;
        header.emit(&mut packet);
        let field = (offset as u16 / 8) | if more { 0x2000 } else { 0 };
        packet[6..8].copy_from_slice(&field.to_be_bytes());
        packet[10..12].copy_from_slice(&[0, 0]);
        let value = crate::wire::checksum::sum(&packet[..20]).checksum();
        packet[10..12].copy_from_slice(&value.to_be_bytes());
        packet.extend_from_slice(part);
        cable.inject(&packet);
    }
    cable.settle();
    let counters = cable.hosts[0].counters();
    assert_eq!((counters.reassembled, counters.echo_replies), (1, 1));
}

#[test]
fn nobody_s_and_everybody_s_segments_are_dropped_in_silence() {
    let mut cable = Cable::two();
    cable.hosts[0].listen("0.0.0.0:80".parse().unwrap(), 4).unwrap();
    for source in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "10.0.0.255", "10.0.0.1", "127.0.0.1"]
    {
        let mut packet = Vec::new();
        let header = ip::Header::new(ipv4(source), ipv4("10.0.0.1"), ip::protocol::TCP, 20);
        header.unwrap().emit(&mut packet);
        packet.extend_from_slice(&[0, 9, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0]);
        cable.inject(&packet);
    }
    assert_eq!(cable.hosts[0].counters().not_ours, 6);
    assert_eq!(cable.hosts[0].half_open(), 0);
}

#[test]
fn the_hop_limit_and_the_traffic_class_are_what_was_asked_for() {
    let mut config = host(&["10.0.0.1/24"], 1);
    config.hop_limit = 3;
    let mut cable = Cable::new(Vec::from([config, host(&["10.0.0.2/24"], 2)]));
    let id = cable.connect("10.0.0.2:80");
    let now = cable.now;
    let mut options = cable.hosts[0].options(id).unwrap();
    options.traffic_class = 0x28;
    cable.hosts[0].set_options(now, id, options).unwrap();
    cable.settle();
    let is_ipv4 = |bytes: &&Vec<u8>| bytes[12..14] == [8, 0];
    let syn = cable.seen.iter().find(is_ipv4).unwrap();
    let packet = ip::Packet::parse(&syn[14..]).unwrap();
    assert_eq!((packet.hop_limit, packet.traffic_class), (3, 0x28));
}

#[test]
fn an_orphan_without_a_route_is_given_up_whatever_was_asked_for() {
    let mut cable = Cable::two();
    cable.hosts[1].listen("0.0.0.0:80".parse().unwrap(), 4).unwrap();
    let id = cable.connect("10.0.0.2:80");
    cable.pass(Duration::from_secs(1));
    let now = cable.now;
    let mut options = cable.hosts[0].options(id).unwrap();
    options.user_timeout = Duration::from_secs(1_000_000);
    cable.hosts[0].set_options(now, id, options).unwrap();
    // The neighbour falls silent, is forgotten, and only then does the user leave.
    cable.muted = Some(1);
    cable.hosts[0].write(now, id, b"hello?").unwrap();
    cable.pass(Duration::from_secs(1000));
    assert_eq!(cable.hosts[0].state(id), State::Established);
    let now = cable.now;
    cable.hosts[0].close(now, id);
    cable.pass(Duration::from_secs(400));
    assert_eq!(cable.hosts[0].connections(), 0);
}

/// A frame behind these VLAN tags, each a type and its control bits.
fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut bytes = frame[..12].to_vec();
    for (kind, control) in tags {
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&control.to_be_bytes());
    }
    bytes.extend_from_slice(&frame[12..]);
    bytes
}

#[test]
fn a_frame_of_a_vlan_is_counted_and_a_priority_tag_is_none() {
    use ethernet::ethertype::{PROVIDER_VLAN, VLAN};
    let mut cable = Cable::two();
    cable.hosts[1].listen("0.0.0.0:80".parse().unwrap(), 4).unwrap();
    cable.connect("10.0.0.2:80");
    cable.settle();
    // What the opener sent: a question by ARP, a SYN, an ACK.
    let frames = cable.seen.iter().filter(|frame| frame[6..12] == [2, 0, 0, 0, 0, 1]);
    let frames: Vec<Vec<u8>> = frames.cloned().collect();
    assert!(frames.iter().any(|frame| frame[12..14] == [8, 6]), "{frames:02x?}");
    let mut replies = Vec::new();
    for tags in [&[][..], &[(VLAN, 0)], &[(PROVIDER_VLAN, 0), (VLAN, 0xe000)], &[(VLAN, 7)]] {
        let mut host = Host::new(host(&["10.0.0.2/24", "fd00::2/64"], 2)).unwrap();
        host.listen("0.0.0.0:80".parse().unwrap(), 4).unwrap();
        let (now, mut outbox) = (cable.now, Outbox::new(64));
        for frame in &frames {
            host.on_frame(now, RxFrame::plain(&tagged(frame, tags)));
        }
        host.emit(now, &mut outbox);
        replies.push((host.counters().segments_in, host.counters().vlan_unknown));
    }
    let [plain, priority, both, vlan] = replies[..] else { panic!("{replies:?}") };
    assert_eq!([priority, both], [plain; 2]);
    assert!(plain.0 > 0 && plain.1 == 0, "{plain:?}");
    assert_eq!(vlan, (0, frames.len() as u64));
}
