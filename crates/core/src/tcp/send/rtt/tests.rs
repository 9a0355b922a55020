use super::*;
use crate::config::{ClockConfig, RtoConfig};
use proptest::prelude::*;

fn config() -> TcpConfig {
    TcpConfig::default()
}

fn rtt_of(config: &TcpConfig) -> Rtt {
    Rtt::new(&Bounds::new(config))
}

fn sample(rtt: &mut Rtt, ms: u64, in_flight: u32) {
    let sent = Instant::from_millis(1_000_000);
    rtt.on_sample(sent, sent + Duration::from_millis(ms), in_flight);
}

proptest! {
    #[test]
    fn what_is_acknowledged_gives_the_sample_of_its_segments(
        acks in proptest::collection::vec((0u64..5000, 0u32..9000), 1..30),
        hz in prop_oneof![4 => Just(1_000_000_000u64), 1 => Just(1000)],
        estimator in prop_oneof![4 => Just(Estimator::Rfc6298), 1 => Just(Estimator::Bsd)],
        mss in 0u32..2000,
    ) {
        let config = config().with(|tcp| {
            (tcp.clock.measure_hz, tcp.rto.estimator) = (hz, estimator);
        });
        let (mut one, mut other) = (rtt_of(&config), rtt_of(&config));
        let mut now = Instant::ZERO;
        for (age, flight) in acks {
            let sent = now;
            now = now.plus_nanos(age);
            one.on_ack(sent, now, flight, mss);
            other.on_sample(sent, now, flight.div_ceil(mss.max(1)));
            prop_assert_eq!(std::format!("{one:?}"), std::format!("{other:?}"));
        }
    }

    #[test]
    fn no_timeout_is_shorter_than_the_shortest(
        samples_ns in proptest::collection::vec(0u64..2_000_000_000, 0..6),
        (initial_ms, floor_ms, longest_ms) in (1u64..2000, 0u64..500, 1u64..3000),
        back_offs in 0u8..3,
        estimator in prop_oneof![4 => Just(Estimator::Rfc6298), 1 => Just(Estimator::Fine)],
    ) {
        let ms = Duration::from_millis;
        let (initial, floor, max) = (ms(initial_ms), ms(floor_ms), ms(longest_ms));
        let rto = RtoConfig { initial, estimator, floor, max };
        let config = TcpConfig { rto, ..config() };
        let (bounds, mut rtt) = (Bounds::new(&config), rtt_of(&config));
        for sample_ns in samples_ns {
            rtt.on_ack(Instant::ZERO, Instant::from_nanos(sample_ns), 100, 1000);
            prop_assert!(rtt.rto_ns(&bounds) >= bounds.shortest_ns());
        }
        (0..back_offs).for_each(|_| rtt.back_off());
        prop_assert!(rtt.rto_ns(&bounds) >= bounds.shortest_ns());
    }
}

#[test]
fn the_rto_is_1_s_before_a_sample_and_3_s_after_a_lost_syn() {
    let mut rtt = rtt_of(&config());
    assert_eq!(rtt.rto(&config()), Duration::from_secs(1));
    rtt.on_syn_retransmitted();
    assert_eq!(rtt.rto(&config()), Duration::from_secs(3));
}

#[test]
fn the_first_sample_sets_srtt_and_half_of_it_as_variation() {
    let mut rtt = rtt_of(&config());
    sample(&mut rtt, 100, 1);
    assert_eq!(rtt.srtt(), Duration::from_millis(100));
    assert_eq!(rtt.rttvar(), Duration::from_millis(50));
    assert_eq!(rtt.rto(&config()), Duration::from_millis(300));
}

#[test]
fn a_steady_path_comes_down_to_srtt_plus_floor() {
    let mut rtt = rtt_of(&config());
    for _ in 0..200 {
        sample(&mut rtt, 60, 1);
    }
    let rto = rtt.rto(&config());
    assert!(rto >= Duration::from_millis(259) && rto <= Duration::from_millis(261), "{rto:?}");
}

