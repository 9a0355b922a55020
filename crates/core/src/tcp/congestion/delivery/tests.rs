use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Ten segments of 1000 bytes leave at 1 ms each, and arrive 50 ms later at 2 ms each.
#[test]
fn the_longer_interval_counts_so_that_the_rate_is_the_paths() {
    let mut sampler = Sampler::new(at(0));
    for n in 0..10 {
        sampler.on_sent(at(n), 1000 * (n as u32 + 1), n == 0);
    }
    let mut last = None;
    for n in 0..10 {
        last = sampler.on_delivered(at(50 + 2 * n), 1000, Some(at(n)), 0);
    }
    let last = last.unwrap();
    // All ten since the first left: 10,000 bytes in 68 ms. None had arrived when it left.
    assert_eq!((last.delivered, last.prior_delivered, last.rtt_ns), (10_000, 0, 59_000_000));
    assert_eq!(last.rate, 10_000 * 1000 / 68);
    // From here on what leaves knows what had been delivered.
    sampler.on_sent(at(70), 1000, true);
    let sample = sampler.on_delivered(at(120), 1000, Some(at(70)), 0).unwrap();
    assert_eq!((sample.rate, sample.prior_delivered), (20_000, 10_000));
}

#[test]
fn an_ack_that_is_faster_than_the_path_tells_no_rate() {
    let mut sampler = Sampler::new(at(0));
    sampler.on_sent(at(0), 1000, true);
    let sample = sampler.on_delivered(at(5), 1000, Some(at(0)), 10_000_000).unwrap();
    assert_eq!((sample.rate, sample.delivered), (0, 1000));
}

#[test]
fn what_is_acknowledged_as_it_leaves_tells_no_rate() {
    let mut sampler = Sampler::new(at(5));
    sampler.on_sent(at(5), 1000, true);
    assert_eq!(sampler.on_delivered(at(5), 1000, Some(at(5)), 0).unwrap().rate, 0);
}

#[test]
fn what_leaves_at_once_has_one_departure() {
    let mut sampler = Sampler::new(at(0));
    sampler.on_sent(at(1), 1000, true);
    sampler.on_sent(at(1), 2000, false);
    sampler.on_sent(at(1).plus_nanos(1), 3000, false);
    let mut in_flight = |left| sampler.on_lost(1, left).map(|lost| lost.in_flight);
    assert_eq!(in_flight(at(1)), Some(2000), "with all that left then");
    assert_eq!(in_flight(at(1).plus_nanos(1)), Some(3000), "a nanosecond later is another");
}

#[test]
fn samples_are_limited_until_the_bubble_has_arrived() {
    let mut sampler = Sampler::new(at(0));
    sampler.on_sent(at(0), 1000, true);
    sampler.on_app_limited(1000);
    sampler.on_sent(at(1), 2000, false);
    assert!(!sampler.on_delivered(at(10), 1000, Some(at(0)), 0).unwrap().is_app_limited);
    assert!(sampler.is_app_limited());
    assert!(sampler.on_delivered(at(11), 1000, Some(at(1)), 0).unwrap().is_app_limited);
    assert!(!sampler.is_app_limited());
    sampler.on_sent(at(12), 1000, true);
    assert!(!sampler.on_delivered(at(20), 1000, Some(at(12)), 0).unwrap().is_app_limited);
}

#[test]
fn a_limited_rate_is_told_only_if_it_is_not_lower() {
    let mut sampler = Sampler::new(at(0));
    assert_eq!(sampler.told(), None);
    let told =
        |bytes_per_second, is_app_limited| Some(DeliveryRate { bytes_per_second, is_app_limited });
    for (rate, is_limited, expected) in [
        (0, false, None),
        (0, true, None),
        (500, true, told(500, true)),
        (400, true, told(500, true)),
        (300, false, told(300, false)),
        (299, true, told(300, false)),
        (300, true, told(300, true)),
        (0, false, told(300, true)),
        (200, false, told(200, false)),
    ] {
        sampler.tell(rate, is_limited);
        assert_eq!(sampler.told(), expected, "{rate} {is_limited}");
    }
}

