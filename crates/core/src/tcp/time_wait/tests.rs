//! The rules of TIME-WAIT, each with its twin one step beyond it.

use super::*;
use crate::flow::Tuple;
use crate::tcp::connection::FinalState;
use crate::time::Duration;
use crate::wire::options::{Options, Timestamps};

const NOW: Instant = Instant::from_millis(1000);

fn record(stamp: Option<u32>) -> Record {
    let tuple = Tuple::new(([10, 0, 0, 1].into(), 80), ([10, 0, 0, 2].into(), 1));
    let final_state = FinalState {
        snd_nxt: Seq(1000),
        rcv_nxt: Seq(5000),
        stamp,
        stamp_offset: None,
        window: 100,
        holding: Holding::Closer,
        ack_due: false,
    };
    Record::new(tuple, &final_state, NOW, Duration::from_secs(60))
}

fn segment(flags: Flags, seq: u32, ack: u32, stamp: Option<u32>) -> Segment<'static> {
    Segment {
        source_port: 1,
        destination_port: 80,
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
        window: 1,
        urgent: 0,
        options: Options {
            timestamps: stamp.map(|value| Timestamps { value, echo: 0 }),
            ..Options::default()
        },
        payload: &[],
    }
}

/// The verdict of a record without timestamps.
fn judge(flags: Flags, seq: u32, ack: u32) -> Verdict {
    record(None).judge(&segment(flags, seq, ack, None))
}

#[test]
fn a_reset_is_ignored_unless_the_peer_takes_over() {
    assert_eq!(judge(Flags::RST | Flags::ACK, 5000, 1000), Verdict::End);
    for (flags, seq, ack) in [
        (Flags::RST, 5000, 1000),
        (Flags::RST | Flags::ACK, 5001, 1000),
        (Flags::RST | Flags::ACK, 4999, 1000),
        (Flags::RST | Flags::ACK, 5000, 1001),
        (Flags::RST | Flags::ACK, 5000, 999),
    ] {
        assert_eq!(judge(flags, seq, ack), Verdict::IgnoreReset, "{flags} {seq} {ack}");
    }
}

/// RFC 1337 §2: an old duplicate draws our ACK, and a closed peer answers that with an RST at the
/// number which we acknowledged; without ACK, since our ACK had one.
#[test]
fn the_reset_that_our_own_ack_draws_does_not_kill_the_record() {
    let record = record(None);
    let old_duplicate = segment(Flags::ACK, 4000, 900, None);
    assert!(record.judge(&old_duplicate).is_answered());
    let drawn = segment(Flags::RST, record.snd_nxt.0, 0, None);
    assert_eq!(record.judge(&drawn), Verdict::IgnoreReset);
    let exact = segment(Flags::RST, record.rcv_nxt.0, 0, None);
    assert_eq!(record.judge(&exact), Verdict::IgnoreReset);
}

#[test]
fn who_holds_in_the_peer_s_stead_ignores_every_reset() {
    let holder = Record { is_holder: true, ..record(None) };
    let exact = segment(Flags::RST | Flags::ACK, 5000, 1000, None);
    assert_eq!(holder.judge(&exact), Verdict::IgnoreReset);
    assert_eq!(record(None).judge(&exact), Verdict::End);
}

#[test]
fn a_syn_is_judged_by_rfc_6191() {
    let table = [
        // (old stamp, new stamp, SEG.SEQ, accepted)
        (Some(700), Some(701), 1, true),
        (Some(700), Some(700), 5000, true),
        (Some(700), Some(700), 4999, false),
        (Some(700), Some(699), 9000, false),
        (None, None, 5000, true),
        (None, None, 4999, false),
        (None, Some(1), 1, true),
        (Some(700), None, 5000, true),
        (Some(700), None, 4999, false),
        // Newer and older across the wrap of the clock.
        (Some(u32::MAX), Some(0), 1, true),
        (Some(0), Some(u32::MAX), 9000, false),
        (Some(0), Some(0x7fff_ffff), 1, true),
        (Some(0), Some(0x8000_0000), 1, false),
    ];
    for (old, new, seq, accepted) in table {
        let verdict = record(old).judge(&segment(Flags::SYN, seq, 0, new));
        let reopen = Verdict::Reopen(Seq(1000) + ISN_STEP);
        let expected = if accepted { reopen } else { Verdict::Refuse };
        assert_eq!(verdict, expected, "old {old:?}, new {new:?}, seq {seq}");
    }
}

#[test]
fn a_syn_with_ack_opens_nothing_and_is_challenged() {
    for seq in [4999, 9000] {
        assert_eq!(judge(Flags::SYN | Flags::ACK, seq, 1000), Verdict::Challenge);
    }
    assert_eq!(judge(Flags::SYN, 4999, 0), Verdict::Refuse);
    assert!(matches!(judge(Flags::SYN, 9000, 0), Verdict::Reopen(_)));
}

