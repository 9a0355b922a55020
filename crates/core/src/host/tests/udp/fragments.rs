//! Datagrams that are larger than a packet may be.

use super::*;
use crate::wire::ip::Packet;

/// The packets that host 0 has sent since, without link headers.
fn packets(cable: &Cable, since: usize) -> Vec<Vec<u8>> {
    let ours = cable.seen[since..].iter().filter(|frame| frame[6..12] == [2, 0, 0, 0, 0, 1]);
    let ip = ours.filter(|frame| matches!(frame[12..14], [8, 0] | [0x86, 0xdd]));
    ip.map(|frame| frame[14..].to_vec()).collect()
}

#[test]
fn a_datagram_of_any_length_arrives() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "[::]:53");
    let client = bind(&mut cable, 0, "[::]:0");
    for (to, most) in [("10.0.0.2:53", IPV4_PAYLOAD_MAX), ("[fd00::2]:53", IPV6_PAYLOAD_MAX)] {
        for len in [0, 1, 1451, 1452, 1453, 1471, 1472, 1473, 2952, 2953, 9000, 40_001, most] {
            let before = cable.seen.len();
            send(&mut cable, 0, client, to, &bytes(len)).unwrap();
            cable.settle();
            assert_eq!(receive(&mut cable, 1, server).unwrap().0, bytes(len), "{to} {len}");
            let sent = packets(&cable, before);
            assert!(sent.iter().all(|packet| packet.len() <= 1500));
            let headers = if to.starts_with('[') { 48 } else { 28 };
            let is_whole = Packet::parse(&sent[sent.len() - 1]).unwrap().fragment.is_none();
            assert_eq!(is_whole, len + headers <= 1500, "{len}");
        }
    }
    assert_eq!(cable.hosts[1].counters().reassembly_failed, 0);
}

#[test]
fn fragments_go_on_where_there_was_no_room() {
    let mut cable = Cable::two();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    send(&mut cable, 0, client, "10.0.0.2:53", b"hello").unwrap();
    cable.settle();
    receive(&mut cable, 1, server).unwrap();
    let now = cable.now;
    let transmit = Transmit { segment: Some(20_000), ..Transmit::to(at("10.0.0.2:53")) };
    cable.hosts[0].udp_send(now, client, &transmit, &bytes(50_000)).unwrap();
    let mut turns = 0;
    while cable.hosts[0].wants_emit() {
        let mut outbox = Outbox::new(1);
        cable.hosts[0].emit(now, &mut outbox);
        turns += outbox.len();
        for frame in outbox.frames() {
            cable.hosts[1].on_frame(now, RxFrame::plain(&frame.head));
        }
    }
    assert_eq!(turns, 14 + 14 + 7);
    for piece in bytes(50_000).chunks(20_000) {
        assert_eq!(receive(&mut cable, 1, server).unwrap().0, piece);
    }
}

#[test]
fn no_two_datagrams_on_their_way_have_one_identification() {
    let mut cable = Cable::two();
    let client = bind(&mut cable, 0, "[::]:0");
    for to in ["10.0.0.2:9", "[fd00::2]:9"] {
        let before = cable.seen.len();
        for _ in 0..20 {
            send(&mut cable, 0, client, to, &bytes(2000)).unwrap();
            cable.settle();
        }
        let sent = packets(&cable, before);
        let fragments = sent.iter().filter_map(|bytes| Packet::parse(bytes).unwrap().fragment);
        let mut ids: Vec<u32> = fragments.map(|fragment| fragment.id).collect();
        assert_eq!(ids.len(), 40);
        ids.dedup();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 20, "both fragments of one have one, and no other has it");
    }
}

#[test]
fn a_datagram_that_may_not_be_cut_is_refused_if_it_is_too_long() {
    let mut cable = Cable::two();
    let client = bind(&mut cable, 0, "[::]:0");
    change(&mut cable.hosts[0], client, |options| options.dont_fragment = true);
    for (to, most) in [("10.0.0.2:9", 1472), ("[fd00::2]:9", 1452)] {
        assert_eq!(cable.hosts[0].udp_payload_max(at(to).ip()), most);
        let before = cable.seen.len();
        assert_eq!(send(&mut cable, 0, client, to, &bytes(most)), Ok(()));
        assert_eq!(send(&mut cable, 0, client, to, &bytes(most + 1)), Err(Error::MessageTooLong));
        cable.settle();
        let sent = packets(&cable, before);
        assert!(Packet::parse(sent.last().unwrap()).unwrap().dont_fragment);
    }
}

/// The frames of host 0's next datagram of `len` bytes to `to`, none of which has arrived.
fn held(cable: &mut Cable, id: UdpId, to: &str, len: usize) -> Vec<Vec<u8>> {
    let before = cable.seen.len();
    cable.muted = Some(0);
    send(cable, 0, id, to, &bytes(len)).unwrap();
    cable.settle();
    cable.muted = None;
    let ours = cable.seen[before..].iter().filter(|frame| frame[6..12] == [2, 0, 0, 0, 0, 1]);
    ours.filter(|frame| matches!(frame[12..14], [8, 0] | [0x86, 0xdd])).cloned().collect()
}

