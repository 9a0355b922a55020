//! Two ends that each think the other's numbers wrong: each one's ACK draws an ACK from the other,
//! until the limit on challenge ACKs lets no more pass.

use std::vec::Vec;

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use crate::config::TimeWaitState;
use crate::frame::RxFrame;
use crate::time::Duration;

/// Challenge ACKs that one end may send in a row.
const BURST: usize = 4;
/// After which it has earned one more.
const REFILL: Duration = Duration::from_millis(250);
/// One way.
const DELAYS: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(20), Duration::from_millis(60)];
const TIME_WAIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct World {
    state: TimeWaitState,
    timestamps: bool,
    delay: Duration,
    /// Only the client's end is in TIME-WAIT, the server's in a connection that goes on.
    server_is_open: bool,
}

impl World {
    fn all() -> Vec<World> {
        let mut all = Vec::new();
        for state in [TimeWaitState::Compact, TimeWaitState::Full] {
            for timestamps in [false, true] {
                for delay in DELAYS {
                    for server_is_open in [false, true] {
                        all.push(World { state, timestamps, delay, server_is_open });
                    }
                }
            }
        }
        all
    }

    /// A connection between the ends that all these worlds share, whose numbers are this
    /// `secret`'s; closed at both ends at once, unless it stays open.
    fn pair(&self, secret: u8, is_open: bool) -> Pair {
        let configs = [CLIENT, SERVER].map(|address| {
            let mut config = config(address);
            config.secret = [secret; 32];
            config.ephemeral_ports = (5000, 5000);
            config.tcp.time_wait.length = TIME_WAIT;
            config.tcp.time_wait.state = self.state;
            config.tcp.timestamps = self.timestamps;
            config
        });
        let [client, server] = configs;
        let mut pair = Pair::with(client, server);
        let (_, client, server) = pair.connected();
        if !is_open {
            let now = pair.now;
            pair.client.close(now, client);
            pair.server.close(now, server);
        }
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.client.time_wait_len(), usize::from(!is_open));
        assert_eq!(pair.server.time_wait_len(), usize::from(!is_open));
        pair
    }

    /// A client and a server of different connections between the same ends, and what the old
    /// server said last, which is still under way to the client.
    fn pair_at_odds(&self) -> (Pair, Vec<u8>) {
        let (mut pair, mut other) = (self.pair(1, false), self.pair(2, self.server_is_open));
        assert_eq!(pair.now, other.now);
        core::mem::swap(&mut pair.server, &mut other.server);
        pair.delay = self.delay;
        let mut said = other.log.into_iter().rev().filter(|(_, side, _)| *side == Side::Server);
        (pair, said.next().unwrap().2)
    }

    /// Ends that answer for so long have spent what they had and what they have earned since.
    fn most(&self) -> usize {
        let round_trip = self.delay * 2;
        let lasts = 1.0 - round_trip.as_secs_f64() / REFILL.as_secs_f64();
        (BURST as f64 / lasts).ceil() as usize
    }
}

/// How many frames each end sends within that time after a stray segment.
fn count(pair: &mut Pair, stray: &[u8], time: Duration) -> [usize; 2] {
    let (now, before) = (pair.now, pair.log.len());
    pair.client.on_frame(now, RxFrame::plain(stray));
    pair.run_for(time);
    let sent = |by| pair.log[before..].iter().filter(|(_, side, _)| *side == by).count();
    [sent(Side::Client), sent(Side::Server)]
}

#[test]
fn two_ends_at_odds_fall_silent_when_challenges_run_out() {
    for world in World::all() {
        let (mut pair, stray) = world.pair_at_odds();
        for _ in 0..3 {
            let sent = count(&mut pair, &stray, Duration::from_secs(5));
            let [fewest, most] = [sent[0].min(sent[1]), sent[0].max(sent[1])];
            assert!(fewest + 1 >= BURST && most <= world.most() + 1, "{world:?}: {sent:?}");
            let before = pair.log.len();
            pair.run_for(Duration::from_secs(5));
            assert_eq!(pair.log.len(), before, "{world:?}: they have fallen silent");
        }
        pair.run_for(TIME_WAIT);
        assert_eq!(pair.client.time_wait_len() + pair.server.time_wait_len(), 0, "{world:?}");
    }
}

/// What a round trip spends is earned again in its time; but no ACK makes TIME-WAIT last longer.
#[test]
fn two_records_a_long_way_apart_fall_silent_when_time_wait_ends() {
    let delay = REFILL;
    for state in [TimeWaitState::Compact, TimeWaitState::Full] {
        let world = World { state, timestamps: false, delay, server_is_open: false };
        let (mut pair, stray) = world.pair_at_odds();
        let sent = count(&mut pair, &stray, TIME_WAIT);
        let most = BURST + TIME_WAIT.div_duration_f64(REFILL) as usize;
        assert!(sent.iter().all(|sent| *sent <= most), "{state:?}: {sent:?}");
        assert_eq!(pair.client.time_wait_len() + pair.server.time_wait_len(), 0, "{state:?}");
        let before = pair.log.len();
        pair.run_for(TIME_WAIT);
        assert_eq!(pair.log.len(), before, "{state:?}: they have fallen silent");
    }
}
