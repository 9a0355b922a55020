//! BBR over a bottleneck of a fixed rate, with a queue and losses: the test cases of
//! draft-ietf-ccwg-bbr, appendix A.

use alloc::collections::VecDeque;

use super::*;
use crate::tcp::congestion::pacer::Pacer;

const MSS: u32 = 1000;
const MS: u64 = 1_000_000;

/// A segment on its way.
struct Flying {
    sent_at: Instant,
    acked_at: Instant,
    is_lost: bool,
}

/// A sender, and the path to its receiver.
struct World {
    bbr: Bbr,
    pacer: Pacer,
    now: Instant,
    /// The bottleneck, bytes a second.
    rate: u64,
    delay_ns: u64,
    /// Bytes that its queue holds.
    queue: u64,
    busy_until: Instant,
    flying: VecDeque<Flying>,
    /// One in so many is lost; 0: none.
    loses: u32,
    sent: u32,
    /// Bytes that the application gives each millisecond.
    app: Option<u32>,
    app_left: u64,
    app_at: Instant,
    delivered: u64,
    in_recovery_until: Instant,
}

impl World {
    /// A path of that rate, and so many ms forth and back.
    fn new(rate: u64, delay_ms: u64) -> World {
        let now = Instant::from_millis(1000);
        let bbr = Bbr::new(10 * MSS, MSS, 7);
        World {
            pacer: Pacer::new(bbr.pacing_rate(), u64::MAX, MSS),
            bbr,
            now,
            rate,
            delay_ns: delay_ms * MS,
            queue: u64::MAX / 4,
            busy_until: now,
            flying: VecDeque::new(),
            loses: 0,
            sent: 0,
            app: None,
            app_left: 0,
            app_at: now,
            delivered: 0,
            in_recovery_until: now,
        }
    }

    fn in_flight(&self) -> u32 {
        self.flying.len() as u32 * MSS
    }

    fn give(&mut self) {
        let Some(app) = self.app else { return self.app_left = u64::MAX };
        while self.app_at <= self.now {
            self.app_left += u64::from(app);
            self.app_at = self.app_at.plus_nanos(MS);
        }
    }

    fn send(&mut self) {
        self.give();
        while self.app_left >= MSS.into()
            && self.in_flight() + MSS <= self.bbr.cwnd()
            && self.pacer.allowed(self.now) >= MSS
        {
            let in_flight = self.in_flight();
            self.bbr.on_sent(self.now, MSS, in_flight);
            self.pacer.set_rate(self.bbr.pacing_rate(), MSS);
            self.pacer.on_sent(self.now, MSS);
            self.app_left -= u64::from(MSS);
            self.sent += 1;
            let from = self.now.max(self.busy_until);
            let waiting =
                u128::from(from.nanos_since(self.now)) * u128::from(self.rate) / 1_000_000_000;
            let mut is_lost = self.loses > 0 && self.sent.is_multiple_of(self.loses);
            is_lost |= waiting > u128::from(self.queue);
            if !is_lost {
                self.busy_until = from.plus_nanos(u64::from(MSS) * 1_000_000_000 / self.rate);
            }
            let acked_at = self.busy_until.max(self.now).plus_nanos(self.delay_ns);
            self.flying.push_back(Flying { sent_at: self.now, acked_at, is_lost });
        }
        if self.app_left < MSS.into() {
            let in_flight = self.in_flight();
            if in_flight < self.bbr.cwnd() {
                self.bbr.sampler.on_app_limited(in_flight);
            }
        }
    }

    /// What is lost is found when the next segment that is not lost arrives.
    fn hear(&mut self) {
        let mut lost = 0;
        while let Some(next) = self.flying.iter().find(|flying| !flying.is_lost)
            && next.acked_at <= self.now
        {
            let Some(flying) = self.flying.pop_front() else { return };
            if flying.is_lost {
                lost += 1;
                if self.in_recovery_until <= self.now {
                    self.bbr.on_recovery();
                    self.in_recovery_until = self.now.plus_nanos(self.delay_ns * 2);
                }
                let left = self.bbr.sampler.on_lost(MSS, flying.sent_at);
                self.bbr.on_lost(self.now, MSS, left);
                continue;
            }
            self.delivered += u64::from(MSS);
            let sample = self.bbr.sampler.on_delivered(self.now, MSS, Some(flying.sent_at), 0);
            let acked = Acked {
                now: self.now,
                newly_acked: MSS,
                sample,
                in_flight: self.in_flight(),
                has_lost: lost > 0,
                has_sack: true,
            };
            lost = 0;
            if self.in_recovery_until <= self.now {
                self.bbr.on_recovered();
            }
            self.bbr.on_ack(&acked);
            self.pacer.set_rate(self.bbr.pacing_rate(), MSS);
        }
    }