#[test]
fn a_loss_is_counted_from_when_the_lost_left() {
    let mut sampler = Sampler::new(at(0));
    for n in 0..3 {
        sampler.on_sent(at(n), 1000 * (n as u32 + 1), n == 0);
    }
    let lost = sampler.on_lost(1000, at(1));
    let expected = LostSample { in_flight: 2000, lost: 1000, is_app_limited: false };
    assert_eq!(lost, Some(expected));
    sampler.on_sent(at(3), 3000, false);
    assert_eq!(sampler.on_lost(500, at(3)).map(|lost| lost.lost), Some(500));
    let sample = sampler.on_delivered(at(20), 1000, Some(at(2)), 0).unwrap();
    assert_eq!(sample.lost, 1500);
}

#[test]
fn what_is_kept_has_a_bound_and_goes_with_time() {
    let mut sampler = Sampler::new(at(0));
    let now = 3 * DEPARTURES_MAX as u64;
    for n in 0..now {
        sampler.on_sent(at(n), 1, false);
        assert!(sampler.departures.len() <= DEPARTURES_MAX);
    }
    // They lie further apart: what left is found by what left a little before it.
    for n in (0..now).step_by(100) {
        let left = sampler.departure(at(n)).unwrap().at;
        assert!(left <= at(n) && at(n).nanos_since(left) < 16_000_000, "{n} by {left:?}");
    }
    let sample = sampler.on_delivered(at(now), 1, Some(at(now - 1)), 0).unwrap();
    assert_eq!(sample.rtt_ns, 1_000_000);
    assert!(sampler.departures.len() <= 4, "three round trips of 1 ms");
    assert_eq!(sampler.on_delivered(at(now), 1, None, 0), None);
}

#[test]
fn what_left_at_the_edge_of_the_age_is_not_forgotten() {
    let sampler = |age_ms: u64| {
        let mut sampler = Sampler::new(at(0));
        (0..3).for_each(|n| sampler.on_sent(at(n), 1, false));
        sampler.forget_before(at(10), age_ms * 1_000_000);
        sampler.departures.front().map(|left| left.at)
    };
    // The one before the edge stands for what left up to there.
    assert_eq!(sampler(9), Some(at(0)));
    assert_eq!(sampler(8), Some(at(1)));
    assert_eq!(sampler(7), Some(at(2)));
}

#[test]
fn departures_lie_close_again_once_few_are_kept() {
    const FEW: u64 = DEPARTURES_MAX as u64 / 8;
    let mut sampler = Sampler::new(at(0));
    sampler.apart_ns = 5_000_000;
    (0..FEW).for_each(|n| sampler.on_sent(at(5 * n), 1, false));
    let end = 5 * (FEW - 1);
    sampler.forget_before(at(end), u64::MAX);
    sampler.on_sent(at(end + 1), 1, false);
    assert_eq!(sampler.departures.len() as u64, FEW, "with the one before");
    sampler.forget_before(at(end), (end - 5) * 1_000_000 - 1);
    sampler.on_sent(at(end + 1), 1, false);
    assert_eq!(sampler.departures.len() as u64, FEW, "one went, and one came");
}

#[test]
fn a_connection_that_rests_keeps_no_departure() {
    let mut sampler = Sampler::new(at(0));
    sampler.on_sent(at(0), 1000, true);
    sampler.rest();
    assert_eq!(sampler.departures.capacity(), 0);
    assert_eq!(sampler.on_delivered(at(10), 1000, Some(at(0)), 0), None);
}

#[test]
fn a_sampler_is_blank_until_something_leaves() {
    let mut sampler = Sampler::new(at(0));
    assert!(sampler.is_blank());
    sampler.on_sent(at(0), 1000, true);
    assert!(!sampler.is_blank(), "nothing has arrived");
    sampler.on_delivered(at(10), 1000, Some(at(0)), 0);
    sampler.rest();
    assert!(!sampler.is_blank(), "it knows what has arrived");
}
