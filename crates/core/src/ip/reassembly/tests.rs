use crate::ip::reassembly::*;
use crate::wire::{ipv4, ipv6};
use proptest::collection::vec;
use proptest::prelude::*;

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn reassembly() -> Reassembly {
    Reassembly::new(2, 1 << 20)
}

/// Hands in the IPv4 fragment `offset..` of packet `id`.
fn give(r: &mut Reassembly, now: Instant, id: u16, offset: u16, more: bool, len: usize) -> Outcome {
    let payload: Vec<u8> = (0..len).map(|i| (usize::from(offset) + i) as u8).collect();
    give_bytes(r, now, &ipv4::tests::fragment(id, offset, more, &payload))
}

fn give_bytes(r: &mut Reassembly, now: Instant, bytes: &[u8]) -> Outcome {
    r.on_fragment(now, &Packet::parse(bytes).unwrap())
}

fn dropped(reason: Reason) -> Outcome {
    Outcome::Dropped(reason)
}

/// The payload of the packet that must have come out.
fn payload(outcome: Outcome) -> Vec<u8> {
    let Outcome::Complete(bytes) = outcome else { panic!("{outcome:?}") };
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.protocol, packet.fragment), (17, None));
    packet.payload.to_vec()
}

#[test]
fn fragments_in_any_order_make_the_packet() {
    let expected: Vec<u8> = (0..27).collect();
    let pieces = [(0, true, 8), (8, true, 16), (24, false, 3)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut r = reassembly();
        for (n, &piece) in order.iter().enumerate() {
            let (offset, more, len) = pieces[piece];
            let outcome = give(&mut r, at(0), 7, offset, more, len);
            if n < 2 {
                assert_eq!(outcome, Outcome::Pending);
            } else {
                assert_eq!(payload(outcome), expected, "{order:?}");
            }
        }
        assert_eq!((r.assemblies.len(), r.bytes), (0, 0));
    }
}