fn arrive(cable: &mut Cable, frames: &[&Vec<u8>]) {
    let now = cable.now;
    frames.iter().for_each(|frame| cable.hosts[1].on_frame(now, RxFrame::plain(frame)));
}

/// Two hosts that know each other, with a server and a client.
fn acquainted(change: impl FnOnce(&mut Config)) -> (Cable, UdpId, UdpId) {
    let mut server = host(&["10.0.0.2/24", "fd00::2/64"], 2);
    change(&mut server);
    let mut cable = Cable::new(Vec::from([host(&["10.0.0.1/24", "fd00::1/64"], 1), server]));
    let server = bind(&mut cable, 1, "[::]:53");
    let client = bind(&mut cable, 0, "[::]:0");
    for to in TO {
        send(&mut cable, 0, client, to, b"hello").unwrap();
        cable.settle();
        receive(&mut cable, 1, server).unwrap();
    }
    (cable, server, client)
}

const TO: [&str; 2] = ["10.0.0.2:53", "[fd00::2]:53"];

/// The same fragment eight bytes earlier.
fn earlier(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let (at, unit) = if frame[12] == 8 { (14 + 6, 1) } else { (14 + 40 + 2, 8) };
    let field = u16::from_be_bytes([frame[at], frame[at + 1]]) - unit;
    frame[at..at + 2].copy_from_slice(&field.to_be_bytes());
    if frame[12] == 8 {
        frame[24..26].fill(0);
        let header = &mut frame[14..34];
        crate::wire::checksum::fill(header, 0, 10, crate::wire::checksum::Sum::ZERO);
    }
    frame
}

#[test]
fn overlapping_fragments_are_no_datagram_and_copies_are() {
    for to in TO {
        let (mut cable, server, client) = acquainted(|_| {});
        let frames = held(&mut cable, client, to, 4000);
        let [a, b, c] = &frames[..] else { panic!("{} fragments", frames.len()) };
        // RFC 5722 §3, RFC 8200 §4.5: all that came of it is dropped, and what comes is a part.
        arrive(&mut cable, &[a, &earlier(b), b, c]);
        assert_eq!(receive(&mut cable, 1, server), Err(Error::WouldBlock), "{to}");
        assert!(cable.hosts[1].counters().reassembly_failed > 0);
        let frames = held(&mut cable, client, to, 4000);
        let [a, b, c] = &frames[..] else { panic!("{} fragments", frames.len()) };
        arrive(&mut cable, &[c, a, a, c, b]);
        assert_eq!(receive(&mut cable, 1, server).unwrap().0, bytes(4000), "{to}");
    }
}

#[test]
fn a_fragment_that_comes_too_late_makes_no_datagram() {
    for to in TO {
        let (mut cable, server, client) = acquainted(|_| {});
        change(&mut cable.hosts[0], client, |options| options.report_errors = true);
        let frames = held(&mut cable, client, to, 4000);
        arrive(&mut cable, &[&frames[0], &frames[1]]);
        cable.pass(Duration::from_secs(120));
        arrive(&mut cable, &[&frames[2]]);
        assert_eq!(receive(&mut cable, 1, server), Err(Error::WouldBlock), "{to}");
        assert_eq!(cable.hosts[1].counters().reassembly_failed, 1);
        assert_eq!(cable.hosts[1].pages_in_use(), 0);
        // Its sender hears of it (RFC 1122 §3.3.2, RFC 8200 §4.5).
        let told = cable.hosts[0].udp_error(client).map(|(about, _)| about);
        assert_eq!(told, Some(at(to)));
    }
}

#[test]
fn no_more_datagrams_are_put_together_than_may_be() {
    for to in TO {
        let (mut cable, server, client) = acquainted(|config| config.limits.reassemblies = 2);
        let all: Vec<_> = (0..3).map(|_| held(&mut cable, client, to, 2000)).collect();
        let failed = cable.hosts[1].counters().reassembly_failed;
        all.iter().for_each(|frames| arrive(&mut cable, &[&frames[0]]));
        // The oldest has made room for the newest.
        all[1..].iter().for_each(|frames| arrive(&mut cable, &[&frames[1]]));
        let heard = core::iter::from_fn(|| receive(&mut cable, 1, server).ok()).count();
        assert_eq!(heard, 2, "{to}");
        assert_eq!(cable.hosts[1].counters().reassembly_failed - failed, 1);
        arrive(&mut cable, &[&all[0][1]]);
        assert_eq!(receive(&mut cable, 1, server), Err(Error::WouldBlock), "{to}");
    }
}
