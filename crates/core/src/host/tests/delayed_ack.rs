//! When a delayed ACK leaves, of a whole host in virtual time.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::peer::{A, Heard, Peer, S, Say, plain};
use crate::config::{Scheme, TcpConfig};
use crate::time::{Duration, Instant};

/// Mansley's bounds, the defaults.
const LEAST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(150);

/// Data that waits for its ACK.
#[derive(Debug, Default)]
struct Waiting {
    /// When the first of it came: when the ACK was asked for.
    since: Option<Instant>,
    /// How long each ACK waited that did not leave at once.
    delays: Vec<Duration>,
}

impl Waiting {
    fn on_acks(&mut self, heard: &[Heard], sent: u32) {
        for ack in heard {
            assert_eq!((ack.len, ack.ack), (0, sent + 1), "a pure ACK of everything");
            let since = self.since.take().expect("an ACK that nobody asked for");
            if ack.at > since {
                self.delays.push(ack.at.since(since));
            }
        }
    }
}

/// Segments of such lengths after such gaps; how long each delayed ACK waited.
fn delays(tcp: &TcpConfig, phase: Duration, arrivals: &[(Duration, usize)]) -> Vec<Duration> {
    let mut config = plain();
    config.tcp = tcp.clone();
    let mut peer = Peer::established(config);
    let mut waiting = Waiting::default();
    let (mut sent, mut unacked, mut full) = (0, 0, 0);
    waiting.on_acks(&peer.wait(phase), sent);
    for (gap, len) in arrivals {
        let heard = peer.wait(*gap);
        unacked *= usize::from(heard.is_empty());
        waiting.on_acks(&heard, sent);
        peer.say(Say::new(A, 1 + sent, 1).data(&[7; 1000][..*len]));
        peer.read(2000).unwrap();
        waiting.since.get_or_insert(peer.now);
        (sent, unacked, full) = (sent + *len as u32, unacked + len, full.max(*len));
        let heard = peer.hear();
        if unacked >= 2 * full {
            assert_eq!(heard.len(), 1, "every second full-sized segment at once");
            (waiting.since, unacked) = (None, 0);
        } else {
            unacked *= usize::from(heard.is_empty());
            waiting.on_acks(&heard, sent);
        }
    }
    waiting.on_acks(&peer.wait(tcp.ack.bucket_max + tcp.clock.tick), sent);
    assert_eq!(waiting.since, None, "an ACK that never left");
    waiting.delays
}

fn is_in_time(tcp: &TcpConfig, delay: Duration) -> bool {
    tcp.ack.bucket_min <= delay && delay < tcp.ack.bucket_max + tcp.clock.tick
}

#[test]
fn a_request_is_answered_in_time_at_every_phase_of_the_grid() {
    let tcp = plain().tcp;
    let delays: Vec<Duration> = (0..1000)
        .map(|number| {
            let phase = Duration::from_micros(number * 100);
            let all = delays(&tcp, phase, &[(Duration::ZERO, 100)]);
            assert_eq!(all.len(), 1);
            all[0]
        })
        .collect();
    assert!(delays.iter().all(|delay| is_in_time(&tcp, *delay)), "{delays:?}");
    let (least, longest) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
    let slack = Duration::from_millis(2);
    assert!(*least < LEAST + slack && *longest > LONGEST - slack, "{least:?} to {longest:?}");
    let mean = delays.iter().sum::<Duration>() / delays.len() as u32;
    // Half a tick later than the middle, since timers fire with the next tick.
    assert!(mean.abs_diff(Duration::from_millis(100)) < slack, "{mean:?}");
}

/// When a host acknowledges what so many connections are sent at one moment.
fn acks_of_many(timestamps: bool, connections: u16) -> Vec<Instant> {
    let mut config = plain();
    config.tcp.timestamps = timestamps;
    let mut peer = Peer::listening(config);
    let mut requests = Vec::new();
    for port in 4000..4000 + connections {
        let stamped = |say: Say, echo| if timestamps { say.stamp(1, echo) } else { say };
        peer.port = port;
        peer.say(stamped(Say::new(S, 0, 0).mss(1000), 0));
        let echo = peer.hear_one().options.timestamps.map_or(0, |stamps| stamps.value);
        peer.say(stamped(Say::new(A, 1, 1), echo));
        peer.accept();
        requests.push((port, peer.host_isn, stamped(Say::new(A, 1, 1).data(&[7; 100]), echo)));
    }
    for (port, host_isn, request) in requests {
        (peer.port, peer.host_isn) = (port, host_isn);
        peer.say(request);
    }
    peer.wait(2 * LONGEST).iter().map(|heard| heard.at).collect()
}

#[test]
fn acks_asked_for_at_one_moment_do_not_all_leave_at_one() {
    for timestamps in [false, true] {
        let mut acks = acks_of_many(timestamps, 100);
        assert_eq!(acks.len(), 100);
        acks.dedup();
        // Of 100 ticks that 100 choose among at random 63 are chosen.
        assert!(acks.len() > 40, "timestamps {timestamps}: at {} times", acks.len());
    }
}

proptest! {
    /// From 50 to 150 ms, or whatever the limits are, and a tick, whatever arrives whenever.
    #[test]
    fn every_ack_that_is_delayed_leaves_in_time_under_any_arrivals(
        scheme in proptest::sample::select(std::vec![Scheme::Inline, Scheme::Wheel]),
        tick_us in prop_oneof![Just(1_000u64), 1u64..50_000],
        (least_us, spread_us) in prop_oneof![
            Just((50_000u64, 100_000u64)),
            (0u64..200_000, 1u64..200_000),
        ],
        phase_us in 0u64..200_000,
        arrivals in proptest::collection::vec(
            (prop_oneof![0u64..200, 0u64..20_000, 0u64..400_000], 1usize..=1000),
            1..60,
        ),
    ) {
        let tcp = plain().tcp.with(|tcp| {
            tcp.timers = scheme;
            tcp.clock.tick = Duration::from_micros(tick_us);
            tcp.ack.bucket_min = Duration::from_micros(least_us);
            tcp.ack.bucket_max = Duration::from_micros(least_us + spread_us);
        });
        let arrivals: Vec<(Duration, usize)> =
            arrivals.into_iter().map(|(us, len)| (Duration::from_micros(us), len)).collect();
        for delay in delays(&tcp, Duration::from_micros(phase_us), &arrivals) {
            prop_assert!(is_in_time(&tcp, delay), "{:?}", delay);
        }
    }
}