    /// Lets time pass until then, or until it is so.
    fn run(&mut self, ms: u64, is_so: impl Fn(&World) -> bool) -> bool {
        let ends = self.now.plus_nanos(ms * MS);
        while self.now < ends && !is_so(self) {
            self.send();
            let ack = self.flying.iter().find(|flying| !flying.is_lost).map(|next| next.acked_at);
            let paced = self.pacer.due(self.now);
            let given = self.app.map(|_| self.app_at);
            let next = [ack, paced, given].into_iter().flatten().min().unwrap_or(ends);
            self.now = next.max(self.now.plus_nanos(1)).min(ends);
            self.hear();
        }
        is_so(self)
    }

    fn pass(&mut self, ms: u64) {
        self.run(ms, |_| false);
    }

    /// Bytes a second that arrive in that time.
    fn goodput(&mut self, ms: u64) -> u64 {
        let before = self.delivered;
        self.pass(ms);
        (self.delivered - before) * 1000 / ms
    }
}

fn is_in(state: State) -> impl Fn(&World) -> bool {
    move |world| world.bbr.state == state
}

const RATE: u64 = 5_000_000;

#[test]
fn startup_ends_once_the_bandwidth_grows_no_more() {
    for (rate, delay) in
        [(RATE, 40), (125_000, 20), (125_000_000, 10), (125_000_000, 100), (12_500_000, 200)]
    {
        let mut world = World::new(rate, delay);
        assert!(world.run(4000, is_in(State::Drain)), "{rate}");
        assert_eq!((world.bbr.full_bw.count, world.bbr.full_bw.is_reached), (3, true));
        let error = world.bbr.max_bw().abs_diff(rate);
        assert!(error * 50 <= rate, "{} of {rate}", world.bbr.max_bw());
        assert!(world.run(4000, |world| world.bbr.state != State::Drain), "{rate}");
        assert!(world.bbr.state.is_probe_bw());
        let bdp = (rate * delay / 1000) as u32;
        let most = bdp.max(world.bbr.inflight(100)) + MSS;
        assert!(world.in_flight() <= most, "{} of {most} in flight", world.in_flight());
    }
}

#[test]
fn the_link_is_full_and_the_queue_is_short() {
    let mut world = World::new(RATE, 40);
    world.pass(3000);
    let goodput = world.goodput(20_000);
    assert!(goodput * 100 >= RATE * 95, "{goodput}");
    let mut most = 0;
    for _ in 0..500 {
        world.pass(10);
        most = most.max(world.in_flight());
    }
    // A probe fills a quarter of the product more, and the window a little above that.
    let bdp = RATE / 1000 * 40;
    assert!(u64::from(most) * 10 <= bdp * 23, "{most} of {bdp}");
}

#[test]
fn losses_below_the_threshold_cost_what_they_take() {
    let mut clean = World::new(RATE, 40);
    clean.pass(3000);
    let clean = clean.goodput(20_000);
    let mut world = World::new(RATE, 40);
    world.loses = 100;
    world.pass(3000);
    let goodput = world.goodput(20_000);
    // Each round that cruises loses a hundredth of the rate, and there are fifty of them: 0.99^25
    // in the mean (§5.3.3.5.3).
    assert!(goodput * 100 >= clean * 78, "{goodput} of {clean}");
}

#[test]
fn startup_ends_by_losses_if_the_application_is_the_limit() {
    let mut world = World::new(RATE, 40);
    world.app = Some(2 * MSS);
    assert!(!world.run(3000, |world| world.bbr.state != State::Startup), "it may go on for ever");
    world.loses = 8;
    assert!(world.run(3000, |world| world.bbr.state != State::Startup));
    assert!(world.bbr.full_bw.is_reached && !world.bbr.full_bw.is_now);
}

#[test]
fn the_cycle_goes_down_cruises_refills_and_goes_up() {
    let mut world = World::new(RATE, 40);
    for state in [State::Down, State::Cruise, State::Refill, State::Up, State::Down] {
        assert!(world.run(4000, is_in(state)), "{state:?}");
    }
}

/// 62 rounds or two to three seconds, whichever is first.
#[test]
fn a_probe_comes_after_seconds_or_as_many_rounds_as_reno_takes() {
    let between = |rate, delay| {
        let mut world = World::new(rate, delay);
        assert!(world.run(20_000, is_in(State::Refill)));
        world.now.nanos_since(world.bbr.probe_bw.since) / MS
    };
    let long = between(RATE, 200);
    assert!((2000..3200).contains(&long), "{long}");
    let short = between(RATE, 10);
    assert!((450..700).contains(&short), "50 segments are 50 rounds: {short}");
}

#[test]
fn after_five_seconds_the_shortest_round_trip_is_looked_for() {
    let mut world = World::new(RATE, 40);
    // A standing queue of others would hide it: here the path has become longer.
    world.pass(2000);
    world.delay_ns = 60 * MS;
    assert!(world.run(9000, is_in(State::ProbeRtt)));
    let from = world.now;
    assert!(world.run(2000, |world| world.bbr.probe_rtt.done_at.is_some()));
    assert!(world.in_flight() <= world.bbr.probe_rtt_cwnd());
    assert!(world.run(2000, is_in(State::Cruise)));
    assert!(world.now.nanos_since(from) >= 200 * MS);
    world.pass(11_000);
    assert!(world.bbr.min_rtt_ns() >= 60 * MS, "ten seconds later the new one holds");
}

