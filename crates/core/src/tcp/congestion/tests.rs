use super::*;
use crate::time::Duration;

const MSS: u32 = 1000;
const NOW: Instant = Instant::from_millis(10);

fn fresh(kind: Kind) -> Congestion {
    Congestion::new(kind, &TcpConfig::default(), MSS, Seq(1))
}

fn sent(una: Seq, nxt: Seq) -> Sent {
    Sent { now: NOW, una, nxt, was_idle: false }
}

fn loss(flight: u32) -> Loss {
    Loss { now: NOW, flight, is_marked: false }
}

/// A window of a hundred segments, in slow start.
fn of_hundred(kind: Kind) -> Congestion {
    let mut congestion = fresh(kind);
    congestion.scale(|bytes| 10 * bytes);
    congestion
}

/// Of a window that is used.
fn ack(congestion: &mut Congestion, delivered: u32) {
    let flight = congestion.window();
    let outcome = AckOutcome { delivered, flight, ..AckOutcome::default() };
    congestion.on_ack(&outcome, Ack::at(NOW), MSS);
}

const KINDS: [Kind; 3] = [Kind::Reno, Kind::Cubic, Kind::Dctcp];

#[test]
fn the_initial_window_follows_rfc_6928() {
    let window = |segments, mss| initial_window(segments, mss);
    assert_eq!((window(10, 1460), window(10, 9000)), (14_600, 18_000));
    assert_eq!((window(10, 536), window(1, 1460)), (5360, 1460));
}

#[test]
fn the_window_grows_only_if_used_and_free_of_congestion() {
    for kind in KINDS {
        let grown = |flight: u32, may_grow: bool| {
            let mut congestion = fresh(kind);
            congestion.on_sent(sent(Seq(1), Seq(1) + flight));
            let outcome = AckOutcome { delivered: MSS, flight: MSS, ..AckOutcome::default() };
            congestion.on_ack(&outcome, Ack { may_grow, ..Ack::at(NOW) }, MSS);
            congestion.window()
        };
        assert_eq!(grown(6 * MSS, true), 11 * MSS);
        assert_eq!(grown(5 * MSS, true), 10 * MSS, "half of it was used");
        assert_eq!(grown(6 * MSS, false), 10 * MSS, "ECE");
    }
}

#[test]
fn in_congestion_avoidance_an_unused_window_stays() {
    let grown = |flight: u32| {
        let mut congestion = Congestion::of_reno(10 * MSS, 5 * MSS);
        congestion.on_sent(sent(Seq(1), Seq(1) + flight));
        let outcome = AckOutcome { delivered: 10 * MSS, flight: MSS, ..AckOutcome::default() };
        congestion.on_ack(&outcome, Ack::at(NOW), MSS);
        congestion.window()
    };
    // Three segments that wait for their neighbours do not make it unused.
    assert_eq!((grown(7 * MSS - 1), grown(7 * MSS)), (10 * MSS, 11 * MSS));
}

#[test]
fn what_was_in_flight_counts_until_the_round_is_over() {
    let mut congestion = fresh(Kind::default());
    assert!(congestion.is_unused());
    congestion.on_sent(sent(Seq(1), Seq(1) + 9 * MSS));
    congestion.on_sent(sent(Seq(1) + 8 * MSS, Seq(1) + 10 * MSS));
    assert_eq!(congestion.usage.most, 9 * MSS, "the round is not over");
    congestion.on_sent(sent(Seq(1) + 10 * MSS, Seq(1) + 11 * MSS));
    assert_eq!(congestion.usage.most, MSS);
}

/// RFC 9438 §4.9.2, RFC 4015 §3.2.
#[test]
fn what_was_not_needed_is_undone_in_every_algorithm() {
    for kind in KINDS {
        let mut congestion = fresh(kind);
        ack(&mut congestion, 8 * MSS);
        let before = congestion.kept();
        congestion.on_timeout(loss(18 * MSS), false, MSS);
        assert_eq!(congestion.window(), MSS);
        congestion.on_undo(&before, 2 * MSS, 10 * MSS);
        assert_eq!((congestion.window(), congestion.threshold()), (12 * MSS, u32::MAX), "{kind:?}");
    }
}

/// What is sacked behind an old hole counts as in flight: a loss behind it has no larger window.
#[test]
fn no_loss_makes_a_window_larger() {
    for kind in [Kind::Reno, Kind::Cubic, Kind::Bbr, Kind::Dctcp] {
        let mut congestion = fresh(kind);
        let before = congestion.window();
        congestion.on_loss(loss(100 * MSS), MSS);
        assert!(congestion.window() <= before, "{kind:?}: {}", congestion.window());
    }
}

#[test]
fn the_curve_of_before_comes_back_unless_it_is_outgrown() {
    let mut congestion = of_hundred(Kind::Cubic);
    congestion.on_loss(loss(100 * MSS), MSS);
    ack(&mut congestion, MSS);
    let before = congestion.clone();
    congestion.on_loss(loss(70 * MSS), MSS);
    let reduced = congestion.clone();
    congestion.on_undo(&before.kept(), 60 * MSS, 10 * MSS);
    assert_eq!(congestion.threshold(), before.window());
    assert_eq!(congestion.window(), 70 * MSS);
    let (Algorithm::Cubic(new), Algorithm::Cubic(old)) = (&congestion.algorithm, &before.algorithm)
    else {
        panic!("CUBIC goes on");
    };
    assert_eq!(new.curve(), old.curve());
    let mut grown = reduced;
    grown.scale(|bytes| 3 * bytes);
    let window = grown.window();
    grown.on_undo(&before.kept(), 60 * MSS, 10 * MSS);
    assert_eq!(grown.window(), window);
}

