//! Judges how fast a peer takes the data that is written to it: a peer may stall, or be too slow.
//!
//! ```text
//!   0 ────────────── delivered ───────────────── written
//!        acknowledged    │    undelivered: in the transport
//!                        │
//!   stalled: nothing delivered for `stall`, though something is undelivered
//!   slow:    less than `rate` × `window` delivered in a window, and not all that was written when
//!            it was first looked at
//! ```

use std::time::{Duration, Instant};

/// The limits of too slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// A peer that takes nothing for this long stalls.
    pub(crate) stall: Duration,
    /// Bytes a second that a peer must take; 0: no limit.
    pub(crate) rate: u32,
    /// The time over which the rate is measured.
    pub(crate) window: Duration,
}

/// The progress of one connection's peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes that the transport accepted, in all.
    written: u64,
    /// How many of them the peer had taken at the last look.
    delivered: u64,
    /// Since when that number has not changed.
    since: Instant,
    window: Window,
}

/// A period over which the rate is measured.
#[derive(Clone, Copy, Debug)]
struct Window {
    began: Instant,
    /// Bytes delivered, and bytes written, when it began.
    delivered: u64,
    written: u64,
}

/// The outcome of a look at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The peer owes nothing.
    Idle,
    /// The next look is due at that time.
    Until(Instant),
    /// The peer takes nothing.
    Stalled,
    /// The peer takes too little.
    Slow,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Progress {
        let window = Window { began: now, delivered: 0, written: 0 };
        Progress { written: 0, delivered: 0, since: now, window }
    }

    /// The transport accepted `bytes` more. `before`: the undelivered bytes before that, if known;
    /// `waited`: the write had to wait.
    pub(crate) fn on_written(
        &mut self,
        now: Instant,
        bytes: usize,
        before: Option<usize>,
        waited: bool,
    ) {
        if before == Some(0) || before.is_none() && !waited {
            // The peer had taken everything, so its progress until then says nothing.
            self.begin_anew(now);
        }
        self.written += bytes as u64;
        if before.is_none() {
            (self.delivered, self.since) = (self.written, now);
        }
    }

    fn begin_window(&mut self, now: Instant) {
        self.window = Window { began: now, delivered: self.delivered, written: self.written };
    }

    fn begin_anew(&mut self, now: Instant) {
        (self.delivered, self.since) = (self.written, now);
        self.begin_window(now);
    }

    /// Judges the peer. `undelivered`: bytes in the transport, if known; `waits`: a write waits for
    /// room.
    pub(crate) fn look(
        &mut self,
        pace: &Pace,
        now: Instant,
        undelivered: Option<usize>,
        waits: bool,
    ) -> Look {
        let delivered = self.written.saturating_sub(undelivered.unwrap_or(0) as u64);
        if delivered > self.delivered {
            (self.delivered, self.since) = (delivered, now);
        }
        match undelivered {
            Some(0) => {
                self.begin_anew(now);
                // A write that waits nevertheless waits for something on our side.
                let later = Look::Until(now + pace.stall);
                return if waits { later } else { Look::Idle };
            }
            None if !waits => return Look::Idle,
            _ => {}
        }
        if now >= self.since + pace.stall {
            return Look::Stalled;
        }
        let has_taken_all_of_then = self.delivered >= self.window.written;
        if undelivered.is_some() && has_taken_all_of_then {
            self.begin_window(now);
        }
        let window_over = self.window.began + pace.window;
        if now >= window_over {
            let least = u128::from(pace.rate) * pace.window.as_millis() / 1000;
            if u128::from(self.delivered - self.window.delivered) < least {
                return Look::Slow;
            }
            self.begin_window(now);
        }
        // Often enough to tell within a quarter of the limit when the peer stopped taking data.
        Look::Until((self.since + pace.stall).min(now + pace.stall / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A peer whose progress the test sets.
    struct Peer {
        begin: Instant,
        now: Instant,
        progress: Progress,
        pace: Pace,
        undelivered: usize,
    }

    impl Peer {
        fn new(rate: u32) -> Peer {
            let now = Instant::now();
            let pace = Pace { stall: SECOND * 30, rate, window: SECOND * 60 };
            Peer { begin: now, now, progress: Progress::new(now), pace, undelivered: 0 }
        }

        fn write(&mut self, bytes: usize) {
            self.progress.on_written(self.now, bytes, Some(self.undelivered), false);
            self.undelivered += bytes;
        }

        /// Takes `bytes` every `step`, while `more` is written as soon as possible, until the peer
        /// is judged. Returns after how many seconds, and the judgement; `None` if there is none
        /// within an hour.
        fn take(&mut self, bytes: usize, step: Duration, more: bool) -> Option<(u64, Look)> {
            let mut looks_at = self.now;
            for at in 1.. {
                let until = self.begin + step * at;
                while looks_at < until {
                    self.now = looks_at;
                    match self.progress.look(&self.pace, self.now, Some(self.undelivered), more) {
                        Look::Idle => looks_at = until,
                        Look::Until(next) => looks_at = next.max(self.now + SECOND / 10),
                        look => return Some(((self.now - self.begin).as_secs(), look)),
                    }
                }
                self.now = until;
                self.undelivered = self.undelivered.saturating_sub(bytes);
                if more {
                    self.write(bytes);
                }
                if self.now > self.begin + SECOND * 3600 {
                    return None;
                }
            }
            None
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_stalls() {
        let mut peer = Peer::new(1000);
        peer.write(100_000);
        assert_eq!(peer.take(0, SECOND, false), Some((30, Look::Stalled)));
    }

    #[test]
    fn a_peer_that_takes_a_byte_now_and_then_is_slow() {
        for more in [false, true] {
            let mut peer = Peer::new(1000);
            peer.write(100_000);
            assert_eq!(peer.take(1, SECOND * 20, more), Some((60, Look::Slow)), "{more}");
        }
    }

    #[test]
    fn as_many_bytes_as_the_rate_are_enough_and_fewer_are_not() {
        let taking = |bytes| {
            let mut peer = Peer::new(1000);
            peer.write(100_000);
            peer.take(bytes, SECOND, true)
        };
        assert_eq!(taking(1020), None);
        assert!(matches!(taking(980), Some((60..70, Look::Slow))), "{:?}", taking(980));
    }

    #[test]
    fn a_rate_of_zero_lets_everybody_take_as_long_as_they_like() {
        let mut peer = Peer::new(0);
        peer.write(100_000);
        assert_eq!(peer.take(1, SECOND * 20, true), None);
    }

    #[test]
    fn a_write_that_waits_though_all_arrived_is_not_the_peers_fault() {
        let mut peer = Peer::new(1000);
        peer.write(500);
        for _ in 0..100 {
            peer.now += SECOND * 10;
            assert!(matches!(
                peer.progress.look(&peer.pace, peer.now, Some(0), true),
                Look::Until(_)
            ));
        }
    }

    #[test]
    fn a_blocked_write_tells_where_delivery_is_unknown() {
        let mut peer = Peer::new(1000);
        peer.progress.on_written(peer.now, 5000, None, false);
        assert_eq!(peer.progress.look(&peer.pace, peer.now + SECOND * 99, None, false), Look::Idle);
        peer.now += SECOND * 100;
        peer.progress.on_written(peer.now, 5000, None, false);
        for _ in 0..2 {
            peer.now += SECOND * 29;
            assert!(matches!(peer.progress.look(&peer.pace, peer.now, None, true), Look::Until(_)));
            peer.progress.on_written(peer.now, 1, None, true);
        }
        peer.now += SECOND * 2;
        assert_eq!(peer.progress.look(&peer.pace, peer.now, None, true), Look::Slow);
        let mut peer = Peer::new(1000);
        peer.progress.on_written(peer.now, 5000, None, false);
        assert_eq!(
            peer.progress.look(&peer.pace, peer.now + SECOND * 30, None, true),
            Look::Stalled
        );
    }

    #[test]
    fn small_responses_now_and_then_are_not_slow_however_late_taken() {
        let mut peer = Peer::new(1000);
        for _ in 0..1000 {
            peer.write(500);
            peer.now += SECOND * 5;
            // Looked at during the write, and taken then.
            let look = peer.progress.look(&peer.pace, peer.now, Some(peer.undelivered), false);
            assert!(matches!(look, Look::Until(_)), "{look:?}");
            peer.write(500);
            peer.undelivered -= 500;
            peer.now += SECOND;
            peer.progress.look(&peer.pace, peer.now, Some(peer.undelivered), false);
            peer.undelivered = 0;
        }
        peer.now += SECOND * 1000;
        assert_eq!(peer.progress.look(&peer.pace, peer.now, Some(0), false), Look::Idle);
        // The peer took nothing for long because there was nothing.
        peer.write(500);
        peer.now += SECOND;
        assert!(matches!(
            peer.progress.look(&peer.pace, peer.now, Some(500), false),
            Look::Until(_)
        ));
    }
}
