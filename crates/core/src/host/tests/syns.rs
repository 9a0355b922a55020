//! SYNs that meet what is left of the connection before them: a record in TIME-WAIT, or an orphan
//! in FIN-WAIT-2 that is nothing but a record. Each comes bare, and as Linux writes it, which takes
//! a shorter way in. (Records whose time is over: see [`super::expired`].)

use super::fin_wait_2::{resting_of, states};
use super::old::*;
use super::pair::config;
use super::peer::*;
use crate::tcp::State;
use crate::tcp::time_wait::ISN_STEP;
use crate::time::Duration;

/// What RFC 6528's clock counts in a millisecond.
const CLOCK_PER_MS: u32 = 250;

/// Milliseconds after which the clock still lies before the old connection's numbers and a step, by
/// a hair and by far; and after which it lies beyond them.
const PAUSES: [(u64, bool); 4] = [(10, false), (262, false), (263, true), (1000, true)];

/// How far beyond the ISN of the old connection, which sent but SYN and FIN and began so long
/// before, that of the next lies.
fn isn_beyond(ms: u64, by_clock: bool) -> u32 {
    let (clock, floor) = (ms as u32 * CLOCK_PER_MS, 2 + ISN_STEP);
    assert_eq!(clock > floor, by_clock);
    clock.max(floor)
}

#[test]
fn the_answers_isn_is_the_clocks_or_a_step_past_the_old_numbers() {
    for old in Old::all() {
        for layout in LAYOUTS {
            for (ms, by_clock) in PAUSES {
                let mut peer = old.waiting();
                let old_isn = peer.host_isn;
                peer.now = peer.now + Duration::from_millis(ms);
                say_syn(&mut peer, layout, &old.syn(layout, true));
                assert_eq!(peer.hear_one().flags, S | A);
                let beyond = peer.host_isn.since(old_isn);
                assert_eq!(beyond, isn_beyond(ms, by_clock), "{old:?}, {layout:?}, {ms} ms");
                assert_eq!(peer.host_isn == clock_isn(&peer), by_clock);
            }
        }
    }
}

#[test]
fn our_opens_isn_is_the_clocks_or_a_step_past_the_old_numbers() {
    for old in Old::all().into_iter().filter(|old| old.stamped) {
        for (ms, by_clock) in PAUSES {
            let mut peer = old.waiting();
            let (old_isn, (local, remote)) = (peer.host_isn, peer.ends());
            peer.now = peer.now + Duration::from_millis(ms);
            peer.host.connect(peer.now, local, remote).unwrap();
            assert_eq!(peer.hear_one().flags, S);
            let beyond = peer.host_isn.since(old_isn);
            assert_eq!(beyond, isn_beyond(ms, by_clock), "{old:?}, {ms} ms");
            assert_eq!(peer.host_isn == clock_isn(&peer), by_clock);
        }
    }
}

#[test]
fn a_new_syn_opens_and_the_record_ends_with_the_handshake() {
    for old in Old::all() {
        for layout in LAYOUTS {
            let mut peer = old.waiting();
            peer.now = peer.now + Duration::from_secs(1);
            let syn = old.syn(layout, true);
            say_syn(&mut peer, layout, &syn);
            let answer = peer.hear_one();
            assert_eq!((answer.flags, answer.ack), (S | A, syn.seq + 1), "{old:?}, {layout:?}");
            assert_eq!((counted(&peer), left(&peer).is_some()), ((1, 0, 0), true), "{old:?}");
            complete(&mut peer, &syn, &answer);
            assert_eq!((counted(&peer), left(&peer)), ((1, 0, 1), None), "{old:?}, {layout:?}");
            assert_eq!(peer.host.time_wait_len(), 0);
        }
    }
}

/// The twin.
#[test]
fn an_old_syn_opens_nothing_and_is_answered_by_the_record() {
    for old in Old::all() {
        for layout in LAYOUTS {
            let mut peer = old.waiting();
            peer.now = peer.now + Duration::from_secs(1);
            say_syn(&mut peer, layout, &old.syn(layout, false));
            assert_eq!(peer.hear_text(), [". 2:2(0) ack 2"], "{old:?}, {layout:?}");
            assert_eq!((counted(&peer), peer.host.half_open()), ((0, 1, 0), 0), "{old:?}");
            assert!(left(&peer).is_some());
        }
    }
}

/// To the peer an orphan is a connection, whatever is kept of it: it answers a SYN with an ACK (RFC
/// 5961 §4.2), and the RST that a peer that has begun anew sends in return ends it.
#[test]
fn a_syn_for_a_fin_wait_2_orphan_opens_nothing_before_its_reset() {
    for address in HOSTS {
        for layout in LAYOUTS {
            for seq in [500_000, 11] {
                let mut peer = resting_of(config(address));
                let syn = Say::new(S, seq, 0);
                let syn = if layout == Layout::Fast { syn.fast(2000) } else { syn };
                say_syn(&mut peer, layout, &syn);
                assert_eq!(peer.host.half_open(), 0, "{address}, {layout:?}, {seq}");
                assert_eq!(peer.hear_text(), [". 22:22(0) ack 11"], "{address}, {layout:?}");
                assert_eq!(states(&peer), [State::Listen, State::FinWait2], "{address}");
                assert!(peer.exchange(Say::new(R, 11, 0)).is_empty());
                assert_eq!(states(&peer), [State::Listen], "{address}, {layout:?}");
                say_syn(&mut peer, layout, &syn);
                let answer = peer.hear_one();
                assert_eq!((answer.flags, answer.ack), (S | A, seq + 1), "{address}");
                complete(&mut peer, &syn, &answer);
                assert_eq!(states(&peer), [State::Listen, State::Established]);
            }
        }
    }
}