#[test]
fn both_versions_work_and_the_rebuilt_packet_keeps_its_ends() {
    let mut r = reassembly();
    let first = ipv6::tests::fragment(9, 0, true, &[1; 8]);
    assert_eq!(give_bytes(&mut r, at(0), &first), Outcome::Pending);
    let last = ipv6::tests::fragment(9, 8, false, &[2; 3]);
    let Outcome::Complete(bytes) = give_bytes(&mut r, at(0), &last) else { panic!() };
    let packet = Packet::parse(&bytes).unwrap();
    let sent = Packet::parse(&first).unwrap();
    assert_eq!((packet.source, packet.destination), (sent.source, sent.destination));
    assert_eq!((packet.protocol, packet.hop_limit), (17, 64));
    assert_eq!(packet.payload, [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn packets_are_told_apart() {
    let mut r = reassembly();
    assert_eq!(give(&mut r, at(0), 1, 0, true, 8), Outcome::Pending);
    assert_eq!(give(&mut r, at(0), 2, 8, false, 8), Outcome::Pending);
    assert_eq!(payload(give(&mut r, at(0), 1, 8, false, 8)).len(), 16);
    assert_eq!(payload(give(&mut r, at(0), 2, 0, true, 8)).len(), 16);
    assert_eq!(give(&mut r, at(0), 1, 0, false, 8), dropped(Reason::Whole));
}

#[test]
fn an_exact_copy_passes_and_any_overlap_ends_the_packet() {
    let mut r = reassembly();
    give(&mut r, at(0), 1, 8, true, 16);
    assert_eq!(give(&mut r, at(0), 1, 8, true, 16), dropped(Reason::Copy));
    assert_eq!(give(&mut r, at(0), 1, 0, true, 8), Outcome::Pending);
    assert_eq!(payload(give(&mut r, at(0), 1, 24, false, 1)).len(), 25);

    // By 8 bytes at either end, inside, around, and the same place with other bytes.
    for (offset, len) in [(0, 16), (16, 16), (8, 8), (0, 32)] {
        let mut r = reassembly();
        give(&mut r, at(0), 1, 8, true, 16);
        assert_eq!(give(&mut r, at(0), 1, offset, true, len), dropped(Reason::Overlap), "{offset}");
        assert_eq!(r.bytes, 0, "nothing of it is kept");
        // What still comes of it is dropped, until its time is over.
        assert_eq!(give(&mut r, at(59), 1, 0, true, 8), dropped(Reason::Abandoned));
        assert_eq!(give(&mut r, at(60), 1, 0, true, 8), Outcome::Pending);
        assert_eq!(r.expired(), None);
    }
    let mut r = reassembly();
    give(&mut r, at(0), 1, 8, true, 16);
    let other = ipv4::tests::fragment(1, 8, true, &[0xee; 16]);
    assert_eq!(give_bytes(&mut r, at(0), &other), dropped(Reason::Overlap));
}

#[test]
fn fragments_that_contradict_the_end_are_overlaps() {
    // After the last fragment, which ends at 24: beyond it, another end, and its copy with MF.
    for (offset, more, len) in [(24, true, 8), (24, false, 8), (8, false, 8), (16, true, 8)] {
        let mut r = reassembly();
        give(&mut r, at(0), 1, 16, false, 8);
        assert_eq!(give(&mut r, at(0), 1, offset, more, len), dropped(Reason::Overlap), "{offset}");
    }
    // An end before what has already arrived.
    let mut r = reassembly();
    give(&mut r, at(0), 1, 16, true, 8);
    assert_eq!(give(&mut r, at(0), 1, 8, false, 8), dropped(Reason::Overlap));
}

#[test]
fn a_packet_of_the_largest_size_is_made() {
    let mut r = reassembly();
    for (offset, more, len) in [(0, true, 32_000), (32_000, true, 32_000), (64_000, false, 1_515)] {
        let outcome = give(&mut r, at(0), 1, offset, more, len);
        assert_eq!(outcome == Outcome::Pending, more);
    }
    // One byte more is malformed: the parser's tests show it.
    assert!(r.assemblies.is_empty());
}

#[test]
fn the_fragment_beyond_the_limit_ends_the_packet() {
    for (count, within) in [(MAX_FRAGMENTS, true), (MAX_FRAGMENTS + 1, false)] {
        let mut r = reassembly();
        for n in 0..count - 1 {
            assert_eq!(give(&mut r, at(0), 1, n as u16 * 8, true, 8), Outcome::Pending);
        }
        let last = give(&mut r, at(0), 1, (count - 1) as u16 * 8, false, 8);
        if within {
            assert_eq!(payload(last).len(), 8 * MAX_FRAGMENTS);
        } else {
            assert_eq!(last, dropped(Reason::TooMany));
        }
    }
}

#[test]
fn the_packet_beyond_the_limit_evicts_the_oldest() {
    let mut r = reassembly();
    for id in 1..=3 {
        assert_eq!(give(&mut r, at(0), id, 0, true, 8), Outcome::Pending);
    }
    assert_eq!(r.assemblies.len(), 2);
    assert_eq!(give(&mut r, at(0), 1, 8, false, 8), Outcome::Pending, "it begins anew");
    assert_eq!(payload(give(&mut r, at(0), 3, 8, false, 8)).len(), 16);
    assert_eq!(Reassembly::new(1000, 0).limit, MAX_PACKETS);
}

#[test]
fn bytes_beyond_the_limit_evict_the_oldest_or_the_packet_itself() {
    // Fragments other than the first: nothing of them is kept to be quoted.
    let mut r = Reassembly::new(8, 64);
    assert_eq!(give(&mut r, at(0), 1, 8, true, 32), Outcome::Pending);
    assert_eq!(give(&mut r, at(0), 2, 8, true, 32), Outcome::Pending);
    assert_eq!((r.assemblies.len(), r.bytes), (2, 64));
    assert_eq!(give(&mut r, at(0), 2, 40, true, 8), Outcome::Pending);
    assert_eq!((r.assemblies.len(), r.bytes), (1, 40));
    assert_eq!(give(&mut r, at(0), 2, 48, true, 32), dropped(Reason::Bytes));
    assert_eq!((r.assemblies.len(), r.bytes), (0, 0));
}

#[test]
fn a_late_packet_is_given_up_and_its_sender_hears() {
    let mut r = reassembly();
    give(&mut r, at(0), 1, 0, true, 8);
    give(&mut r, at(1), 2, 8, true, 8);
    assert_eq!(r.deadline(), Some(at(60)));
    r.on_time(at(60) - Duration::from_nanos(1));
    assert_eq!(r.assemblies.len(), 2);
    r.on_time(at(60));
    let expired = r.expired().unwrap();
    assert_eq!(expired.source, IpAddr::from([10, 0, 0, 1]));
    assert_eq!(expired.destination, IpAddr::from([10, 0, 0, 2]));
    assert_eq!(expired.quoted.len(), 28);
    // Without its first fragment nothing can be quoted, and nothing is said.
    r.on_time(at(61));
    assert_eq!((r.expired(), r.deadline()), (None, None));
}

#[test]
fn marks_of_congestion_survive_or_condemn() {
    let fragment = |ecn: u8, offset: u16, more| {
        let mut bytes = ipv4::tests::fragment(1, offset, more, &[0; 8]);
        let checksum = u16::from_be_bytes([bytes[10], bytes[11]]);
        let updated = crate::wire::checksum::update(checksum, 0x4500, 0x4500 | u16::from(ecn));
        bytes[1] = ecn;
        bytes[10..12].copy_from_slice(&updated.to_be_bytes());
        bytes
    };
    for (first, second, expected) in
        [(2, 3, Ok(3)), (3, 2, Ok(3)), (2, 2, Ok(2)), (0, 2, Ok(0)), (0, 3, Err(Reason::Ecn))]
    {
        let mut r = reassembly();
        give_bytes(&mut r, at(0), &fragment(first, 0, true));
        match (give_bytes(&mut r, at(0), &fragment(second, 8, false)), expected) {
            (Outcome::Complete(bytes), Ok(class)) => assert_eq!(bytes[1], class),
            (outcome, expected) => assert_eq!(Err(outcome), expected.map_err(dropped).map(|_| ())),
        }
    }
}

proptest! {
    #[test]
    fn any_cut_and_any_order_give_the_packet_back(
        cuts in vec(1usize..40, 1..30), tail in 1usize..8, order in any::<u64>(),
        copies in vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut places = Vec::new();
        let mut at_byte = 0;
        for units in cuts {
            places.push((at_byte, true, units * 8));
            at_byte += units * 8;
        }
        places.push((at_byte, false, tail));
        let mut rng = crate::rng::Rng::from_seed(order);
        for i in (1..places.len()).rev() {
            places.swap(i, rng.below(i as u32 + 1) as usize);
        }
        // Copies of what was sent before the last one.
        let mut sent = places.clone();
        for copy in copies {
            let i = copy.index(places.len());
            sent.insert(sent.len() - 1, places[i]);
        }
        let mut r = reassembly();
        let mut made = Vec::new();
        for (offset, more, len) in sent {
            if let Outcome::Complete(bytes) = give(&mut r, at(0), 1, offset as u16, more, len) {
                made.push(payload(Outcome::Complete(bytes)));
            }
        }
        let expected: Vec<u8> = (0..at_byte + tail).map(|i| i as u8).collect();
        prop_assert_eq!(made.first(), Some(&expected));
    }

    #[test]
    fn whatever_comes_the_books_balance(
        steps in vec((0u16..5, 0u16..12, any::<bool>(), 0usize..5, 0u64..20), 0..200),
    ) {
        let mut r = Reassembly::new(3, 200);
        let mut now = 0;
        for (id, units, more, len, pass) in steps {
            now += pass;
            let len = if more { (len + 1) * 8 } else { len };
            if units > 0 || more {
                give(&mut r, at(now), id, units * 8, more, len);
            }
            r.on_time(at(now));
            prop_assert!(r.assemblies.len() <= 3 && r.bytes <= 200);
            let bytes: usize = r.assemblies.iter().map(|assembly| assembly.bytes).sum();
            prop_assert_eq!(bytes, r.bytes);
            prop_assert!(r.deadline().is_none_or(|deadline| deadline > at(now)));
        }
    }
}