#[test]
fn a_pause_is_as_good_as_a_search_for_the_shortest_round_trip() {
    let mut world = World::new(RATE, 40);
    world.pass(3000);
    world.app = Some(0);
    world.app_left = 0;
    world.pass(6000);
    assert_eq!(world.in_flight(), 0);
    world.app = None;
    let probes = |world: &World| world.bbr.state == State::ProbeRtt;
    assert!(!world.run(500, probes));
    assert!(world.goodput(2000) * 100 >= RATE * 90, "the rate is as before");
}

#[test]
fn a_slower_path_is_believed_and_a_faster_one_found() {
    let mut world = World::new(RATE, 40);
    world.queue = RATE / 25;
    world.pass(4000);
    world.rate = RATE / 10;
    world.pass(12_000);
    let slow = world.bbr.max_bw();
    assert!(slow * 100 <= RATE / 10 * 115, "{slow}");
    world.rate = RATE;
    world.pass(12_000);
    let fast = world.goodput(3000);
    assert!(fast * 100 >= RATE * 90, "{fast}");
}

#[test]
fn four_segments_are_the_least_window() {
    let mut world = World::new(20_000, 10);
    world.pass(10_000);
    assert!(world.bbr.cwnd() >= 4 * MSS);
    assert!(world.bbr.pacing_rate() <= 26_000, "{}", world.bbr.pacing_rate());
    assert!(world.goodput(10_000) * 100 >= 20_000 * 90);
}

#[test]
fn what_a_timeout_took_comes_back_if_it_was_spurious() {
    let mut world = World::new(RATE, 40);
    assert!(world.run(4000, is_in(State::Up)));
    let (cwnd, longterm) = (world.bbr.cwnd(), world.bbr.inflight_longterm);
    for again in 0..2 {
        world.bbr.on_recovery();
        let lost = LostSample { in_flight: 40 * MSS, lost: 38 * MSS, is_app_limited: false };
        world.bbr.on_lost(world.now, 38 * MSS, Some(lost));
        world.bbr.on_timeout(2 * MSS);
        assert_eq!((world.bbr.cwnd(), world.bbr.state), (3 * MSS, State::Down), "{again}");
        assert!(world.bbr.inflight_longterm < cwnd / 2);
    }
    world.bbr.on_spurious();
    assert_eq!((world.bbr.cwnd(), world.bbr.inflight_longterm), (cwnd, longterm));
    assert_eq!(world.bbr.state, State::Refill, "it probes again");
}

#[test]
fn the_packet_counts_by_which_the_losses_cross_the_threshold() {
    let at_loss = |in_flight, before, together| {
        let lost = (before + together) * MSS;
        let lost = LostSample { in_flight: in_flight * MSS, lost, is_app_limited: false };
        assert!(is_too_high(lost.lost, lost.in_flight));
        inflight_at_loss(lost, together * MSS, MSS)
    };
    // The third of 100, and the fifth of 200, however many are found lost with it.
    assert_eq!(at_loss(100, 0, 3), 99 * MSS);
    assert_eq!(at_loss(100, 2, 1), 99 * MSS);
    assert_eq!(at_loss(200, 0, 40), 199 * MSS);
    // The third of 149: 2 % of 148 are 2.96. Two were lost before.
    assert_eq!(at_loss(149, 2, 4), 148 * MSS + 96 * MSS / 98);
    assert!(!is_too_high(2 * MSS, 100 * MSS));
}

proptest::proptest! {
    /// Whatever comes, the window holds four segments and the rate is above zero.
    #[test]
    fn nothing_stalls_it(
        seed in 1u32..,
        steps in proptest::collection::vec((0u8..6, 0u32..200_000, 0u64..400), 1..200),
    ) {
        let mut now = Instant::from_millis(1000);
        let mut bbr = Bbr::new(10 * MSS, MSS, seed);
        for (what, bytes, ms) in steps {
            now = now.plus_nanos(ms * MS);
            match what {
                0 | 1 => bbr.on_sent(now, bytes, bytes / 2),
                2 => {
                    let at = Instant::from_millis(1000 + ms);
                    let sample = bbr.sampler.on_delivered(now, bytes, Some(at), 0);
                    let (has_lost, in_flight) = (ms % 2 == 0, bytes);
                    let newly_acked = bytes;
                    let has_sack = true;
                    bbr.on_ack(&Acked { now, newly_acked, sample, in_flight, has_lost, has_sack });
                }
                3 => {
                    let lost = bbr.sampler.on_lost(bytes, now);
                    bbr.on_lost(now, bytes, lost);
                }
                4 => {
                    bbr.on_recovery();
                    bbr.on_timeout(bytes);
                }
                _ if ms % 2 == 0 => bbr.on_recovered(),
                _ => bbr.on_spurious(),
            }
            proptest::prop_assert!(bbr.cwnd() >= MSS && bbr.pacing_rate() > 0);
        }
    }
}
