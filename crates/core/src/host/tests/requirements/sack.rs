//! Selective acknowledgements and what is recovered by them: RFC 2018, RFC 6675.

use crate::config::LossDetection;
use crate::host::tests::peer::{A, Heard, Peer, Say, plain, reno};
use crate::time::Duration;
use std::vec::Vec;

fn with_sack() -> Peer {
    let mut config = reno();
    config.tcp.sack = true;
    config.tcp.congestion.detection = LossDetection::Count;
    Peer::established_with(config, |syn| syn.mss(1000).sack_permitted())
}

fn blocks(heard: &Heard, peer: &Peer) -> Vec<(u32, u32)> {
    let blocks = heard.options.sack.iter();
    blocks.map(|b| (b.start.since(peer.isn), b.end.since(peer.isn))).collect()
}

fn seqs(peer: &mut Peer) -> Vec<u32> {
    peer.hear().iter().map(|heard| heard.seq).collect()
}

/// The peer says ACK `ack` with these blocks, and the host answers with these numbers.
fn sacks(peer: &mut Peer, ack: u32, blocks: &[(u32, u32)]) -> Vec<u32> {
    let say =
        blocks.iter().fold(Say::new(A, 1, ack), |say, block| say.sack(peer, block.0, block.1));
    peer.say(say);
    seqs(peer)
}

// ---- the receiver: RFC 2018 §4, §8

#[test]
fn each_of_a_batch_of_segments_has_its_own_block_first() {
    let mut peer = with_sack();
    let starts = [2001, 4001, 6001, 8001, 10_001, 12_001];
    for start in starts {
        peer.say(Say::new(A, start, 1).data(&[1; 100]));
    }
    let heard = peer.hear();
    let first: Vec<u32> = heard.iter().map(|heard| blocks(heard, &peer)[0].0).collect();
    assert_eq!(first, starts);
    for heard in &heard {
        let mut told = blocks(heard, &peer);
        assert_eq!(told.len(), 4, "as many as there is room for");
        told.sort_unstable();
        told.dedup();
        assert_eq!(told.len(), 4, "and none twice");
    }
    // Segments that have grown together share their block.
    peer.say(Say::new(A, 2101, 1).data(&[1; 100]));
    peer.say(Say::new(A, 1901, 1).data(&[1; 100]));
    for heard in peer.hear() {
        assert_eq!(blocks(&heard, &peer)[0], (1901, 2201));
    }
}

#[test]
fn every_block_is_told_at_least_three_times() {
    let mut peer = with_sack();
    let mut told = std::collections::BTreeMap::new();
    for n in 1..=10 {
        peer.say(Say::new(A, 1 + 1000 * n, 1).data(&[1; 100]));
        let heard = peer.hear_one();
        for block in blocks(&heard, &peer) {
            *told.entry(block).or_insert(0) += 1;
        }
    }
    let counts: Vec<u32> = told.into_values().collect();
    assert_eq!(counts[..8], [4, 4, 4, 4, 4, 4, 4, 3]);
}

#[test]
fn while_something_is_missing_every_segment_tells_what_is_there() {
    let mut peer = with_sack();
    peer.say(Say::new(A, 2001, 1).data(&[1; 1000]));
    peer.hear();
    // New data of ours, a probe of the window, an ACK for what fills a part of the hole.
    peer.write(500);
    let text = peer.hear_one();
    assert_eq!((text.len, blocks(&text, &peer)), (500, Vec::from([(2001, 3001)])));
    peer.say(Say::new(A, 1, 501).data(&[1; 500]));
    let ack = peer.hear_one();
    assert_eq!((ack.ack, blocks(&ack, &peer)), (501, Vec::from([(2001, 3001)])));
    peer.say(Say::new(A, 501, 501).data(&[1; 1500]));
    let ack = peer.hear_one();
    assert_eq!((ack.ack, blocks(&ack, &peer)), (3001, Vec::new()), "nothing is missing");
}

/// RFC 2883 §4: "the following SACK block should be used to specify this larger block".
#[test]
fn behind_a_duplicate_comes_the_block_that_holds_it() {
    let mut peer = with_sack();
    for seq in [2001, 4001, 6001] {
        peer.exchange(Say::new(A, seq, 1).data(&[1; 1000]));
    }
    let rest = [(6001, 7001), (4001, 5001), (2001, 3001)];
    for (seq, len) in [(2001, 1000), (4501, 200), (6001, 1)] {
        peer.say(Say::new(A, seq, 1).data(&[1; 1000][..len]));
        let duplicate = (seq, seq + len as u32);
        let holder = *rest.iter().find(|block| (block.0..block.1).contains(&seq)).unwrap();
        let others = rest.iter().filter(|block| **block != holder);
        let expected: Vec<_> = [duplicate, holder].iter().chain(others).copied().collect();
        assert_eq!(blocks(&peer.hear_one(), &peer), expected);
    }
    // A duplicate that is part of no block is followed by the newest.
    peer.say(Say::new(A, 1, 1).data(&[1; 1000]));
    peer.hear();
    peer.say(Say::new(A, 1, 1).data(&[1; 1000]));
    let newest = [(1, 1001), (6001, 7001), (4001, 5001), (2001, 3001)];
    assert_eq!(blocks(&peer.hear_one(), &peer), newest);
}

