use super::*;
use crate::flow::Seq;
use proptest::prelude::*;
use std::vec::Vec;

mod model;

use model::Model;

const MSS: u32 = 1000;

fn loss(flight: u32) -> Loss {
    Loss { now: Instant::ZERO, flight, is_marked: false }
}

/// A path with a round trip of so many ms, over which the window is used. Time passes with it.
struct Path {
    cubic: Cubic,
    now_ms: u64,
    rtt_ms: u64,
}

impl Path {
    /// In congestion avoidance after a loss of a window of so many segments.
    fn after_loss(segments: u32, rtt_ms: u64) -> Path {
        let mut cubic = Cubic::new(segments * MSS, u32::MAX);
        cubic.on_loss(loss(segments * MSS), MSS);
        cubic.rtt = curve::units(rtt_ms * 1_000_000) as u32;
        Path { cubic, now_ms: 1000, rtt_ms }
    }

    fn now(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    fn ack(&self) -> Ack {
        Ack { srtt_ns: self.rtt_ms * 1_000_000, ..Ack::at(self.now()) }
    }

    fn hear(&mut self, delivered: u32, used: u32) {
        let outcome = AckOutcome { delivered, ..AckOutcome::default() };
        self.cubic.on_ack(&outcome, self.ack(), used, MSS);
    }

    /// A round trip of ACKs at even distances, one for each ms or each segment.
    fn round(&mut self) -> u32 {
        let steps = self.rtt_ms.min((self.cubic.window / MSS).into()).max(1);
        let share = self.cubic.window / steps as u32;
        let begin_ms = self.now_ms;
        for step in 1..=steps {
            self.now_ms = begin_ms + self.rtt_ms * step / steps;
            self.hear(share, u32::MAX);
        }
        self.cubic.window
    }

    fn rounds_until(&mut self, window: u32) -> u64 {
        (1..).find(|_| self.round() >= window).unwrap()
    }
}

/// §4.6: β is 0.7, by what was in flight.
#[test]
fn a_loss_reduces_the_window_to_seven_tenths_of_the_flight() {
    let mut cubic = Cubic::new(100 * MSS, u32::MAX);
    cubic.on_loss(loss(90 * MSS), MSS);
    assert_eq!((cubic.window, cubic.threshold, cubic.prior), (63 * MSS, 63 * MSS, 100 * MSS));
    assert_eq!(cubic.plateau, 100 * MSS);
    cubic.on_loss(loss(MSS), MSS);
    assert_eq!((cubic.window, cubic.threshold), (2 * MSS, 2 * MSS), "two segments at least");
}

/// §4.6: a mark reduces it to one segment at least, the threshold to two.
#[test]
fn a_mark_reduces_the_window_down_to_one_segment() {
    let mark = |flight| Loss { is_marked: true, ..loss(flight) };
    let mut cubic = Cubic::new(100 * MSS, u32::MAX);
    cubic.on_loss(mark(100 * MSS), MSS);
    assert_eq!((cubic.window, cubic.threshold), (70 * MSS, 70 * MSS));
    cubic.on_loss(mark(2 * MSS), MSS);
    assert_eq!((cubic.window, cubic.threshold), (14 * MSS / 10, 2 * MSS));
    cubic.on_loss(mark(MSS), MSS);
    assert_eq!(cubic.window, MSS);
}

/// §4.7: a window that has not come back to W_max gives way.
#[test]
fn fast_convergence_lowers_the_plateau_of_a_window_that_shrinks() {
    let mut cubic = Cubic::new(100 * MSS, u32::MAX);
    cubic.on_loss(loss(100 * MSS), MSS);
    cubic.window = 80 * MSS;
    cubic.on_loss(loss(80 * MSS), MSS);
    assert_eq!((cubic.plateau, cubic.prior), (68 * MSS, 80 * MSS));
    cubic.window = 68 * MSS;
    cubic.on_loss(loss(68 * MSS), MSS);
    assert_eq!(cubic.plateau, 68 * MSS, "not less than it");
}

/// §4.8: the timeout is Reno's, with β for the threshold; the curve then starts flat.
#[test]
fn after_a_timeout_the_curve_is_flat_where_slow_start_ends() {
    let mut path = Path::after_loss(100, 100);
    path.cubic.on_timeout(loss(70 * MSS), false, MSS);
    assert_eq!((path.cubic.window, path.cubic.threshold), (MSS, 49 * MSS));
    path.cubic.on_timeout(loss(MSS), true, MSS);
    assert_eq!(path.cubic.threshold, 49 * MSS, "the second one of the same data");
    while path.cubic.window < path.cubic.threshold {
        path.hear(MSS, u32::MAX);
    }
    assert_eq!(path.cubic.window, 49 * MSS);
    path.hear(MSS, u32::MAX);
    assert_eq!((path.cubic.plateau, path.cubic.k), (49 * MSS, 0));
}

#[test]
fn after_a_timeout_an_ack_opens_the_window_by_one_segment() {
    let mut path = Path::after_loss(100, 100);
    path.cubic.on_timeout(loss(70 * MSS), false, MSS);
    let outcome = AckOutcome { delivered: 9 * MSS, ..AckOutcome::default() };
    path.cubic.on_ack(&outcome, Ack { mode: Mode::Timeout, ..path.ack() }, u32::MAX, MSS);
    assert_eq!(path.cubic.window, 2 * MSS);
    path.cubic.on_ack(&outcome, Ack { mode: Mode::Fast, ..path.ack() }, u32::MAX, MSS);
    assert_eq!(path.cubic.window, 2 * MSS, "in fast recovery not at all");
    path.cubic.on_ack(&outcome, Ack { may_grow: false, ..path.ack() }, u32::MAX, MSS);
    assert_eq!(path.cubic.window, 2 * MSS, "nor with a mark");
}

/// §4.2: K seconds after the loss the window is W_max again, whatever the round trip.
#[test]
fn the_window_is_back_after_k_seconds() {
    // K = cbrt(0.3·4000/0.4) = 14.42 s.
    for (rtt_ms, rounds) in [(100, 144), (200, 72)] {
        let mut path = Path::after_loss(4000, rtt_ms);
        let found = path.rounds_until(3_999 * MSS);
        // It comes near one segment of W_max 1.36 s before.
        assert!((rounds * 85 / 100..=rounds).contains(&found), "{found} of {rounds}");
    }
}

/// §4.4, §4.5: quick, then slow near W_max, then quick again.
#[test]
fn the_curve_is_concave_and_then_convex() {
    let mut path = Path::after_loss(4000, 100);
    let windows: Vec<u32> = (0..300).map(|_| path.round()).collect();
    let slope = |round: usize| windows[round] - windows[round - 5];
    assert!(slope(10) > slope(70) && slope(70) > slope(140));
    assert!(slope(140) < slope(210) && slope(210) < slope(290));
}

/// §4.2: no faster than by half a window a round trip.
#[test]
fn a_round_trip_adds_half_a_window_at_most() {
    let mut path = Path::after_loss(4000, 100);
    path.round();
    (path.cubic.window, path.cubic.threshold) = (100 * MSS, 2 * MSS);
    // Each ACK adds half of what it acknowledges.
    path.hear(10 * MSS, u32::MAX);
    assert_eq!(path.cubic.window / 100, 1050);
    let mut far = Path::after_loss(4000, 100);
    far.round();
    far.cubic.window = 6000 * MSS;
    far.hear(10 * MSS, u32::MAX);
    assert_eq!(far.cubic.window, 6000 * MSS, "and never less than it is");
}

/// §4.3: on a short path it grows like Reno: 9/17 of a segment a round trip, and one beyond W_max.
#[test]
fn on_a_short_path_it_is_as_quick_as_reno() {
    let mut path = Path::after_loss(40, 10);
    let begin = path.cubic.window;
    for _ in 0..17 {
        path.round();
    }
    let grown = path.cubic.window - begin;
    assert!((8 * MSS..=9 * MSS).contains(&grown), "{grown}");
    path.rounds_until(40 * MSS);
    let begin = path.cubic.window;
    for _ in 0..10 {
        path.round();
    }
    let grown = path.cubic.window - begin;
    assert!((9 * MSS..=10 * MSS).contains(&grown), "{grown}");
}

/// §4.3: the curve counts unless it is below Reno's window.
#[test]
fn where_curve_and_reno_agree_the_curve_is_followed() {
    let mut path = Path { cubic: Cubic::new(100 * MSS, 2 * MSS), now_ms: 1000, rtt_ms: 10_000 };
    // So little that Reno's window does not grow by a byte. The curve is flat, and rises later.
    path.hear(99, u32::MAX);
    assert_eq!((path.cubic.estimate, path.cubic.plateau), (100 * MSS, 100 * MSS));
    assert_eq!(path.cubic.window, 100 * MSS + 49);
}

/// §4.3: α is 1 once W_est has reached cwnd_prior.
#[test]
fn reno_grows_by_a_segment_from_the_window_before_the_loss_on() {
    let cubic = Cubic::new(100 * MSS, 2 * MSS);
    assert_eq!(cubic.alpha(100 * MSS - 1, MSS), 9 * MSS);
    assert_eq!(cubic.alpha(100 * MSS, MSS), 17 * MSS);
    let mut path = Path::after_loss(40, 10);
    path.round();
    let window = path.cubic.window;
    assert_eq!(path.cubic.next(window, MSS), window + 9 * MSS / 17);
    assert_eq!(path.cubic.next(40 * MSS, MSS), 41 * MSS);
}

/// §4.2, §5.8: time in which the application sent too little does not move the curve.
#[test]
fn a_pause_of_the_application_does_not_count() {
    let mut steady = Path::after_loss(4000, 100);
    let mut paused = Path::after_loss(4000, 100);
    for _ in 0..20 {
        steady.round();
        paused.round();
    }
    for _ in 0..500 {
        paused.now_ms += 100;
        paused.hear(MSS, MSS);
    }
    assert_eq!(paused.cubic.window, steady.cubic.window);
    // A silence ends with the first text.
    paused.now_ms += 3_600_000;
    let (now, una, nxt) = (paused.now(), Seq(1), Seq(9));
    paused.cubic.on_sent(&Sent { now, una, nxt, was_idle: true });
    paused.round();
    steady.round();
    assert_eq!(paused.cubic.window, steady.cubic.window);
}

#[test]
fn after_an_idle_rto_the_curve_begins_anew() {
    let mut path = Path::after_loss(4000, 100);
    path.round();
    path.cubic.on_idle(10 * MSS, 2000 * MSS);
    assert_eq!(path.cubic.window, 10 * MSS);
    path.rounds_until(path.cubic.threshold);
    path.round();
    assert_eq!((path.cubic.plateau, path.cubic.estimate >= 2800 * MSS), (4000 * MSS, true));
}

/// §4.9: what was measured since the loss stays.
#[test]
fn a_loss_that_is_taken_back_takes_no_measurement_back() {
    let mut path = Path::after_loss(4000, 100);
    path.round();
    let before = path.cubic.clone();
    path.cubic.on_loss(loss(2800 * MSS), MSS);
    path.rtt_ms = 200;
    path.round();
    path.cubic.restore(&before, 2800 * MSS);
    assert_eq!((path.cubic.curve(), path.cubic.counted), (before.curve(), path.now()));
    assert_eq!(u64::from(path.cubic.rtt), curve::units(200_000_000));
}

#[test]
fn a_window_beyond_the_last_loss_is_where_the_curve_is_flat() {
    let path = Path::after_loss(100, 1000);
    // C·1 s³ is 0.4 segments.
    let next = path.cubic.next(120 * MSS, MSS);
    assert!(next.abs_diff(120 * MSS + 400) < 10, "{next}");
}

#[test]
fn an_idle_time_that_leaves_the_window_leaves_the_curve() {
    let mut path = Path::after_loss(4000, 100);
    path.round();
    let (window, before) = (path.cubic.window, path.cubic.curve());
    path.cubic.on_idle(window, 3000 * MSS);
    assert_eq!((path.cubic.curve(), path.cubic.threshold), (before, 2800 * MSS));
    path.cubic.on_idle(window - 1, 3000 * MSS);
    assert_eq!((path.cubic.window, path.cubic.threshold), (window - 1, 3000 * MSS));
}

fn first(window: u32) -> Cubic {
    Cubic::first(window, HyStart::new(Seq(0) + window, Some(10_000)))
}

/// §4.10, RFC 9406 §4.2: the RTT rises, and five rounds later congestion avoidance begins, flat.
#[test]
fn a_first_slow_start_ends_without_a_loss() {
    let mut cubic = first(20 * MSS);
    let mut una = Seq(0);
    let mut windows = Vec::new();
    while cubic.hystart.is_some() {
        for _ in 0..cubic.window / MSS {
            let nxt = una + cubic.window;
            una += MSS;
            let rtt_ns = 15_000_000;
            let outcome = AckOutcome { delivered: MSS, rtt_ns, ..AckOutcome::default() };
            cubic.on_ack(&outcome, Ack { una, nxt, ..Ack::at(Instant::ZERO) }, u32::MAX, MSS);
        }
        windows.push(cubic.window / MSS);
    }
    assert_eq!(windows[..2], [31, 38], "eight segments by slow start, then by a quarter");
    assert_eq!(windows.len(), 5);
    assert_eq!((cubic.prior, cubic.plateau), (cubic.threshold, cubic.threshold));
    assert_eq!(cubic.k, 0);
}

/// Where RFC 9406 has L = 8.
#[test]
fn an_ack_of_many_segments_opens_the_window_by_all_of_them() {
    let mut cubic = first(100 * MSS);
    let outcome = AckOutcome { delivered: 50 * MSS, ..AckOutcome::default() };
    cubic.on_ack(&outcome, Ack::at(Instant::ZERO), u32::MAX, MSS);
    assert_eq!(cubic.window, 150 * MSS);
}

/// RFC 9406 §4.3: only in the first slow start.
#[test]
fn a_loss_ends_hystart_for_good() {
    for ends in [
        (|cubic| cubic.on_loss(loss(20 * MSS), MSS)) as fn(&mut Cubic),
        |cubic| cubic.on_timeout(loss(20 * MSS), false, MSS),
        |cubic| cubic.on_timeout(loss(20 * MSS), true, MSS),
    ] {
        let mut cubic = first(20 * MSS);
        ends(&mut cubic);
        assert!(cubic.hystart.is_none());
    }
}

/// What LOS asks: within a segment in a hundred of what a round brings.
#[test]
fn the_next_window_is_this_one_after_a_round() {
    for (segments, rtt_ms) in [(40, 10), (400, 50), (4000, 100), (1000, 300)] {
        let mut path = Path::after_loss(segments, rtt_ms);
        for _ in 0..200 {
            let next = path.cubic.next(path.cubic.window, MSS);
            let found = path.round();
            let slack = 2 * MSS + found / 100;
            assert!(found.abs_diff(next) <= slack, "{next} for {found}: {segments}, {rtt_ms} ms");
        }
    }
    let mut cubic = first(20 * MSS);
    assert_eq!(cubic.next(20 * MSS, MSS), 40 * MSS);
    cubic.threshold = 30 * MSS;
    assert_eq!(cubic.next(20 * MSS, MSS), 30 * MSS);
}

/// Something that a connection goes through.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// So many rounds of the used window, with an ACK for each of so many shares of it.
    Rounds {
        rounds: u32,
        acks: u32,
    },
    Loss,
    Timeout,
    /// Seconds without text.
    Pause(u32),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => (1u32..40, 2u32..20).prop_map(|(rounds, acks)| Happens::Rounds { rounds, acks }),
        3 => Just(Happens::Loss),
        1 => Just(Happens::Timeout),
        1 => (1u32..100).prop_map(Happens::Pause),
    ]
}

