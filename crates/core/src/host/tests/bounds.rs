//! How long each timer really lasts, under each scheme: the bounds of the timer framework (Aron &
//! Druschel 1999, §3) held by the engine itself, in virtual time.
//!
//! A timer set for D ticks of the measurement clock must last more than T = D - 1 of them. X of
//! them make a tick of the scheduling clock. The host learns what the first clock shows, and on
//! that clock D ticks and less than D + X pass. The time that really passes differs from that by
//! less than one tick, so it lies between T and T + X + 1.

use core::net::SocketAddr;

use proptest::prelude::*;

use super::pair::{CLIENT, SERVER};
use super::peer::{A, F, Peer, Say, plain};
use crate::config::{AckDelay, Scheme, TimeWaitState};
use crate::tcp::{Keepalive, State};
use crate::time::Duration;

/// 4.4BSD's ticks.
const FAST: Duration = Duration::from_millis(200);
const SLOW: Duration = Duration::from_millis(500);
const NS: Duration = Duration::from_nanos(1);
/// ns to a tick of the measurement clock.
const FINE: u32 = 1000;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Establishment,
    Retransmission,
    DelayedAck,
    Persist,
    KeepAlive,
    FinWait2,
    TimeWait,
}

const KINDS: [Kind; 7] = [
    Kind::Establishment,
    Kind::Retransmission,
    Kind::DelayedAck,
    Kind::Persist,
    Kind::KeepAlive,
    Kind::FinWait2,
    Kind::TimeWait,
];

const SCHEMES: [Scheme; 4] = [Scheme::Inline, Scheme::Wheel, Scheme::Scan, Scheme::OrderedList];

/// A timer, and the clocks it is set on.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    scheme: Scheme,
    tick: Duration,
    time: Duration,
    /// How long the world has gone on when the timer is set.
    phase: Duration,
}

impl Case {
    /// A connection whose timer is about to be set, at any phase of the ticks.
    fn peer(&self) -> Peer {
        let mut config = plain();
        config.tcp.timers = self.scheme;
        config.tcp.clock.tick = self.tick;
        if matches!(self.kind, Kind::Retransmission | Kind::Persist) {
            // Nothing has been measured when they are set.
            config.tcp.rto.initial = self.time;
        }
        config.tcp.timeout.open = self.time;
        config.tcp.timeout.fin_wait_2 = self.time;
        config.tcp.time_wait.length = self.time;
        config.tcp.time_wait.state = TimeWaitState::Full;
        config.tcp.ack.delay = AckDelay::Timer;
        if self.kind == Kind::DelayedAck {
            config.tcp.ack.timer = self.time;
        }
        let mut peer = match self.kind {
            Kind::Establishment => Peer::new(config),
            _ => Peer::established(config),
        };
        assert_eq!(peer.wait(self.phase), []);
        peer
    }

    /// How long it really lasts.
    fn actual(&self) -> Duration {
        let mut peer = self.peer();
        let (begin, time) = (peer.now, self.time);
        match self.kind {
            Kind::Establishment => {
                let at = |address: &str, port| SocketAddr::new(address.parse().unwrap(), port);
                let (local, remote) = (at(SERVER, 80), at(CLIENT, peer.port));
                let id = peer.host.connect(begin, local, remote).unwrap();
                peer.hear_one();
                until(&mut peer, |peer| peer.host.state(id) == State::Closed);
            }
            Kind::Retransmission => {
                peer.write(100);
                peer.hear_one();
                assert_eq!(peer.wait_for_one().len, 100);
            }
            Kind::DelayedAck => {
                peer.say(Say::new(A, 1, 1).data(b"asks"));
                assert_eq!(peer.hear(), []);
                assert_eq!(peer.wait_for_one().ack, 5);
            }
            Kind::Persist => {
                peer.say(Say::new(A, 1, 1).window(0));
                peer.write(100);
                assert_eq!(peer.hear(), []);
                assert_eq!(peer.wait_for_one().len, 1);
            }
            Kind::KeepAlive => {
                let mut options = peer.host.options(peer.id()).unwrap();
                options.keepalive = Some(Keepalive { idle: time, interval: time, probes: 1 });
                peer.host.set_options(begin, peer.id(), options).unwrap();
                assert_eq!(peer.hear(), []);
                assert_eq!(peer.wait_for_one().len, 0);
            }
            Kind::FinWait2 => {
                peer.host.close(begin, peer.id());
                peer.hear_one();
                peer.say(Say::new(A, 1, 2));
                until(&mut peer, |peer| peer.host.connections() == 0);
            }
            Kind::TimeWait => {
                peer.host.close(begin, peer.id());
                peer.hear_one();
                peer.say(Say::new(F | A, 1, 2));
                peer.hear_one();
                until(&mut peer, |peer| peer.host.time_wait_len() == 0);
            }
        }
        peer.now.since(begin)
    }

