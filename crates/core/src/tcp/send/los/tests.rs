use super::*;

/// A segment of the walks.
const MSS: u32 = 1000;

/// In congestion avoidance with a window of so many thousandths of a segment.
fn avoidance(window: u32) -> Congestion {
    Congestion::of_reno(window, 2 * MSS)
}

/// In slow start with so many segments, up to `threshold` of them.
fn slow_start(window: u32, threshold: u32) -> Congestion {
    Congestion::of_reno(window * MSS, threshold * MSS)
}

fn los(congestion: &Congestion, factor: u32) -> Los<'_> {
    Los { congestion, window: congestion.window(), most: u32::MAX, mss: MSS, factor }
}

fn hiwat(congestion: &Congestion, factor: u32) -> u32 {
    los(congestion, factor).hiwat(u32::MAX) / MSS
}

fn read_size(congestion: &Congestion, factor: u32) -> u32 {
    los(congestion, factor).read_size(u32::MAX) / MSS
}

/// A sender and its server by the paper's model, in segments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Walk {
    pending: u32,
    fresh: u32,
    outstanding: u32,
}

impl Walk {
    /// Pending segments go into a buffer of `hiwat`; how many.
    fn append(&mut self, hiwat: u32) -> u32 {
        let room = hiwat.saturating_sub(self.fresh + self.outstanding);
        let appended = room.min(self.pending);
        self.pending -= appended;
        self.fresh += appended;
        appended
    }

    /// One segment is acknowledged, and what a window of `cwnd` lets go is sent; how many.
    fn acknowledge(&mut self, cwnd: u32) -> u32 {
        self.outstanding -= 1;
        self.send(cwnd)
    }

    fn send(&mut self, cwnd: u32) -> u32 {
        let sent = cwnd.saturating_sub(self.outstanding).min(self.fresh);
        self.fresh -= sent;
        self.outstanding += sent;
        sent
    }
}

#[test]
fn figure_3_step_by_step() {
    // t0: cwnd 2.5, two outstanding, three fresh, one pending.
    let mut walk = Walk { pending: 1, fresh: 3, outstanding: 2 };
    assert_eq!(hiwat(&avoidance(2500), 1), 5);
    assert_eq!(walk.append(5), 0, "the buffer is full");
    // t1: segment 0 is acknowledged, and cwnd is 2.9: the pending one goes in, and an access of
    // next^2 begins.
    let mut sent = walk.acknowledge(2);
    assert_eq!(hiwat(&avoidance(2900), 1), 2 + 3);
    assert_eq!((walk.append(5), walk.pending), (1, 0));
    let access = read_size(&avoidance(2900), 1);
    assert_eq!(access, 4);
    // t2: segment 1 is acknowledged, and cwnd is 3.244: segments 3 and 4 leave.
    assert_eq!(sent, 1);
    sent = walk.acknowledge(3);
    assert_eq!((sent, walk.outstanding), (2, 3));
    assert_eq!(walk.fresh, 1);
    // t3: the access is done. Three of its four go in, and one stays pending.
    walk.pending += access;
    let hiwat_3 = hiwat(&avoidance(3245), 1);
    assert_eq!(hiwat_3, 3 + 4);
    assert_eq!((walk.append(hiwat_3), walk.pending), (3, 1));
    // t1 + RTT: segment 2 is acknowledged, and cwnd is 3.553: the pending one goes in, and an
    // access of five begins.
    let mut later = walk.acknowledge(3);
    assert_eq!((walk.append(hiwat(&avoidance(3553), 1)), walk.pending), (1, 0));
    assert_eq!(read_size(&avoidance(3553), 1), 5);
    // Until t1 + 2 RTT the two others of that window are acknowledged, and it has opened to four:
    // as many leave as were fetched at t1.
    later += walk.acknowledge(3);
    later += walk.acknowledge(4);
    assert_eq!(later, access);
    assert!(walk.fresh > 0, "no buffer miss");
}

