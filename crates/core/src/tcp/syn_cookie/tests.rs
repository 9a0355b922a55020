use crate::tcp::syn_cookie::*;
use crate::time::Duration;
use proptest::prelude::*;

const FACTS: CookieFacts =
    CookieFacts { mss: 1460, window_scale: Some(7), sack: true, timestamps: true, names_us: false };
const PEER_ISN: Seq = Seq(0xdead_beef);
const STEP: Duration = Duration::from_nanos(STEP_NS);

fn ends() -> Tuple {
    Tuple::new(([10, 0, 0, 1].into(), 80), ([10, 0, 0, 2].into(), 40_000))
}

fn cookies() -> SynCookies {
    SynCookies::new(&[3; 32])
}

/// A handshake with the SYN at `syn` and the ACK at `ack`.
fn handshake(syn: Instant, ack: Instant, facts: CookieFacts) -> Option<CookieFacts> {
    let tuple = &ends();
    let cookie = cookies().encode(syn, tuple, PEER_ISN, facts);
    let echo = facts.timestamps.then(|| facts.stamp(123_456));
    cookies().check(ack, tuple, PEER_ISN, cookie, (echo, true))
}

#[test]
fn a_cookie_holds_for_one_step_more_and_no_longer() {
    // Made at the very beginning and at the very end of a step.
    for syn in [Instant::ZERO + STEP * 9, Instant::from_nanos(STEP_NS * 10 - 1)] {
        assert_eq!(handshake(syn, syn, FACTS), Some(FACTS));
        let last = Instant::from_nanos(STEP_NS * 11 - 1);
        assert_eq!(handshake(syn, last, FACTS), Some(FACTS));
        assert_eq!(handshake(syn, last + Duration::from_nanos(1), FACTS), None);
        // The counter's bits come round again, the proof does not.
        assert_eq!(handshake(syn, syn + STEP * 32, FACTS), None);
    }
    // In the first steps of a process nothing is older than it.
    assert_eq!(handshake(Instant::ZERO, Instant::ZERO, FACTS), Some(FACTS));
    assert_eq!(handshake(Instant::ZERO + STEP * 31, Instant::ZERO, FACTS), None);
}

#[test]
fn without_timestamps_only_the_mss_is_carried() {
    let facts = CookieFacts { timestamps: false, ..FACTS };
    let carried = CookieFacts { window_scale: None, sack: false, ..facts };
    assert_eq!(facts.carried(), carried);
    assert_eq!(handshake(Instant::ZERO, Instant::ZERO, facts), Some(carried));
}

#[test]
fn each_mss_falls_into_the_class_at_or_below_it() {
    for (mss, class) in
        [(0, 88), (88, 88), (535, 88), (536, 536), (1459, 1440), (1460, 1460), (65535, 8940)]
    {
        let facts = CookieFacts { mss, ..FACTS };
        let expected = CookieFacts { mss: class, ..FACTS };
        assert_eq!(handshake(Instant::ZERO, Instant::ZERO, facts), Some(expected), "{mss}");
    }
}

#[test]
fn a_window_scale_above_14_is_taken_as_14() {
    let facts = CookieFacts { window_scale: Some(15), ..FACTS };
    let carried = handshake(Instant::ZERO, Instant::ZERO, facts).unwrap();
    assert_eq!(carried.window_scale, Some(14));
}

#[test]
fn an_ack_with_other_ends_numbers_or_stamps_is_no_cookies() {
    let tuple = &ends();
    let cookie = cookies().encode(Instant::ZERO, tuple, PEER_ISN, FACTS);
    let echo = Some(FACTS.stamp(0));
    let check = |tuple: &Tuple, isn, cookie, echo| {
        cookies().check(Instant::ZERO, tuple, isn, cookie, (echo, true))
    };
    assert_eq!(check(tuple, PEER_ISN, cookie, echo), Some(FACTS));
    let turned = Tuple::new(([10, 0, 0, 2].into(), 40_000), ([10, 0, 0, 1].into(), 80));
    assert_eq!(check(&turned, PEER_ISN, cookie, echo), None);
    let other = Tuple::new(([10, 0, 0, 1].into(), 80), ([10, 0, 0, 2].into(), 40_001));
    assert_eq!(check(&other, PEER_ISN, cookie, echo), None);
    assert_eq!(check(tuple, PEER_ISN + 1, cookie, echo), None);
    assert_eq!(check(tuple, PEER_ISN, cookie, None), None);
    for bit in 0..STAMP_BITS {
        assert_eq!(check(tuple, PEER_ISN, cookie, echo.map(|e| e ^ 1 << bit)), None);
    }
    for bit in 0..32 {
        assert_eq!(check(tuple, PEER_ISN, Seq(cookie.0 ^ 1 << bit), echo), None);
    }
    let stranger = SynCookies::new(&[4; 32]);
    assert_eq!(stranger.check(Instant::ZERO, tuple, PEER_ISN, cookie, (echo, true)), None);
}

#[test]
fn a_blind_guess_almost_never_succeeds() {
    let tuple = &ends();
    let mut rng = crate::rng::Rng::from_seed(1);
    let hits = (0..200_000).filter(|_| {
        let cookie = Seq(rng.next_u32());
        cookies().check(Instant::ZERO, tuple, PEER_ISN, cookie, (None, true)).is_some()
    });
    // The chance of one hit in all of them is 200,000 · 2/32 · 2^-23 < 0.2 %.
    assert_eq!(hits.count(), 0);
}

proptest! {
    #[test]
    fn what_is_encoded_is_checked(
        ns in 0u64..1 << 60, later in 0..=STEP_NS, isn: u32, scale in 0u8..=14, sack: bool,
        timestamps: bool, names_us: bool, class in 0usize..8, scaled: bool, clock: u32,
    ) {
        let facts = CookieFacts {
            mss: MSS_CLASSES[class],
            window_scale: scaled.then_some(scale),
            sack,
            timestamps,
            names_us,
        };
        let tuple = &ends();
        let (syn, ack) = (Instant::from_nanos(ns), Instant::from_nanos(ns + later));
        let cookie = cookies().encode(syn, tuple, Seq(isn), facts);
        let echo = timestamps.then(|| facts.stamp(clock));
        let checked = |may| cookies().check(ack, tuple, Seq(isn), cookie, (echo, may));
        prop_assert_eq!(checked(true), Some(facts.carried()));
        // Where we name only the peer, or nobody, no cookie says that we named ourselves.
        prop_assert_eq!(checked(false), Some(facts.carried()).filter(|_| !names_us));
    }

    #[test]
    fn a_stamp_is_never_ahead_and_hardly_behind(clock: u32, scale in 0u8..=14, sack: bool) {
        let facts = CookieFacts { window_scale: Some(scale), sack, ..FACTS };
        prop_assert!(clock.wrapping_sub(facts.stamp(clock)) < 1 << STAMP_BITS);
    }
}