    /// The least and the longest that T may last.
    fn bounds(&self) -> (Duration, Duration) {
        let time = self.time;
        if matches!(self.scheme, Scheme::Inline | Scheme::Wheel) {
            return (time, time + self.tick - NS);
        }
        let whole = time.as_nanos().is_multiple_of(SLOW.as_nanos());
        match self.kind {
            Kind::DelayedAck => (NS, FAST),
            // Times by a finer clock, for a retransmission of two ticks at least.
            Kind::Retransmission => (time.max(SLOW + NS), (time + SLOW - NS).max(SLOW * 2)),
            Kind::Persist => (time, time + SLOW - NS),
            Kind::TimeWait if self.scheme == Scheme::OrderedList => counted(time),
            _ if whole => counted(time),
            _ => (time, time + SLOW - NS),
        }
    }
}

/// A count of slow ticks; a part of the first tick may be over.
fn counted(time: Duration) -> (Duration, Duration) {
    let ticks = time.as_nanos().div_ceil(SLOW.as_nanos()) as u32;
    (SLOW * (ticks - 1) + NS, SLOW * ticks)
}

/// Time passes, from one deadline to the next, until `done`.
fn until(peer: &mut Peer, done: impl Fn(&Peer) -> bool) {
    peer.hear();
    while !done(peer) {
        peer.now = peer.now.max(peer.host.deadline().expect("a timer is set"));
        peer.hear();
    }
}

/// Whole slow ticks as well, which 4.4BSD's schemes count.
fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1_000u64..10_000_000_000).prop_map(Duration::from_nanos),
        (1u64..500).prop_map(Duration::from_millis),
        (1u32..20).prop_map(|ticks| SLOW * ticks),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    /// T < actual < T + X + 1, for every timer whose deadline counts.
    #[test]
    fn every_timer_keeps_the_bound_of_the_framework(
        kind in proptest::sample::select(KINDS.to_vec()),
        scheme in proptest::sample::select([Scheme::Inline, Scheme::Wheel].to_vec()),
        x in prop_oneof![Just(1), 1u32..4, 1u32..1000, 1u32..=1_000_000, Just(1_000_000)],
        t in prop_oneof![0u32..10, 0u32..10_000, 0u32..450_000],
        at in 0u32..5_000_000,
        // Of a thousand to a tick: how much of one is over when the clock is read, and how long
        // after one those of the scheduling clock come.
        part in prop_oneof![Just(0), 0..FINE, Just(FINE - 1)],
        skew in prop_oneof![Just(0), 0..FINE, Just(FINE - 1)],
    ) {
        let measure = NS * FINE;
        let (tick, time, phase) = (measure * x, measure * (t + 1), measure * at);
        let told = Case { kind, scheme, tick, time, phase }.actual();
        let actual = told + NS * skew - NS * part;
        prop_assert!(measure * t < actual, "{actual:?}");
        prop_assert!(actual < measure * t + tick + measure, "{actual:?}");
    }

    #[test]
    fn every_timer_lasts_its_time_and_a_tick_more_at_most(
        kind in proptest::sample::select(KINDS.to_vec()),
        scheme in proptest::sample::select(SCHEMES.to_vec()),
        tick_ns in prop_oneof![1_000u64..1_000_000, 1_000_000u64..1_000_000_000],
        time in time(),
        phase_ns in 0u64..5_000_000_000,
    ) {
        let most = if kind == Kind::DelayedAck { 499 } else { u64::MAX };
        let case = Case {
            kind,
            scheme,
            tick: Duration::from_nanos(tick_ns),
            time: time.min(Duration::from_millis(most)),
            phase: Duration::from_nanos(phase_ns),
        };
        let (actual, (least, longest)) = (case.actual(), case.bounds());
        prop_assert!(least <= actual && actual <= longest, "{least:?} {actual:?} {longest:?}");
    }
}

/// Set at a tick a timer lasts no longer than it must, set just after one as long as it may; by
/// 4.4BSD's count, which takes a part of a tick for a whole one, it is the other way round.
#[test]
fn each_bound_is_reached_by_each_timer_under_each_scheme() {
    // Ticks of 10, 200 and 500 ms begin together every second, as the world does.
    let (tick, second) = (Duration::from_millis(10), Duration::from_secs(1));
    let at_a_tick_and_after = [Duration::ZERO, NS];
    for kind in KINDS {
        let time = if kind == Kind::DelayedAck { FAST } else { second };
        for scheme in SCHEMES {
            let phases = match (scheme, kind) {
                (Scheme::Inline | Scheme::Wheel, _) => at_a_tick_and_after,
                // Times, not counts.
                (_, Kind::Retransmission | Kind::Persist) => at_a_tick_and_after,
                _ => [second - NS, Duration::ZERO],
            };
            let [earliest, latest] = phases.map(|phase| {
                let case = Case { kind, scheme, tick, time, phase };
                (case.actual(), case.bounds())
            });
            assert_eq!(earliest.0, earliest.1.0, "{kind:?} {scheme:?}: the least");
            assert_eq!(latest.0, latest.1.1, "{kind:?} {scheme:?}: the longest");
        }
    }
}
