//! Tests of headers, options and numbers: RFC 9293 §3.1, §3.2, §3.7.1.

use crate::flow::Seq;
use crate::host::tests::pair::{Pair, Side, config};
use crate::host::tests::peer::{A, Heard, Peer, S, Say, plain};
use crate::tcp::State;
use crate::tcp::connection::peer_mss;
use crate::time::Duration;
use crate::wire::options::{Layout, Options, tests::any_options};
use crate::wire::tcp::{Flags, Segment};
use crate::wire::{ip, options};
use proptest::prelude::*;
use std::vec::Vec;

/// Every option: what a host that is configured so may use.
fn full() -> crate::Config {
    let mut config = plain();
    config.tcp.window_scaling = true;
    config.tcp.timestamps = true;
    config.tcp.sack = true;
    config
}

/// A SYN that offers everything.
fn offering(syn: Say) -> Say {
    let mut syn = syn.mss(1000).sack_permitted().stamp(5000, 0);
    syn.options.window_scale = Some(14);
    syn
}

#[test]
fn a_window_of_65535_is_large_and_not_negative() {
    let mut peer = Peer::established_with(full(), offering);
    peer.say(Say::new(A, 1, 1).window(65_535).stamp(5001, 0));
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!(info.peer_window_bytes, 65_535 << 14);
    peer.write(5000);
    assert_eq!(peer.hear().iter().map(|heard| heard.len).sum::<usize>(), 5000);
}

/// The segment as a raw packet of the peer's, its payload changed by `spoil` after the checksum.
fn raw(peer: &Peer, payload: &[u8], spoil: u8) -> Vec<u8> {
    let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let header = crate::wire::tcp::Header {
        source_port: 4000,
        destination_port: 80,
        seq: peer.isn + 1,
        ack: peer.host_isn + 1,
        flags: A,
        window: 1000,
        urgent: 0,
        options: Options::default(),
    };
    let mut bytes = Vec::new();
    let len = header.header_len() + payload.len();
    ip::Header::new(from, to, ip::protocol::TCP, len).unwrap().emit(&mut bytes);
    let start = bytes.len();
    header.emit(&mut bytes);
    let sum = crate::wire::checksum::sum(payload);
    let value = crate::wire::tcp::checksum(from, to, &bytes[start..], sum, payload.len());
    bytes[start + crate::wire::tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&value.to_be_bytes());
    bytes.extend(payload.iter().map(|byte| byte ^ spoil));
    bytes
}

#[test]
fn a_segment_with_a_wrong_checksum_is_dropped() {
    let mut peer = Peer::established(plain());
    let (bad, good) = (raw(&peer, b"hello", 1), raw(&peer, b"hello", 0));
    let now = peer.now;
    peer.host.on_frame(now, crate::RxFrame::plain(&bad));
    assert!(peer.read(9).is_err());
    assert_eq!(peer.host.counters().checksum_errors, 1);
    peer.host.on_frame(now, crate::RxFrame::plain(&good));
    assert_eq!(peer.read(9).unwrap(), b"hello");
}

#[test]
fn options_are_taken_in_any_segment_and_unknown_ones_ignored() {
    let mut peer = Peer::established(plain());
    let mut say = Say::new(A, 1, 1).data(b"hello").mss(9000).sack_permitted().stamp(1, 1);
    say.options.window_scale = Some(3);
    assert!(say.options.experimental.push(253, &[0xde, 0xad, 1]));
    peer.say(say);
    assert_eq!(peer.read(9).unwrap(), b"hello");
    // None of them was agreed on, so none of them means anything now.
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!((info.mss_bytes, info.peer_window_bytes), (1000, 60_000));
}

#[test]
fn a_malformed_option_drops_the_segment_not_the_connection() {
    let mut peer = Peer::established(plain());
    let mut bytes = raw(&peer, &[2, 0, 1, 1], 0);
    // The payload's first four bytes become options: MSS with the length 0.
    bytes[20 + 12] = 0x60;
    let trusted = crate::RxFrame {
        checksum: crate::frame::RxChecksum::Good,
        ..crate::RxFrame::plain(&bytes)
    };
    peer.host.on_frame(peer.now, trusted);
    assert!(peer.hear().is_empty());
    let malformed = peer.host.malformed().find(|(_, count)| *count > 0);
    assert_eq!(malformed, Some((crate::wire::Malformed::TcpOptionLength, 1)));
    assert_eq!(peer.state(), State::Established);
}

proptest! {
    #[test]
    fn behind_the_end_of_a_list_of_options_are_zeros(options in any_options(), bsd: bool) {
        let layout = if bsd { Layout::ScaleFirst } else { Layout::ScaleLast };
        let mut bytes = Vec::new();
        Options { layout, ..options }.emit(&mut bytes);
        let mut rest = &bytes[..];
        while let Some(&kind) = rest.first().filter(|kind| **kind != 0) {
            let len = if kind == 1 { 1 } else { usize::from(rest[1]) };
            rest = &rest[len..];
        }
        prop_assert!(rest.iter().all(|byte| *byte == 0), "{bytes:?}");
    }
}

