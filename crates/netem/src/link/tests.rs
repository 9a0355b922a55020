use super::*;
use crate::frame::tests::ipv4;
use crate::{Bucket, CodelConfig, Distribution, FairConfig, Loss, Rate, Trace};
use alloc::sync::Arc;
use core::time::Duration;
use proptest::prelude::*;

const ZERO: Instant = Instant::ZERO;

fn at_ns(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// Every packet that comes out, with its time of arrival.
fn drain(link: &mut Link) -> Vec<(Instant, Packet)> {
    let mut out = Vec::new();
    while let Some(arrival) = link.deadline() {
        if arrival > ZERO {
            let early = link.pop(arrival - Duration::from_nanos(1));
            assert_eq!(early, None, "nothing comes early");
        }
        // With jitter, a waiting packet may arrive later.
        match link.deliver(arrival) {
            Some(Delivered { arrival, packet, .. }) => out.push((arrival, packet)),
            None => assert!(link.deadline().unwrap() > arrival),
        }
    }
    out
}

/// The packets that come out of `count` numbered ones, pushed every `gap_ns`.
fn run(config: LinkConfig, count: u32, gap_ns: u64) -> (Vec<(Instant, u32)>, Counters) {
    let mut link = Link::new(config);
    for n in 0..count {
        link.push(at_ns(u64::from(n) * gap_ns), &n.to_be_bytes());
    }
    let number = |p: Packet| u32::from_be_bytes(p.try_into().unwrap());
    let out = drain(&mut link).into_iter().map(|(at, p)| (at, number(p))).collect();
    (out, link.counters())
}

#[test]
fn a_perfect_link_delivers_at_once_and_in_order() {
    let (out, counters) = run(LinkConfig::default(), 100, 0);
    assert!(out.iter().enumerate().all(|(i, &(at, n))| at == ZERO && n == i as u32));
    let expected = Counters {
        pushed: 100,
        pushed_bytes: 400,
        delivered: 100,
        delivered_bytes: 400,
        ..Counters::default()
    };
    assert_eq!(counters, expected);
}

#[test]
fn rate_and_delay_are_exact() {
    let mut link = Link::new(LinkConfig {
        rate: Rate::BitsPerSecond(8_000_000),
        delay: Duration::from_millis(30),
        ..LinkConfig::default()
    });
    link.push(ZERO, &[0; 1500]);
    link.push(ZERO, &[0; 500]);
    link.push(at_ns(10_000_000), &[0; 1000]);
    let arrivals: Vec<_> = drain(&mut link).iter().map(|(at, _)| at.as_nanos()).collect();
    assert_eq!(arrivals, [31_500_000, 32_000_000, 41_000_000]);
}

#[test]
fn a_busy_serializer_does_not_drift() {
    // 3 bit/s: a byte takes 2.666… s, which no whole number of nanoseconds expresses.
    let mut link = Link::new(LinkConfig { rate: Rate::BitsPerSecond(3), ..LinkConfig::default() });
    for _ in 0..3000 {
        link.push(ZERO, &[0]);
    }
    let last = drain(&mut link).pop().unwrap().0;
    assert_eq!(last.as_nanos(), 8_000 * 1_000_000_000);
}

#[test]
fn the_byte_queue_takes_its_limit_and_not_one_byte_more() {
    let config = LinkConfig {
        rate: Rate::BitsPerSecond(8_000_000),
        queue: QueueLimit::Bytes(3000),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config.clone());
    link.push(ZERO, &[0; 1500]);
    link.push(ZERO, &[0; 1500]);
    assert_eq!(link.counters().overflowed, 0);
    link.push(ZERO, &[0; 1]);
    assert_eq!(link.counters().overflowed, 1);
    // The first packet has left after 1.5 ms: one nanosecond earlier, its room is still taken.
    link.push(at_ns(1_499_999), &[0; 1]);
    assert_eq!(link.counters().overflowed, 2);
    link.push(at_ns(1_500_000), &[0; 1]);
    assert_eq!((link.counters().overflowed, drain(&mut link).len()), (2, 3));

    let mut link = Link::new(config);
    link.push(ZERO, &[0; 3001]);
    assert_eq!(link.counters().overflowed, 1);
}

#[test]
fn the_packet_queue_takes_its_limit_and_not_one_more() {
    let config = LinkConfig {
        rate: Rate::BitsPerSecond(1000),
        queue: QueueLimit::Packets(10),
        ..LinkConfig::default()
    };
    assert_eq!(run(config.clone(), 10, 0).1.overflowed, 0);
    assert_eq!(run(config, 11, 0).1.overflowed, 1);
}

#[test]
fn bytes_on_their_way_are_bounded() {
    let config = LinkConfig { in_flight_limit_bytes: 40, ..LinkConfig::default() };
    assert_eq!(run(config.clone(), 10, 0).1.in_flight_overflowed, 0);
    assert_eq!(run(config, 11, 0).1.in_flight_overflowed, 1);
}

#[test]
fn a_packet_that_is_too_long_vanishes() {
    let mut link = Link::new(LinkConfig { mtu: Some(1280), ..LinkConfig::default() });
    let frame = |packet: usize| {
        let mut frame = alloc::vec![0; 14 + packet];
        (frame[12], frame[13]) = (0x08, 0x00);
        frame
    };
    let mut arp = frame(1400);
    arp[13] = 0x06;
    for bytes in [frame(1280), frame(1281), arp] {
        link.push(Instant::ZERO, &bytes);
    }
    let lens = core::iter::from_fn(|| link.pop(Instant::ZERO)).map(|packet| packet.len());
    assert_eq!(lens.collect::<Vec<_>>(), [1294, 1414]);
    assert_eq!(link.counters().too_long, 1);
}

#[test]
fn jitter_delays_up_to_its_bound_and_keeps_the_order() {
    let jitter = Duration::from_millis(4);
    let config = LinkConfig { delay: Duration::from_millis(1), jitter, ..LinkConfig::default() };
    let (out, _) = run(config, 10_000, 5_000_000);
    let late: Vec<u64> =
        out.iter().map(|&(at, n)| at.as_nanos() - u64::from(n) * 5_000_000).collect();
    assert!(late.iter().all(|ns| (1_000_000..5_000_000).contains(ns)));
    let mean = late.iter().sum::<u64>() / late.len() as u64;
    assert!((2_900_000..3_100_000).contains(&mean), "{mean}");
    assert!(out.windows(2).all(|w| w[0].1 < w[1].1));

    let (out, _) = run(LinkConfig { jitter, ..LinkConfig::default() }, 10_000, 1000);
    assert!(out.windows(2).all(|w| w[0].1 < w[1].1 && w[0].0 <= w[1].0));
}

#[test]
fn a_reordered_packet_is_overtaken_by_those_within_its_delay() {
    let config = LinkConfig {
        reorder: 0.05,
        reorder_delay: Duration::from_micros(35),
        ..LinkConfig::default()
    };
    let (out, counters) = run(config, 100_000, 10_000);
    assert!((4700..5300).contains(&counters.reordered), "{counters:?}");
    let late = out.iter().filter(|&&(at, n)| at != at_ns(u64::from(n) * 10_000)).count();
    assert_eq!(late as u64, counters.reordered);
    for (place, &(_, n)) in out.iter().enumerate() {
        assert!(place as i64 - i64::from(n) <= 3, "35 µs are three packets of 10 µs");
    }
    assert!(out.windows(2).any(|w| w[0].1 > w[1].1));
}

#[test]
fn loss_duplication_and_corruption_keep_rates_and_counters() {
    let config = LinkConfig {
        loss: Loss::Uniform(0.1),
        duplicate: 0.2,
        corrupt: 0.05,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config);
    let original = [0x55u8; 64];
    for _ in 0..50_000 {
        link.push(ZERO, &original);
    }
    let out = drain(&mut link);
    let c = link.counters();
    let flipped =
        |p: &Packet| -> u32 { p.iter().zip(original).map(|(a, b)| (a ^ b).count_ones()).sum() };
    assert!(out.iter().all(|(_, p)| flipped(p) <= 1));
    let damaged = out.iter().filter(|(_, p)| flipped(p) == 1).count() as u64;
    assert_eq!(damaged, c.corrupted);
    assert_eq!(c.delivered, c.pushed - c.lost + c.duplicated);
    assert!((4_800..5_200).contains(&c.lost), "{c:?}");
    assert!((8_700..9_300).contains(&c.duplicated), "{c:?}");
    assert!((2_550..2_850).contains(&c.corrupted), "{c:?}");
}

#[test]
fn a_lost_packet_still_took_its_time_to_send() {
    let mut link = Link::new(LinkConfig {
        rate: Rate::BitsPerSecond(8_000_000),
        loss: Loss::Bursty { first: 1.0, after_loss: 0.0 },
        ..LinkConfig::default()
    });
    link.push(ZERO, &[0; 1000]);
    link.push(ZERO, &[0; 1000]);
    assert_eq!(drain(&mut link)[0].0.as_nanos(), 2_000_000);
}

#[test]
fn an_empty_packet_passes_a_corrupting_link() {
    let mut link = Link::new(LinkConfig { corrupt: 1.0, ..LinkConfig::default() });
    link.push(ZERO, &[]);
    assert_eq!(drain(&mut link), [(ZERO, Vec::new())]);
}

#[test]
fn buffers_are_recycled() {
    let mut link = Link::new(LinkConfig::default());
    link.push(ZERO, &[1; 1000]);
    let packet = link.pop(ZERO).unwrap();
    let place = packet.as_ptr();
    link.recycle(packet);
    link.push(ZERO, &[2; 1000]);
    let packet = link.pop(ZERO).unwrap();
    assert_eq!((packet.as_ptr(), &packet[..]), (place, &[2u8; 1000][..]));
}

/// A link of 8 Mbit/s, 1 byte in a µs, that is never empty until `until_ms`. Returns the time of
/// each packet from push to arrival, in ms, and the counters.
fn standing_queue(codel: Option<CodelConfig>, until_ms: u64) -> (Vec<u64>, Counters) {
    let rate = Rate::BitsPerSecond(8_000_000);
    let mut link = Link::new(LinkConfig { rate, codel, ..LinkConfig::default() });
    for ms in 0..until_ms {
        // A burst of 100 ms at the beginning, and then as much as the link sends.
        for _ in 0..if ms == 0 { 100 } else { 1 } {
            let mut packet = [0; 1000];
            packet[..8].copy_from_slice(&ms.to_be_bytes());
            link.push(Instant::from_millis(ms), &packet);
        }
    }
    let waited = |(at, packet): (Instant, Packet)| {
        at.as_millis() - u64::from_be_bytes(packet[..8].try_into().unwrap())
    };
    let waited = drain(&mut link).into_iter().map(waited).collect();
    (waited, link.counters())
}

#[test]
fn codel_takes_a_standing_queue_down_and_tail_drop_does_not() {
    let last = |waited: &[u64]| waited[waited.len() - 100..].iter().copied().max().unwrap();
    let (waited, counters) = standing_queue(None, 10_000);
    assert_eq!((last(&waited), counters.codel_dropped), (100, 0));
    let (waited, counters) = standing_queue(Some(CodelConfig::default()), 10_000);
    assert!(last(&waited) <= 6, "{}", last(&waited));
    assert!((90..120).contains(&counters.codel_dropped), "{counters:?}");
    assert_eq!(counters.delivered + counters.codel_dropped, counters.pushed);
}

#[test]
fn a_trace_sends_at_its_opportunities_and_wastes_unused_ones() {
    let trace = Trace::parse("2\n2\n5\n10\n", 1500).unwrap();
    let rate = Rate::Trace(Arc::new(trace));
    let mut link = Link::new(LinkConfig { rate, ..LinkConfig::default() });
    let arrivals = |link: &mut Link| -> Vec<u64> {
        drain(link).iter().map(|(at, _)| at.as_millis()).collect()
    };
    // Two packets share an opportunity; one takes three.
    for bytes in [700, 700, 1700] {
        link.push(ZERO, &alloc::vec![0; bytes]);
    }
    assert_eq!(arrivals(&mut link), [2, 2, 5], "of the third 1600 bytes at 2 ms, 100 at 5");
    // The unused rest of the opportunity at 5 ms is gone at 6.
    link.push(Instant::from_millis(6), &[0; 100]);
    assert_eq!(arrivals(&mut link), [10]);
    // The second round begins at 10 ms.
    for _ in 0..3 {
        link.push(Instant::from_millis(11), &[0; 1500]);
    }
    assert_eq!(arrivals(&mut link), [12, 12, 15]);
}

#[test]
fn a_change_holds_for_what_waits_and_not_for_what_is_on_its_way() {
    let config = |rate, delay| LinkConfig {
        rate: Rate::BitsPerSecond(rate),
        delay: Duration::from_millis(delay),
        ..LinkConfig::default()
    };
    let mut link = Link::changeable(ZERO, config(8_000_000, 20));
    for _ in 0..4 {
        link.push(ZERO, &[0; 1000]);
    }
    // One has left, the second is being sent: both keep their 20 ms.
    link.reconfigure(at_ns(1_500_000), config(80_000_000, 30));
    let arrivals: Vec<_> = drain(&mut link).iter().map(|(at, _)| at.as_nanos()).collect();
    assert_eq!(arrivals, [21_000_000, 22_000_000, 32_100_000, 32_200_000]);
    // A shorter delay lets no packet overtake.
    link.push(at_ns(40_000_000), &[1; 1000]);
    link.reconfigure(at_ns(40_200_000), config(80_000_000, 1));
    link.push(at_ns(40_200_000), &[2; 1000]);
    let arrivals: Vec<_> = drain(&mut link).iter().map(|(at, p)| (at.as_nanos(), p[0])).collect();
    assert_eq!(arrivals, [(70_100_000, 1), (70_100_000, 2)]);
}

#[test]
fn a_link_that_becomes_infinitely_fast_empties_its_queue() {
    let rate = Rate::BitsPerSecond(8_000_000);
    let mut link = Link::changeable(ZERO, LinkConfig { rate, ..LinkConfig::default() });
    for _ in 0..10 {
        link.push(ZERO, &[0; 1000]);
    }
    link.reconfigure(at_ns(1_000_000), LinkConfig::default());
    let arrivals: Vec<_> = drain(&mut link).iter().map(|(at, _)| at.as_nanos()).collect();
    assert_eq!(arrivals[..2], [1_000_000, 2_000_000], "the second was being sent");
    assert!(arrivals[2..].iter().all(|at| *at == 2_000_000), "{arrivals:?}");
}

#[test]
fn what_waits_is_told() {
    let rate = Rate::BitsPerSecond(8_000_000);
    let mut link = Link::new(LinkConfig { rate, ..LinkConfig::default() });
    for _ in 0..3 {
        link.push(ZERO, &[0; 1000]);
    }
    let queued = |link: &mut Link, us: u64| {
        let Queued { packets, bytes } = link.queued(Instant::from_nanos(us * 1000));
        (packets, bytes)
    };
    assert_eq!(queued(&mut link, 999), (3, 3000), "the one that is being sent included");
    assert_eq!(queued(&mut link, 1000), (2, 2000));
    assert_eq!(queued(&mut link, 3000), (0, 0));
    assert_eq!(link.counters().most_queued_bytes, 3000);
}

fn troubled(seed: u64) -> LinkConfig {
    LinkConfig {
        rate: Rate::BitsPerSecond(50_000_000),
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(1),
        queue: QueueLimit::Packets(64),
        loss: Loss::Bursty { first: 0.02, after_loss: 0.4 },
        reorder: 0.05,
        duplicate: 0.02,
        corrupt: 0.0,
        seed,
        ..LinkConfig::default()
    }
}

/// The place of the first packet in which two runs differ, and when each arrives.
fn first_difference(
    one: &[(Instant, Packet)],
    other: &[(Instant, Packet)],
) -> Option<(usize, Option<Instant>, Option<Instant>)> {
    let at = |all: &[(Instant, Packet)], place: usize| all.get(place).map(|(at, _)| *at);
    (0..one.len().max(other.len()))
        .find(|place| one.get(*place) != other.get(*place))
        .map(|place| (place, at(one, place), at(other, place)))
}

/// Knobs that change the order, and the time of leaving.
#[derive(Clone, Debug)]
struct Knobs {
    bucket: bool,
    fair: bool,
    mark: Option<MarkFrom>,
    distance: Option<u32>,
}

impl Knobs {
    fn of(&self, config: LinkConfig) -> LinkConfig {
        let bucket = Bucket { bits_per_second: 30_000_000, burst_bytes: 20_000 };
        let fair = FairConfig { queues: 4, ..FairConfig::default() };
        LinkConfig {
            bucket: self.bucket.then_some(bucket),
            fair: self.fair.then_some(fair),
            mark: self.mark,
            reorder_distance: self.distance,
            ..config
        }
    }
}

fn knobs() -> impl Strategy<Value = Knobs> {
    let mark = prop_oneof![
        Just(None),
        (1usize..20).prop_map(|from| Some(MarkFrom::Packets(from))),
        (1usize..20_000).prop_map(|from| Some(MarkFrom::Bytes(from))),
        (0u64..5_000_000).prop_map(|ns| Some(MarkFrom::Wait(Duration::from_nanos(ns)))),
    ];
    let distance = prop::option::of(1u32..6);
    (any::<bool>(), any::<bool>(), mark, distance)
        .prop_map(|(bucket, fair, mark, distance)| Knobs { bucket, fair, mark, distance })
}

/// When each of `count` full frames arrives, in µs, that are pushed at once.
fn arrivals_at_once(config: LinkConfig, count: usize) -> Vec<u64> {
    let mut link = Link::new(config);
    (0..count).for_each(|_| link.push(ZERO, &[0; 1250]));
    drain(&mut link).iter().map(|(at, _)| at.as_nanos() / 1000).collect()
}

#[test]
fn a_bucket_lets_a_burst_pass_and_then_its_rate() {
    // 1,250 bytes are 1 ms at 10 Mbit/s. Three of them are in the bucket.
    let bucket = Some(Bucket { bits_per_second: 10_000_000, burst_bytes: 3750 });
    let config = LinkConfig { bucket, ..LinkConfig::default() };
    assert_eq!(arrivals_at_once(config.clone(), 6), [0, 0, 0, 0, 1000, 2000]);
    // Each takes 100 µs beside that.
    let rate = Rate::BitsPerSecond(100_000_000);
    assert_eq!(
        arrivals_at_once(LinkConfig { rate, ..config.clone() }, 6),
        [100, 200, 300, 400, 1100, 2100]
    );
    // It fills while nothing comes, and no further than it holds. Over a long time its rate holds.
    let mut link = Link::new(config);
    for burst in 0..100 {
        (0..6).for_each(|_| link.push(Instant::from_millis(burst * 6), &[0; 1250]));
    }
    let arrivals: Vec<u64> = drain(&mut link).iter().map(|(at, _)| at.as_millis()).collect();
    for (burst, of) in (0u64..).zip(arrivals.chunks(6)) {
        let after = of.iter().map(|at| at - burst * 6);
        assert!(after.eq([0, 0, 0, 0, 1, 2]) || burst > 0 && of[5] - burst * 6 <= 4, "{of:?}");
    }
    assert!(arrivals[599] >= 600 - 6, "{}", arrivals[599]);
}

#[test]
fn a_packet_is_overtaken_by_as_many_as_said() {
    let config = LinkConfig { reorder: 0.02, reorder_distance: Some(3), ..LinkConfig::default() };
    let (out, counters) = run(config.clone(), 10_000, 10_000);
    let place: Vec<usize> =
        (0..10_000u32).map(|number| out.iter().position(|&(_, n)| n == number).unwrap()).collect();
    let behind = |number: usize| {
        (number + 1..10_000.min(number + 20)).filter(|later| place[*later] < place[number]).count()
    };
    let late: Vec<usize> = (0..9900).filter(|number| behind(*number) > 0).collect();
    assert!(counters.reordered > 150);
    let are_three = late.iter().filter(|number| behind(**number) == 3).count();
    // Two that wait at once overtake each other.
    assert!(are_three * 100 >= late.len() * 90, "{are_three} of {}", late.len());
    // The last ones are overtaken by nobody, and arrive none the less.
    let (out, counters) = run(LinkConfig { reorder: 1.0, ..config }, 5, 0);
    let within = ZERO + LinkConfig::OVERTAKEN_WITHIN;
    assert!(out.iter().all(|(at, _)| *at == within) && counters.delivered == 5);
}

/// A fat flow fills a link of 10 Mbit/s, and a thin one sends a packet each 10 ms: how long the
/// thin one's last packets take, in ms.
fn thin_beside_fat(fair: Option<FairConfig>) -> (u64, Counters) {
    let rate = Rate::BitsPerSecond(10_000_000);
    let queue = QueueLimit::Packets(100);
    let config = LinkConfig { rate, queue, fair, ..LinkConfig::default() };
    let mut link = Link::new(config);
    let mut longest = 0;
    for ms in 0..3000 {
        let now = Instant::from_millis(ms);
        if ms % 10 == 0 {
            link.push(now, &ipv4(2, 2, 10));
        }
        (0..2).for_each(|_| link.push(now, &ipv4(1, 2, 1196)));
        while let Some(Delivered { arrival, entered, packet }) = link.deliver(now) {
            if packet.len() < 100 && ms > 2000 {
                longest = longest.max(arrival.since(entered).as_millis() as u64);
            }
        }
    }
    (longest, link.counters())
}

#[test]
fn flow_queues_spare_a_thin_flow_the_fat_ones_queue() {
    let (first_come, _) = thin_beside_fat(None);
    let (in_turns, counters) = thin_beside_fat(Some(FairConfig::default()));
    assert!(first_come >= 85 && in_turns <= 2, "{first_come} ms, {in_turns} ms");
    assert!(counters.overflowed > 2000, "the fat one loses what does not fit");
    assert_eq!(counters.delivered + counters.overflowed + 100, counters.pushed);
}

#[test]
fn marks_begin_where_they_should_and_spare_ends_without_ecn() {
    let marked = |mark, field| {
        let rate = Rate::BitsPerSecond(10_000_000);
        let mut link = Link::new(LinkConfig { rate, mark: Some(mark), ..LinkConfig::default() });
        (0..20).for_each(|_| link.push(ZERO, &ipv4(1, field, 1196)));
        let is_marked = |packet: &Packet| packet[15] & 3 == 3;
        let all: Vec<bool> = drain(&mut link).iter().map(|(_, it)| is_marked(it)).collect();
        assert_eq!(all.iter().filter(|marked| **marked).count() as u64, link.counters().marked);
        let first = all.iter().position(|marked| *marked);
        assert!(all[first.unwrap_or(20)..].iter().all(|marked| *marked));
        first
    };
    // A frame of 1,250 bytes takes 1 ms.
    assert_eq!(marked(MarkFrom::Packets(5), 2), Some(5));
    assert_eq!(marked(MarkFrom::Bytes(6250), 1), Some(5));
    assert_eq!(marked(MarkFrom::Bytes(6251), 2), Some(6));
    assert_eq!(marked(MarkFrom::Wait(Duration::from_millis(5)), 2), Some(5));
    assert_eq!(marked(MarkFrom::Packets(5), 0), None);
}

#[test]
fn what_waits_stays_when_flows_get_their_own_queues() {
    let rate = Rate::BitsPerSecond(10_000_000);
    let first = LinkConfig { rate, ..LinkConfig::default() };
    let mut link = Link::changeable(ZERO, first.clone());
    (0..10).for_each(|n| link.push(ZERO, &ipv4(n % 2, 0, 1196)));
    let fair = LinkConfig { fair: Some(FairConfig::default()), ..first.clone() };
    link.reconfigure(at_ns(1_500_000), fair);
    assert_eq!(link.queued(at_ns(1_500_000)).packets, 9);
    link.reconfigure(at_ns(2_500_000), first);
    let (all, counters) = (drain(&mut link), link.counters());
    assert_eq!((all.len(), counters.delivered, counters.overflowed), (10, 10, 0));
}

proptest! {
    #[test]
    fn the_same_seed_behaves_the_same(seed: u64, gap_ns in 0u64..100_000) {
        prop_assert_eq!(run(troubled(seed), 500, gap_ns), run(troubled(seed), 500, gap_ns));
        let other = run(troubled(seed ^ 1), 500, gap_ns);
        prop_assert_ne!(run(troubled(seed), 500, gap_ns).0, other.0);
    }

    #[test]
    fn how_often_one_looks_changes_nothing(
        seed: u64,
        every_us in 1u64..2000,
        jitter in 0usize..3,
        knobs in knobs(),
    ) {
        let distributions = [Distribution::Uniform, Distribution::Normal, Distribution::Pareto];
        let jitter_distribution = distributions[jitter];
        let codel = Some(CodelConfig { target: Duration::from_micros(100), ..Default::default() });
        let config = LinkConfig { jitter_distribution, codel, ..knobs.of(troubled(seed)) };
        let (mut often, mut seldom) = (Link::new(config.clone()), Link::new(config));
        let mut out = Vec::new();
        for n in 0..500u64 {
            let (now, packet) = (at_ns(n * 150_000), ipv4(n as u16 % 3, 2, 1000));
            often.push(now, &packet);
            seldom.push(now, &packet);
            for us in (0..150).step_by(every_us as usize) {
                let look = now.plus_nanos(us * 1000);
                let next = || often.deliver(look).map(|it| (it.arrival, it.packet));
                out.extend(std::iter::from_fn(next));
            }
        }
        out.extend(drain(&mut often));
        prop_assert_eq!(first_difference(&out, &drain(&mut seldom)), None);
        prop_assert_eq!(often.counters(), seldom.counters());
    }

    #[test]
    fn deciding_early_or_late_is_the_same(
        seed: u64,
        gap_ns in 0u64..300_000,
        limit in 1usize..70,
        knobs in knobs(),
    ) {
        let troubled = LinkConfig { queue: QueueLimit::Packets(limit), ..troubled(seed) };
        let config = LinkConfig { fair: None, ..knobs.of(troubled) };
        let (mut early, mut late) = (Link::new(config.clone()), Link::changeable(ZERO, config));
        for n in 0..500 {
            for link in [&mut early, &mut late] {
                link.push(at_ns(n * gap_ns), &ipv4(n as u16, 2, 1100));
            }
            let now = at_ns(n * gap_ns);
            prop_assert_eq!(early.queued(now), late.queued(now));
        }
        let [one, other] = [&mut early, &mut late].map(drain);
        prop_assert_eq!(first_difference(&one, &other), None);
        prop_assert_eq!(early.counters(), late.counters());
    }

    #[test]
    fn what_does_not_arrive_is_told(seed: u64, gap_ns in 0u64..200_000, knobs in knobs()) {
        let config = LinkConfig { duplicate: 0.0, ..knobs.of(troubled(seed)) };
        let mut link = Link::new(config);
        link.keep_gone();
        let mut pushed = Vec::new();
        for n in 0..300 {
            let packet = ipv4(n, 0, usize::from(n % 7) * 200);
            link.push(at_ns(u64::from(n) * gap_ns), &packet);
            pushed.push(packet);
        }
        let arrived = drain(&mut link).into_iter().map(|(_, packet)| packet);
        let mut found: Vec<Packet> = arrived.collect();
        let gone: Vec<Packet> = std::iter::from_fn(|| link.take_gone()).collect();
        let c = link.counters();
        prop_assert_eq!(gone.len() as u64, c.overflowed + c.codel_dropped + c.lost);
        found.extend(gone);
        found.sort_unstable();
        pushed.sort_unstable();
        prop_assert_eq!(found, pushed);
    }

    #[test]
    fn every_packet_is_accounted_for(seed: u64, gap_ns in 0u64..20_000, count in 1u32..500) {
        let (out, c) = run(troubled(seed), count, gap_ns);
        prop_assert_eq!(c.pushed, u64::from(count));
        prop_assert_eq!(c.delivered, c.pushed - c.overflowed - c.lost + c.duplicated);
        prop_assert_eq!(out.len() as u64, c.delivered);
        prop_assert!(out.windows(2).all(|w| w[0].0 <= w[1].0));
    }

    #[test]
    fn without_reordering_the_order_is_kept(seed: u64, gap_ns in 0u64..100_000) {
        let (out, _) = run(LinkConfig { reorder: 0.0, ..troubled(seed) }, 500, gap_ns);
        prop_assert!(out.windows(2).all(|w| w[0].1 <= w[1].1));
    }
}
