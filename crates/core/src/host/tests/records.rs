//! Records of an application: each ends with its segment.

use super::peer::{A, F, Peer, Say, plain, text};
use crate::error::WriteError;
use crate::event::{Event, Readiness};
use crate::tcp::SocketOptions;
use crate::time::Duration;
use std::vec;
use std::vec::Vec;

/// A peer with SACK, after a round trip of 100 ms in which `len` bytes left.
fn with_sack(len: usize) -> Peer {
    let mut config = plain();
    config.tcp.sack = true;
    let mut peer = Peer::established_with(config, |syn| syn.mss(1000).sack_permitted());
    peer.write(len);
    peer.hear();
    peer.wait(Duration::from_millis(100));
    peer.say(Say::new(A, 1, 1 + len as u32));
    peer.hear();
    peer
}

fn write_record(peer: &mut Peer, len: usize) -> Result<usize, WriteError> {
    let (now, id) = (peer.now, peer.id());
    peer.host.write_record(now, id, &vec![1; len])
}

fn is_writable(peer: &Peer) -> bool {
    peer.host.readiness(peer.now, peer.id()).contains(Readiness::WRITABLE)
}

#[test]
fn text_that_is_queued_later_goes_into_another_segment() {
    let mut peer = Peer::established(plain());
    assert_eq!(write_record(&mut peer, 300), Ok(300));
    assert_eq!(write_record(&mut peer, 1200), Ok(1200));
    peer.write(1500);
    // A small segment is in flight. What follows a record does not wait to fill its last one.
    let records = ["P 1:301(300) ack 1", ". 301:1301(1000) ack 1", "P 1301:1501(200) ack 1"];
    assert_eq!(peer.hear_text(), [&records[..], &[". 1501:2501(1000) ack 1"]].concat());
    assert_eq!(peer.exchange(Say::new(A, 1, 2501)), ["P 2501:3001(500) ack 1"]);
}

#[test]
fn the_last_record_waits_as_any_small_segment_does() {
    let mut peer = Peer::established(plain());
    write_record(&mut peer, 300).unwrap();
    assert_eq!(peer.hear_text(), ["P 1:301(300) ack 1"]);
    write_record(&mut peer, 200).unwrap();
    assert_eq!(peer.hear_text().len(), 0, "Nagle's algorithm");
    peer.write(100);
    assert_eq!(peer.hear_text(), ["P 301:501(200) ack 1"], "now it is not the last");
    assert_eq!(peer.exchange(Say::new(A, 1, 501)), ["P 501:601(100) ack 1"]);
}

#[test]
fn what_is_sent_again_ends_with_its_record() {
    let mut peer = Peer::established(plain());
    for _ in 0..2 {
        write_record(&mut peer, 300).unwrap();
    }
    peer.write(50);
    peer.hear();
    peer.say(Say::new(A, 1, 2));
    assert_eq!(peer.hear_text(), [] as [&str; 0], "a part of the first is there");
    let again: Vec<_> = peer.wait(Duration::from_millis(1200)).iter().map(text).collect();
    assert_eq!(again[..2], ["P 2:301(299) ack 1", "P 301:601(300) ack 1"]);
}

#[test]
fn a_loss_probe_is_the_last_segment_and_no_other_record() {
    let mut peer = with_sack(4000);
    for len in [700, 600] {
        write_record(&mut peer, len).unwrap();
    }
    assert_eq!(peer.hear_text(), ["P 4001:4701(700) ack 1"]);
    peer.say(Say::new(A, 1, 4701));
    write_record(&mut peer, 700).unwrap();
    peer.write(1);
    assert_eq!(peer.hear().len(), 2);
    let probe = peer.wait_for_one();
    assert_eq!((probe.seq, probe.len), (5301, 700));
}

#[test]
fn a_loss_probe_of_the_last_record_has_its_text_and_fin() {
    let mut peer = with_sack(4000);
    let (now, id) = (peer.now, peer.id());
    write_record(&mut peer, 700).unwrap();
    peer.host.close(now, id);
    peer.hear();
    let probe = peer.wait_for_one();
    assert_eq!((probe.seq, probe.len), (4001, 700));
    assert!(probe.flags.contains(F));
}

#[test]
fn a_record_that_is_not_taken_whole_has_not_ended() {
    let mut config = plain();
    config.tcp.buffers.send = 300;
    let mut peer = Peer::established(config);
    peer.say(Say::new(A, 1, 1).window(0));
    assert_eq!(write_record(&mut peer, 400), Ok(300));
    let (now, id) = (peer.now, peer.id());
    let options = peer.host.options(id).unwrap();
    let larger = SocketOptions { send_buffer_bytes: 5000, ..options };
    peer.host.set_options(now, id, larger).unwrap();
    assert_eq!(peer.write(100), 100);
    assert_eq!(peer.exchange(Say::new(A, 1, 1).window(5000)), ["P 1:401(400) ack 1"]);
}

#[test]
fn beyond_so_many_records_the_next_one_waits_for_an_ack() {
    let mut peer = Peer::established(plain());
    for _ in 0..4096 {
        assert_eq!(write_record(&mut peer, 1), Ok(1));
    }
    assert!(!is_writable(&peer));
    assert_eq!(write_record(&mut peer, 1), Err(WriteError::WouldBlock));
    assert_eq!(peer.write(1), 1, "of the same record there may be more");
    while !peer.hear().is_empty() {}
    while peer.host.event().is_some() {}
    peer.say(Say::new(A, 1, 4000));
    let (id, ready) = (peer.id(), Readiness::WRITABLE);
    assert_eq!(peer.host.event(), Some(Event::Ready(id, ready)));
    assert!(is_writable(&peer));
    assert_eq!(write_record(&mut peer, 1), Ok(1));
}

#[test]
fn after_its_end_nothing_can_be_a_record() {
    let mut peer = Peer::established(plain());
    let (now, id) = (peer.now, peer.id());
    assert_eq!(write_record(&mut peer, 0), Ok(0));
    peer.host.shutdown_write(now, id).unwrap();
    assert_eq!(write_record(&mut peer, 1), Err(WriteError::BrokenPipe));
}