/// A duplicate told with the duplicate ACK of another segment has its own block behind it, and that
/// segment's comes next.
#[test]
fn behind_the_block_of_a_duplicate_comes_that_of_the_segment() {
    let mut peer = with_sack();
    for seq in [2001, 4001] {
        peer.exchange(Say::new(A, seq, 1).data(&[1; 1000]));
    }
    peer.say(Say::new(A, 6001, 1).data(&[1; 1000]));
    peer.say(Say::new(A, 8001, 1).data(&[1; 1000]));
    peer.say(Say::new(A, 2001, 1).data(&[1; 1000]));
    let heard = peer.hear();
    let told = blocks(&heard[0], &peer);
    assert_eq!(told, [(2001, 3001), (2001, 3001), (6001, 7001), (8001, 9001)]);
    assert_eq!(blocks(&heard[1], &peer)[0], (8001, 9001));
}

#[test]
fn who_did_not_permit_sack_gets_none() {
    let mut config = plain();
    config.tcp.sack = true;
    let mut peer = Peer::established_with(config, |syn| syn.mss(1000));
    peer.say(Say::new(A, 2001, 1).data(&[1; 1000]));
    assert!(peer.hear_one().options.sack.is_empty());
}

#[test]
fn what_was_dropped_again_is_told_no_more() {
    let mut config = plain();
    config.tcp.sack = true;
    config.limits.pages = 8;
    let mut peer = Peer::established_with(config, |syn| syn.mss(1000).sack_permitted());
    for page in 3..9 {
        peer.say(Say::new(A, 1 + 4096 * page, 1).data(b"x"));
    }
    assert_eq!(peer.hear().len(), 6);
    // Data in order takes all but one of the pages: what was out of order is gone.
    peer.say(Say::new(A, 1, 1).data(&[1; 12_000]));
    let ack = peer.hear().pop().unwrap();
    assert_eq!((ack.ack, blocks(&ack, &peer)), (12_001, Vec::new()));
}

// ---- the sender: RFC 2018 §5, §8

#[test]
fn after_a_timeout_what_was_sacked_is_sent_again_with_its_bytes() {
    let mut peer = with_sack();
    peer.write(4000);
    let first: Vec<Heard> = peer.hear();
    assert_eq!(sacks(&mut peer, 1, &[(1001, 3001)]), []);
    let again = peer.wait(Duration::from_secs(1));
    assert_eq!(again.iter().map(|heard| heard.seq).collect::<Vec<_>>(), [1]);
    // The peer has reneged: it acknowledges the first alone, and tells of nothing beyond.
    peer.say(Say::new(A, 1, 1001));
    let again = peer.hear();
    assert_eq!(again.iter().map(|heard| heard.seq).collect::<Vec<_>>(), [1001, 2001]);
    for (sent, again) in first[1..].iter().zip(&again) {
        assert_eq!(sent.payload, again.payload);
    }
}

// ---- the sender: RFC 6675

#[test]
fn after_a_timeout_new_blocks_count_and_start_no_recovery() {
    let mut peer = with_sack();
    peer.write(10_000);
    peer.hear();
    let again = peer.wait(Duration::from_secs(1));
    assert_eq!(again[0].seq, 1);
    // Only the first and the fifth are missing; what the blocks tell of is not sent again.
    assert_eq!(sacks(&mut peer, 4001, &[(5001, 10_001)]), [4001]);
    assert_eq!(peer.host.counters().fast_recoveries, 0);
    assert_eq!(sacks(&mut peer, 10_001, &[]), []);
    assert_eq!(peer.host.info(peer.id()).unwrap().in_flight_bytes, 0);
}

#[test]
fn a_timeout_ends_recovery_and_none_begins_before_all_is_acked() {
    let mut peer = with_sack();
    peer.write(60_000);
    assert_eq!(peer.hear().len(), 10);
    sacks(&mut peer, 1, &[(1001, 5001)]);
    assert_eq!(peer.host.counters().fast_recoveries, 1);
    let sent: u32 = peer.host.info(peer.id()).unwrap().in_flight_bytes + 1;
    peer.wait(Duration::from_secs(1));
    // Duplicates and blocks in any number: it goes on slowly, from the left.
    for end in [3001, 4001, 5001, 6001, 7001] {
        sacks(&mut peer, 1001, &[(2001, end)]);
    }
    assert_eq!(peer.host.counters().fast_recoveries, 1);
    let (mut ack, mut flight) = (1001, 0);
    while ack < sent || flight < 4000 {
        ack += 1000;
        peer.say(Say::new(A, 1, ack));
        peer.hear();
        flight = peer.host.info(peer.id()).unwrap().in_flight_bytes;
    }
    // Beyond the point of then, a new loss is a new recovery.
    assert_eq!(peer.host.counters().fast_recoveries, 1);
    sacks(&mut peer, ack, &[(ack + 1000, ack + 4000)]);
    assert_eq!(peer.host.counters().fast_recoveries, 2);
}