proptest! {
    /// The whole numbers follow the RFC's real ones.
    #[test]
    fn the_window_is_that_of_the_formulas(
        segments in 4u32..5000,
        rtt_ms in 1u64..300,
        story in proptest::collection::vec(happens(), 1..30),
    ) {
        let mut path = Path { cubic: Cubic::new(segments * MSS, u32::MAX), now_ms: 1000, rtt_ms };
        let mut model = Model::new(segments.into(), rtt_ms as f64 / 1e3);
        path.cubic.on_loss(loss(segments * MSS), MSS);
        model.on_loss();
        for event in story {
            match event {
                Happens::Rounds { rounds, acks } => for _ in 0..rounds * acks {
                    let before = path.cubic.window;
                    let share = before / acks;
                    path.hear(share, u32::MAX);
                    let segments = f64::from(share) / f64::from(MSS);
                    let is_by_reno = path.cubic.window == before.max(path.cubic.estimate);
                    model.on_ack(segments, path.now_ms as f64 / 1e3, is_by_reno);
                    path.now_ms += (rtt_ms / u64::from(acks)).max(1);
                },
                Happens::Loss => {
                    let is_at_max = model.is_at_max();
                    path.cubic.on_loss(loss(path.cubic.window), MSS);
                    model.on_loss();
                    if is_at_max {
                        model.set_max(f64::from(path.cubic.plateau) / f64::from(MSS));
                    }
                }
                Happens::Timeout => {
                    path.cubic.on_timeout(loss(path.cubic.window), false, MSS);
                    model.on_timeout();
                }
                Happens::Pause(seconds) => {
                    path.now_ms += 1000 * u64::from(seconds);
                    let (now, una, nxt) = (path.now(), Seq(1), Seq(9));
                    path.cubic.on_sent(&Sent { now, una, nxt, was_idle: true });
                    model.on_pause_until(path.now_ms as f64 / 1e3);
                }
            }
            let found = f64::from(path.cubic.window) / f64::from(MSS);
            let slack = 0.1 + model.window / 200.0;
            prop_assert!((found - model.window).abs() <= slack, "{found}: {model:?}");
            // Small differences do not add up from one event to the next.
            model.window = found;
        }
    }
}