#[test]
fn another_algorithm_goes_on_with_the_window() {
    let mut congestion = fresh(Kind::Cubic);
    ack(&mut congestion, 5 * MSS);
    congestion.switch(Kind::Reno, MSS, Seq(9));
    assert_eq!((congestion.window(), congestion.threshold()), (15 * MSS, u32::MAX));
    congestion.switch(Kind::Cubic, MSS, Seq(9));
    assert_eq!((congestion.window(), congestion.threshold()), (15 * MSS, u32::MAX));
    let mut congestion = of_hundred(Kind::Cubic);
    let before = congestion.clone();
    congestion.on_loss(loss(100 * MSS), MSS);
    congestion.switch(Kind::Reno, MSS, Seq(9));
    assert_eq!((congestion.window(), congestion.threshold()), (70 * MSS, 70 * MSS));
    congestion.switch(Kind::Cubic, MSS, Seq(9));
    assert_eq!((congestion.window(), congestion.threshold()), (70 * MSS, 70 * MSS));
    congestion.switch(Kind::Reno, MSS, Seq(9));
    congestion.on_undo(&before.kept(), 0, 0);
    assert_eq!(congestion.kind(), Kind::Reno, "what is undone is not the choice");
}

#[test]
fn a_window_follows_the_segments_of_the_path() {
    for kind in KINDS {
        let mut congestion = fresh(kind);
        congestion.on_mss(MSS, MSS / 2);
        assert_eq!(congestion.window(), 5 * MSS);
        congestion.on_handshake_loss(MSS);
        assert_eq!(congestion.window(), MSS);
    }
}

fn idle(spans: u32, initial_segments: u32) -> Idle {
    Idle { spans, initial_segments, mss: MSS }
}

/// RFC 2861 §3.1.
#[test]
fn a_pause_halves_the_window_down_to_the_initial_one() {
    for kind in KINDS {
        let after = |spans| {
            let mut congestion = of_hundred(kind);
            congestion.on_loss(loss(100 * MSS), MSS);
            let (window, threshold) = (congestion.window(), congestion.threshold());
            let expected = congestion.window_after_idle(idle(spans, 10));
            congestion.on_idle(idle(spans, 10));
            assert_eq!(congestion.window(), expected);
            assert_eq!(congestion.threshold(), threshold, "three quarters are less");
            f64::from(congestion.window()) / f64::from(window)
        };
        assert_eq!((after(0), after(1), after(2)), (1.0, 0.5, 0.25), "{kind:?}");
        for spans in [3, 31, 32, u32::MAX] {
            let mut congestion = of_hundred(kind);
            congestion.on_idle(idle(spans, 20));
            assert_eq!(congestion.window(), 20 * MSS, "{kind:?}");
            congestion.on_idle(idle(spans, 30));
            assert_eq!(congestion.window(), 20 * MSS, "it does not grow by it");
        }
    }
}

/// RFC 2861 §3.1: what the path has carried is come back to by slow start.
#[test]
fn after_a_pause_slow_start_ends_at_three_quarters() {
    let mut reno = Congestion::of_reno(100 * MSS, 20 * MSS);
    reno.on_idle(idle(1, 10));
    assert_eq!((reno.window(), reno.threshold()), (50 * MSS, 75 * MSS));
    let mut cubic = Cubic::new(100 * MSS, 20 * MSS);
    cubic.on_idle(50 * MSS, 75 * MSS);
    assert_eq!((cubic.window, cubic.threshold), (50 * MSS, 75 * MSS));
}

/// A first slow start in line becomes a box once it is long: its rounds go on.
#[test]
fn a_first_slow_start_is_in_line_while_it_is_short() {
    let mut congestion = fresh(Kind::Cubic);
    let (mut una, mut acks) = (Seq(1), 0);
    while matches!(congestion.algorithm, Algorithm::First(_)) {
        let (nxt, flight) = (una + congestion.window(), congestion.window());
        una += MSS;
        let rtt_ns = 50_000_000;
        let outcome = AckOutcome { delivered: MSS, flight, rtt_ns, ..AckOutcome::default() };
        congestion.on_ack(&outcome, Ack { una, nxt, ..Ack::at(NOW) }, MSS);
        acks += 1;
    }
    assert_eq!((acks, congestion.window()), (10, 20 * MSS));
    assert_eq!(congestion.next(congestion.window(), MSS), 40 * MSS);
}

/// A window that is not used does not outgrow it, however long the connection lasts.
#[test]
fn a_connection_of_small_answers_stays_in_line() {
    let mut congestion = fresh(Kind::Cubic);
    for number in 0..1000 {
        let una = Seq(1) + number * MSS;
        congestion.on_sent(Sent { was_idle: true, ..sent(una, una + MSS) });
        let outcome = AckOutcome { delivered: MSS, flight: MSS, ..AckOutcome::default() };
        let now = NOW + Duration::from_millis(number.into());
        congestion.on_ack(&outcome, Ack { una: una + MSS, nxt: una + MSS, ..Ack::at(now) }, MSS);
    }
    assert!(matches!(congestion.algorithm, Algorithm::First(_)));
    assert_eq!(congestion.window(), 10 * MSS);
}