#[test]
fn what_is_sent_next_follows_the_rules_in_order() {
    let mut peer = with_sack();
    peer.write(12_000);
    assert_eq!(peer.hear().len(), 10);
    // (1) What is lost; the pipe then has no room. 1 and 3 are missing under six.
    let sent = sacks(&mut peer, 1, &[(1001, 2001), (3001, 9001)]);
    assert_eq!(sent[..2], [1, 2001]);
    // (2) Then what is new: two segments are left.
    assert_eq!(sent[2..], [10_001, 11_001]);
    // (4) Then, once, the last of all: 9,001 to 12,001 are in flight and their fate is unknown.
    assert_eq!(sacks(&mut peer, 1, &[(1001, 2001), (3001, 9001)]), []);
    assert_eq!(sacks(&mut peer, 2001, &[(3001, 9001)]), [11_001]);
    assert_eq!(sacks(&mut peer, 9001, &[]), [], "and not once more in this recovery");
}

#[test]
fn a_hole_below_the_highest_block_is_filled_before_it_is_lost() {
    let mut peer = with_sack();
    peer.write(10_000);
    peer.hear();
    // 1 is lost; 5,001 lies under one block of two segments, which is not enough to be so.
    assert_eq!(sacks(&mut peer, 1, &[(1001, 5001), (6001, 8001)]), [1, 5001], "rules 1 and 3");
}

#[test]
fn what_a_rescue_passed_over_is_sent_again_all_the_same() {
    let mut peer = with_sack();
    peer.write(10_000);
    peer.hear();
    // The first is lost, and the eighth and ninth; the rescue sends the tenth.
    assert_eq!(sacks(&mut peer, 1, &[(1001, 7001)]), [1, 9001]);
    let sent = sacks(&mut peer, 7001, &[(9001, 10_001)]);
    assert_eq!(sent, [7001, 8001], "the holes below it, without waiting for the timer");
}

#[test]
fn an_ack_that_advances_and_reports_more_is_the_first_duplicate() {
    let mut peer = with_sack();
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    options.nodelay = true;
    peer.host.set_options(now, id, options).unwrap();
    // Small segments, so that it is their number that counts.
    for _ in 0..8 {
        peer.write(100);
        peer.hear_one();
    }
    let duplicates = |peer: &Peer| peer.host.info(peer.id()).unwrap().duplicate_acks;
    sacks(&mut peer, 1, &[(101, 201)]);
    sacks(&mut peer, 1, &[(101, 301)]);
    assert_eq!(duplicates(&peer), 2);
    peer.say(Say::new(A, 1, 301));
    assert_eq!(duplicates(&peer), 0, "a cumulative acknowledgement begins anew");
    assert_eq!(sacks(&mut peer, 401, &[(501, 601)]), []);
    assert_eq!(duplicates(&peer), 1);
    assert_eq!(sacks(&mut peer, 401, &[(501, 701)]), []);
    assert_eq!(sacks(&mut peer, 401, &[(501, 801)])[0], 401, "the third starts the recovery");
}

#[test]
fn what_is_sacked_beyond_a_recovery_is_remembered_after_it() {
    let mut peer = with_sack();
    peer.write(30_000);
    assert_eq!(peer.hear().len(), 10);
    // In recovery new segments leave, and the first of these is lost as well.
    assert_eq!(sacks(&mut peer, 1, &[(1001, 9001)]), [1, 10_001, 11_001, 12_001]);
    let point = 10_001;
    sacks(&mut peer, 1, &[(1001, point), (11_001, 13_001)]);
    let sent = peer.host.info(peer.id()).unwrap().in_flight_bytes + 1;
    assert!(sent > 14_000, "{sent}");
    sacks(&mut peer, 1, &[(1001, point), (11_001, sent)]);
    assert_eq!(peer.host.counters().fast_recoveries, 1);
    // The recovery is over, and what was told before its end shows the next loss at once.
    let next = sacks(&mut peer, point, &[]);
    assert_eq!(next.first(), Some(&point), "{next:?}");
}

#[test]
fn each_retransmission_starts_the_timer_over() {
    let mut peer = with_sack();
    peer.write(5000);
    peer.hear();
    assert!(peer.wait(Duration::from_millis(900)).is_empty());
    assert_eq!(sacks(&mut peer, 1, &[(1001, 5001)]), [1]);
    assert!(peer.wait(Duration::from_millis(999)).is_empty());
    assert_eq!(peer.wait(Duration::from_millis(2))[0].seq, 1);
}