#[test]
fn only_the_fin_itself_restarts() {
    let fin = Flags::FIN | Flags::ACK;
    assert_eq!(judge(fin, 4999, 1000), Verdict::Restart);
    assert_eq!(judge(Flags::FIN, 4999, 0), Verdict::Restart, "the ACK tells nothing");
    assert_eq!(judge(fin, 4998, 1000), Verdict::Challenge);
    assert_eq!(judge(fin, 5000, 1000), Verdict::Challenge, "it is another one");
    assert_eq!(judge(fin, 5099, 900), Verdict::Challenge);
    assert_eq!(judge(Flags::FIN, 5000, 0), Verdict::Ignore, "without ACK nothing counts");
    assert_eq!(judge(fin, 9000, 1000), Verdict::Challenge);
    let with_text = Segment { payload: b"abc", ..segment(fin, 4996, 1000, None) };
    assert_eq!(record(None).judge(&with_text), Verdict::Restart, "its last data with it");
    let too_long = Segment { payload: b"abcd", ..segment(fin, 4996, 1000, None) };
    assert_eq!(record(None).judge(&too_long), Verdict::Challenge);
}

#[test]
fn an_acceptable_segment_is_ignored_unless_it_acks_the_unsent() {
    for (flags, seq, ack) in [
        (Flags::ACK, 5000, 1000),
        (Flags::ACK | Flags::PSH, 5099, 1000),
        (Flags::EMPTY, 5000, 0),
        (Flags::PSH, 5000, 0),
    ] {
        assert_eq!(judge(flags, seq, ack), Verdict::Ignore);
    }
    for (flags, seq, ack) in
        [(Flags::ACK, 5000, 1001), (Flags::ACK | Flags::FIN, 5100, 1000), (Flags::EMPTY, 4999, 0)]
    {
        assert_eq!(judge(flags, seq, ack), Verdict::Challenge);
    }
    let closed = Record { window: 0, ..record(None) };
    assert_eq!(closed.judge(&segment(Flags::ACK, 5000, 1000, None)), Verdict::Ignore);
    assert_eq!(closed.judge(&segment(Flags::ACK, 5001, 1000, None)), Verdict::Challenge);
}

/// So that two records whose last ACKs cross fall silent at once.
#[test]
fn two_records_that_meet_do_not_answer_each_other() {
    let ours = record(None);
    let theirs = Record { snd_nxt: ours.rcv_nxt, rcv_nxt: ours.snd_nxt, ..ours };
    let ack = |record: &Record| segment(Flags::ACK, record.snd_nxt.0, record.rcv_nxt.0, None);
    assert_eq!(ours.judge(&ack(&theirs)), Verdict::Ignore);
    assert_eq!(theirs.judge(&ack(&ours)), Verdict::Ignore);
}

#[test]
fn an_old_timestamp_is_answered_and_restarts_nothing() {
    let record = record(Some(700));
    let fin = |stamp| segment(Flags::FIN | Flags::ACK, 4999, 1000, Some(stamp));
    assert_eq!(record.judge(&fin(699)), Verdict::Stale);
    assert_eq!(record.judge(&fin(700)), Verdict::Restart);
}

#[test]
fn with_timestamps_an_unstamped_segment_must_be_a_rst_or_syn() {
    let record = record(Some(700));
    let judge = |flags, seq| record.judge(&segment(flags, seq, 1000, None));
    assert_eq!(judge(Flags::FIN | Flags::ACK, 4999), Verdict::Ignore);
    assert_eq!(judge(Flags::ACK, 9999), Verdict::Ignore);
    assert_eq!(judge(Flags::RST | Flags::ACK, 5000), Verdict::End);
    assert_eq!(judge(Flags::SYN, 4999), Verdict::Refuse);
    assert!(matches!(judge(Flags::SYN, 5000), Verdict::Reopen(_)));
}

#[test]
fn an_active_open_takes_timestamps_and_a_clock_that_moved_on() {
    let entered = record(Some(1)).entered;
    assert!(!record(Some(1)).may_open(entered + Duration::from_micros(999)));
    assert!(record(Some(1)).may_open(entered + Duration::from_millis(1)));
    assert!(!record(None).may_open(entered + Duration::from_secs(59)));
}

#[test]
fn each_verdict_is_counted_once_and_only_some_are_answered() {
    let all = [
        (Verdict::Ignore, false),
        (Verdict::IgnoreReset, false),
        (Verdict::End, false),
        (Verdict::Reopen(Seq(1)), false),
        (Verdict::Refuse, true),
        (Verdict::Stale, true),
        (Verdict::Restart, true),
        (Verdict::Challenge, true),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (verdict, is_answered) in all {
        let mut counters = Counters::default();
        verdict.count(&mut counters);
        let counted: std::vec::Vec<_> = counters.iter().filter(|count| count.1 == 1).collect();
        // A handshake counts once it has begun.
        let is_counted = !matches!(verdict, Verdict::Reopen(_));
        assert_eq!(counted.len(), usize::from(is_counted), "{verdict:?}");
        if is_counted {
            assert!(seen.insert(counted[0].0), "{verdict:?} has a counter of its own");
        }
        assert_eq!(verdict.is_answered(), is_answered, "{verdict:?}");
    }
}