#[test]
fn back_off_doubles_to_the_maximum_and_a_sample_ends_it() {
    let mut rtt = rtt_of(&config());
    rtt.back_off();
    rtt.back_off();
    assert_eq!(rtt.rto(&config()), Duration::from_secs(4));
    for _ in 0..40 {
        rtt.back_off();
    }
    assert_eq!(rtt.rto(&config()), Duration::from_secs(60));
    rtt.end_back_off();
    assert_eq!((rtt.backoff(), rtt.rto(&config())), (0, Duration::from_secs(60)));
    sample(&mut rtt, 1000, 1);
    assert_eq!(rtt.rto(&config()), Duration::from_secs(3));
}

#[test]
fn many_samples_a_round_forget_no_faster_than_one() {
    let (mut one, mut many) = (rtt_of(&config()), rtt_of(&config()));
    sample(&mut one, 100, 1);
    sample(&mut many, 100, 1);
    sample(&mut one, 200, 1);
    for _ in 0..10 {
        sample(&mut many, 200, 20);
    }
    let difference = one.srtt().abs_diff(many.srtt());
    assert!(difference < Duration::from_millis(2), "{difference:?}");
}

#[test]
fn a_coarse_measurement_clock_sees_its_ticks_only() {
    let linux = config().with(|tcp| tcp.clock.measure_hz = 1000);
    let mut rtt = rtt_of(&linux);
    rtt.on_sample(Instant::from_nanos(1_900_000), Instant::from_nanos(2_100_000), 1);
    assert_eq!(rtt.latest(), Duration::from_millis(1), "0.2 ms over a tick count as one");
    rtt.on_sample(Instant::from_nanos(2_100_000), Instant::from_nanos(2_900_000), 1);
    assert_eq!(rtt.latest(), Duration::from_nanos(1), "0.8 ms within one as none");
}

#[test]
fn the_rto_exceeds_srtt_by_a_tick_of_the_coarse_clock_or_more() {
    // Ticks of the two clocks: what is added to a tiny RTT is the longer, if above the floor.
    for (measure_hz, tick_ms, added_ms) in
        [(10, 1, 100), (1_000_000_000, 70, 70), (10, 130, 130), (1_000_000_000, 1, 2)]
    {
        let clock = ClockConfig { measure_hz, tick: Duration::from_millis(tick_ms) };
        let coarse = TcpConfig { clock, ..config() };
        let coarse = coarse.with(|tcp| tcp.rto.floor = Duration::from_millis(2));
        let mut rtt = rtt_of(&coarse);
        rtt.on_sample(Instant::from_nanos(1_000), Instant::from_nanos(1_500), 1);
        let added = rtt.rto(&coarse) - rtt.srtt();
        assert_eq!(added, Duration::from_millis(added_ms), "{measure_hz} Hz, {tick_ms} ms");
    }
}

#[test]
fn the_coarse_estimators_count_ticks_and_not_their_length() {
    let bsd = config().with(|tcp| tcp.rto.estimator = Estimator::Bsd);
    let rto = |sent, acked| {
        let mut rtt = rtt_of(&bsd);
        rtt.on_sample(Instant::from_millis(sent), Instant::from_millis(acked), 1);
        rtt.rto(&bsd)
    };
    assert_eq!(rto(100, 160), Duration::from_millis(1500));
    assert_eq!(rto(490, 550), Duration::from_millis(3000), "a tick came between");
}

#[test]
fn the_fine_estimator_has_a_floor_that_can_be_off() {
    for (floor_ms, expected_ms) in [(200, 200), (0, 183)] {
        let fine = config().with(|tcp| {
            tcp.rto.estimator = Estimator::Fine;
            tcp.rto.floor = Duration::from_millis(floor_ms);
        });
        let mut rtt = rtt_of(&fine);
        sample(&mut rtt, 60, 1);
        assert_eq!(rtt.rto(&fine), Duration::from_millis(expected_ms));
    }
}

#[test]
fn that_a_peer_delays_its_acks_outlasts_a_rest() {
    let bounds = Bounds::new(&config());
    let mut rtt = Rtt::new(&bounds);
    sample(&mut rtt, 10, 1);
    let probe_ns = rtt.lone_probe_ns(60_000_000, &bounds);
    assert_eq!(probe_ns, Some(80_000_000));
    let measure_ns = rtt.measure_ns();
    rtt.note_late_ack();
    let rested = rtt.at_rest().unwrap().estimator();
    assert_eq!(rested.lone_probe_ns(60_000_000, &bounds), None);
    assert_eq!(rested.measure_ns(), measure_ns);
}