#[test]
fn the_options_of_a_syn_are_on_every_syn_and_nowhere_else() {
    let mut pair = Pair::with(config("10.0.0.1"), config("10.0.0.2"));
    let (_, client, server) = pair.connected();
    pair.transfer((Side::Client, client), (Side::Server, server), 50_000);
    pair.transfer((Side::Server, server), (Side::Client, client), 50_000);
    let now = pair.now;
    pair.client.close(now, client);
    pair.server.close(now, server);
    pair.run_for(Duration::from_secs(1));
    let mut syns = 0;
    for (_, _, bytes) in &pair.log {
        let packet = ip::Packet::parse(bytes).unwrap();
        let segment = Segment::parse(packet.payload).unwrap();
        let is_syn = segment.flags.contains(Flags::SYN);
        assert_eq!(segment.options.mss, is_syn.then_some(1460));
        assert_eq!(segment.options.sack_permitted, is_syn);
        syns += u32::from(is_syn);
    }
    assert_eq!(syns, 2);
}

#[test]
fn without_an_mss_option_the_least_of_every_host_is_assumed() {
    let peer = Peer::established_with(plain(), |syn| syn);
    assert_eq!(peer.host.info(peer.id()).unwrap().mss_bytes, 536);
    assert_eq!(peer_mss(&Options::default(), true, 88), 1220);
    assert_eq!(peer_mss(&Options::default(), false, 88), 536);
}

#[test]
fn a_segment_is_bounded_by_peer_path_and_options() {
    let lens = |peer: &mut Peer| -> Vec<usize> {
        peer.write(3000);
        peer.hear().iter().map(|heard| heard.len).collect()
    };
    let mut by_path = Peer::established_with(plain(), |syn| syn.mss(9000));
    assert_eq!(lens(&mut by_path)[0], 1460);
    let mut by_peer = Peer::established_with(plain(), |syn| syn.mss(1000));
    assert_eq!(lens(&mut by_peer)[0], 1000);
    // The MSS counts no options: the 12 bytes of timestamps come off the text.
    let mut stamped = Peer::established_with(full(), offering);
    assert_eq!(lens(&mut stamped)[0], 988);
    // So do the 12 bytes of a SACK block that rides along.
    stamped.say(Say::new(A, 500, 1).stamp(5001, 0).data(b"out of order"));
    let heard = stamped.hear();
    assert_eq!(heard[0].options.sack.len(), 1);
    let (id, now) = (stamped.id(), stamped.now);
    let mut socket = stamped.host.options(id).unwrap();
    socket.nodelay = true;
    stamped.host.set_options(now, id, socket).unwrap();
    assert_eq!(lens(&mut stamped)[0], 976);
}

#[test]
fn the_announced_mss_is_what_the_device_can_take_in() {
    for (mtu, mss) in [(1500, 1460), (9000, 8960), (576, 536)] {
        let mut config = plain();
        config.device.mtu = mtu;
        let (_, syn): (Peer, Heard) = Peer::opening(config);
        assert_eq!(syn.options.mss, Some(mss));
        assert_eq!(options::mss_for_mtu(mtu, false), mss);
    }
}

#[test]
fn the_last_segment_of_what_is_queued_has_psh() {
    let mut peer = Peer::established(plain());
    peer.write(2500);
    let psh: Vec<(usize, bool)> =
        peer.hear().iter().map(|heard| (heard.len, heard.flags.contains(Flags::PSH))).collect();
    assert_eq!(psh, [(1000, false), (1000, false), (500, true)]);
}

#[test]
fn a_packet_that_may_be_cut_has_an_identification_of_its_own() {
    let mut peer = Peer::established(plain());
    peer.write(5000);
    peer.hear();
    let now = peer.now;
    // A router whose next link takes 300 bytes: we go no lower than 552, without DF.
    let quoted = super::errors::quoted(&peer, Seq(1).0, 1040);
    let say =
        crate::wire::icmpv4::Message::Unreachable { code: 4, next_hop_mtu: 300, quoted: &quoted };
    super::errors::complain(&mut peer, &say);
    let mut outbox = crate::Outbox::new(64);
    peer.host.on_time(now);
    peer.host.emit(now, &mut outbox);
    let mut seen = std::collections::BTreeSet::new();
    while let Some(frame) = outbox.take() {
        let mut bytes = Vec::new();
        frame.copy_to(&mut bytes);
        let packet = ip::Packet::parse(&bytes).unwrap();
        assert!(!packet.dont_fragment && bytes.len() <= 552);
        assert!(seen.insert([bytes[4], bytes[5]]), "{seen:?}");
    }
    assert!(seen.len() > 1, "{seen:?}");
}

#[test]
fn a_syn_takes_a_window_as_it_stands_and_scales_the_next() {
    let mut peer = Peer::listening(full());
    peer.say(offering(Say::new(S, 0, 0)).window(65_535));
    let syn_ack = peer.hear_one();
    let stamp = syn_ack.options.timestamps.unwrap().value;
    peer.say(Say::new(A, 1, 1).window(3).stamp(5001, stamp));
    peer.accept();
    let info = peer.host.info(peer.id()).unwrap();
    assert_eq!(info.peer_window_bytes, 3 << 14);
}
