//! Tests of the negotiation's pure part.

use super::*;
use std::vec::Vec;

const CODE: Code = Code { kind: 253, exid: 0x5457 };
const ENDS: [&str; 4] = ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"];

fn address(index: usize) -> IpAddr {
    ENDS[index].parse().unwrap()
}

fn naming(address: IpAddr) -> Options {
    Options { experimental: CODE.option(address), ..Options::NONE }
}

fn terms(wish: Option<End>, required: bool, disagreement: Disagreement) -> HolderTerms {
    HolderTerms { wish, required, disagreement }
}

#[test]
fn the_option_is_laid_out_as_the_module_says() {
    let mut bytes = Vec::new();
    naming(address(0)).emit(&mut bytes);
    assert_eq!(bytes, [253, 8, 0x54, 0x57, 10, 0, 0, 1]);
    bytes.clear();
    naming(address(2)).emit(&mut bytes);
    assert_eq!(bytes[..4], [253, 20, 0x54, 0x57]);
    assert_eq!(bytes[4..], core::net::Ipv6Addr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]).octets());
    for index in [0, 2] {
        let of_kind = usize::from(Code::padded_len(address(index).is_ipv6()));
        assert_eq!(naming(address(index)).len(), of_kind);
    }
}

#[test]
fn a_full_syn_has_room_for_either_address_to_the_byte_for_ipv6() {
    use crate::wire::options::{Layout, MAX_OPTIONS_BYTES, Timestamps};
    for (index, len) in [(0, 28), (2, MAX_OPTIONS_BYTES)] {
        for layout in [Layout::ScaleLast, Layout::ScaleFirst] {
            let syn = Options {
                mss: Some(1460),
                window_scale: Some(7),
                sack_permitted: true,
                timestamps: Some(Timestamps::default()),
                layout,
                ..naming(address(index))
            };
            let mut bytes = Vec::new();
            syn.emit(&mut bytes);
            assert_eq!((syn.len(), bytes.len()), (len, len));
            let parsed = Options::parse(&bytes).unwrap();
            assert_eq!(CODE.address(&parsed), Some(address(index)));
            assert_eq!(Options { layout, ..parsed }, syn, "nothing gave way");
        }
    }
}

#[test]
fn only_the_ends_are_named_and_only_by_our_own_code() {
    for first in [0, 2] {
        let (ours, theirs) = (address(first), address(first + 1));
        let named = |options: &Options| CODE.named(options, ours, theirs);
        assert_eq!(named(&naming(ours)), Some(End::Ourselves));
        assert_eq!(named(&naming(theirs)), Some(End::Peer));
        assert_eq!(named(&naming("192.0.2.1".parse().unwrap())), None, "a translator's");
        assert_eq!(named(&Options::NONE), None);
        assert_eq!(CODE.named(&naming(ours), ours, ours), None, "one host is both ends");
        for other in [Code { kind: 254, ..CODE }, Code { exid: 0x5458, ..CODE }] {
            assert_eq!(other.named(&naming(ours), ours, theirs), None);
        }
    }
    let mut odd = Options::NONE;
    odd.experimental.push(253, &[0x54, 0x57, 10, 0, 0]);
    assert_eq!(CODE.address(&odd), None, "no address has three bytes");
    let mut second = Options::NONE;
    second.experimental.push(254, &[0x54, 0x57]);
    second.experimental.push(253, &[0x54, 0x57, 10, 0, 0, 1]);
    assert_eq!(CODE.address(&second), Some(address(0)), "behind another experiment's");
}

#[test]
fn a_wish_names_an_end_by_who_opens() {
    use Wish::{Client, Off, Server};
    let ends = |wish: Wish| [wish.end(true), wish.end(false)];
    assert_eq!(ends(Client), [Some(End::Ourselves), Some(End::Peer)]);
    assert_eq!(ends(Server), [Some(End::Peer), Some(End::Ourselves)]);
    assert_eq!(ends(Wish::Ourselves), [Some(End::Ourselves); 2]);
    assert_eq!(ends(Wish::Peer), [Some(End::Peer); 2]);
    assert_eq!(ends(Off), [None; 2]);
}

#[test]
fn a_client_agrees_falls_back_or_refuses() {
    use Disagreement::{Abort, FallBack};
    let wish = Some(End::Ourselves);
    let other = Some(End::Peer);
    for (required, disagreement, without, unwished) in [
        (false, Abort, Outcome::None, Outcome::Refused),
        (false, FallBack, Outcome::None, Outcome::None),
        (true, Abort, Outcome::Refused, Outcome::Refused),
        (true, FallBack, Outcome::Refused, Outcome::Refused),
    ] {
        let terms = terms(wish, required, disagreement);
        assert_eq!(terms.judge(wish), Outcome::Agreed(End::Ourselves));
        assert_eq!(terms.judge(None), without);
        assert_eq!(terms.judge(other), unwished);
    }
    assert_eq!(terms(None, false, Abort).judge(other), Outcome::None, "it has not asked");
}

#[test]
fn crossed_opens_follow_table_1_and_one_end_at_most_refuses() {
    use Disagreement::Abort;
    let flip = |end: End| match end {
        End::Ourselves => End::Peer,
        End::Peer => End::Ourselves,
    };
    let wishes = [None, Some(End::Ourselves), Some(End::Peer)];
    // A has the larger address. Wishes as each end sees them.
    for a in wishes {
        for b in wishes {
            let at_a = terms(a, false, Abort).judge_crossed(b.map(flip), true);
            let at_b = terms(b, false, Abort).judge_crossed(a.map(flip), false);
            let value = match (a, b.map(flip)) {
                (None, _) | (_, None) => None,
                (Some(a), Some(b)) if a == b => Some(a),
                // Larger: A's address.
                _ => Some(End::Ourselves),
            };
            let expected = |wish: Option<End>, value: Option<End>| match value {
                None => Outcome::None,
                Some(value) if wish == Some(value) => Outcome::Agreed(value),
                Some(_) => Outcome::Refused,
            };
            assert_eq!(at_a, expected(a, value));
            assert_eq!(at_b, expected(b, value.map(flip)));
            let refusals = [at_a, at_b].iter().filter(|it| **it == Outcome::Refused).count();
            assert!(refusals <= 1, "{a:?} {b:?}");
        }
    }
}

#[test]
fn only_the_peer_that_names_itself_proves() {
    let mut holder = Holder::having_named(Some(End::Peer));
    assert_eq!(holder, Holder::Unproven);
    assert!(!holder.hear(None) && !holder.hear(Some(End::Ourselves)));
    assert_eq!(holder, Holder::Unproven);
    assert!(holder.hear(Some(End::Peer)) && !holder.hear(Some(End::Peer)));
    assert_eq!(holder, Holder::Peer);
    // An end that has named itself holds, whatever it hears; an end that has asked for nothing goes
    // on so.
    for named in [None, Some(End::Ourselves)] {
        let mut holder = Holder::having_named(named);
        assert!(!holder.hear(Some(End::Peer)));
        assert_eq!(holder, Holder::having_named(named));
    }
}