#[test]
fn figure_7_step_by_step() {
    for n in [2, 7, 100] {
        let at = |more: u32| avoidance((n + more) * MSS);
        let mut walk = Walk { pending: 1, fresh: (n + 1) + (n + 2), outstanding: n };
        assert_eq!(hiwat(&at(0), 2), n + (n + 1) + (n + 2));
        // t0: an ACK makes room for the pending one, and an access begins.
        walk.acknowledge(n);
        assert_eq!(walk.append(hiwat(&at(0), 2)), 1);
        let access = read_size(&at(0), 2);
        assert_eq!(access, (n + 3) + (n + 4));
        // Two rounds, in which n + 1 and n + 2 leave at most, one of them already.
        for (round, cwnd) in [(n - 1, n + 1), (n + 1, n + 2)] {
            for _ in 0..round {
                walk.acknowledge(cwnd);
            }
        }
        assert_eq!(walk.outstanding, n + 2, "the window was used: no buffer miss");
        // The access is done: all of it goes in but for one segment, as at the beginning.
        walk.pending += access;
        assert_eq!(hiwat(&at(2), 2), (n + 2) + (n + 3) + (n + 4));
        walk.append(hiwat(&at(2), 2));
        assert_eq!((walk.fresh, walk.pending), ((n + 3) + (n + 4), 1));
    }
}

#[test]
fn slow_start_doubles_up_to_its_threshold() {
    let start = slow_start(10, 1000);
    assert_eq!((hiwat(&start, 1), read_size(&start, 1)), (30, 40));
    assert_eq!((hiwat(&start, 2), read_size(&start, 2)), (10 + 20 + 40, 80 + 160));
    let near = slow_start(10, 16);
    assert_eq!((hiwat(&near, 1), read_size(&near, 1)), (10 + 16, 17));
    assert_eq!(hiwat(&near, 3), 10 + 16 + 17 + 18);
}

#[test]
fn a_read_takes_the_initial_window_then_three_segments_or_more() {
    let first = |congestion: Congestion| los(&congestion, 1).first_read(u32::MAX) / MSS;
    assert_eq!(first(slow_start(1, 1000)), 3);
    assert_eq!(first(slow_start(10, 1000)), 30);
    assert_eq!(first(Congestion::of_reno(MSS, MSS)), 3, "next alone would be two");
    assert_eq!(los(&slow_start(10, 1000), 1).first_read(2500), 2500);
}

#[test]
fn nothing_is_more_than_the_limit_or_ends_within_a_segment() {
    let wide = slow_start(1000, 1_000_000);
    assert_eq!(los(&wide, FACTOR_MAX).hiwat(1 << 20), 1 << 20);
    assert_eq!(los(&wide, FACTOR_MAX).read_size(1 << 20), 1 << 20);
    let uneven = Congestion::of_reno(2500, 9999);
    assert_eq!(los(&uneven, 1).hiwat(u32::MAX), 2000 + 5000);
    assert_eq!(los(&uneven, 2).hiwat(u32::MAX) % MSS, 0);
    assert_eq!(los(&uneven, 2).read_size(u32::MAX) % MSS, 0);
}

#[test]
fn no_window_is_larger_than_the_peer_ever_offered() {
    let start = slow_start(10, 1000);
    let offered = |most: u32| Los { most: most * MSS, ..los(&start, 2) };
    assert_eq!(offered(15).hiwat(u32::MAX) / MSS, 10 + 15 + 15);
    assert_eq!(offered(30).hiwat(u32::MAX) / MSS, 10 + 20 + 30);
    assert_eq!(offered(30).read_size(u32::MAX) / MSS, 30 + 30);
}

#[test]
fn the_factor_is_the_read_in_round_trips_rounded_up() {
    let ms = |ms: u64| ms * 1_000_000;
    assert_eq!(factor(ms(50), ms(150), 2), 1);
    assert_eq!(factor(ms(150), ms(150), 2), 1);
    assert_eq!(factor(ms(150) + 1, ms(150), 2), 2);
    assert_eq!(factor(ms(600), ms(150), 2), 4);
    assert_eq!((factor(0, ms(150), 2), factor(ms(50), 0, 1)), (2, 1), "one is not known");
    assert_eq!((factor(u64::MAX, 1, 1), factor(0, 0, 0)), (FACTOR_MAX, 1));
}
