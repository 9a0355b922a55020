//! A run of WebSTONE's clients against a server of one system, in steady state, and its results.

use std::time::Duration;

use lightwait_core::Instant;
use lightwait_core::config::TimeWaitState;
use lightwait_netem::LinkConfig;

use super::blocks::{Blocks, Search};
use super::lan::{Lan, Time, client_config, server_config};
use super::web::{self, Done, Plan, Web};
use super::{PAPER_BLOCK_BYTES, System};
use crate::statistics::mean_and_deviation;

/// The server's state for connections, and its look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Whole blocks in one list, as in SunOS 4.1.3; the number is the pool's size.
    List(usize),
    /// Our engine's state; the number limits the records.
    Records(usize),
}

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) system: System,
    pub(crate) keeping: Keeping,
    pub(crate) time: Time,
    /// 2·MSL.
    pub(crate) time_wait: Duration,
    pub(crate) link: LinkConfig,
    pub(crate) plan: Plan,
    /// The time before counting, and the time that counts.
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Connections a second, and bits of answers a second.
    pub(crate) connections: f64,
    pub(crate) bits: f64,
    /// Bytes a second of a connection during its life.
    pub(crate) rate_of_one: f64,
    /// Control blocks and records at the server, on average, and the part in TIME-WAIT.
    pub(crate) blocks: f64,
    pub(crate) waiting: f64,
    /// TIME-WAIT at the end, for each connection that ended during the measurement.
    pub(crate) left: f64,
    /// Blocks looked at for each packet.
    pub(crate) searched: f64,
    /// SYNs without a free block, from the beginning; and the time of the first, in seconds.
    pub(crate) refused: u64,
    pub(crate) refused_at: Option<f64>,
    /// TIME-WAITs that ended early for lack of room.
    pub(crate) evicted: u64,
    /// Connections that failed, and the time of the longest one, in seconds.
    pub(crate) failed: u64,
    pub(crate) longest: f64,
}

impl Seen {
    /// The server's blocks in KB (1000 bytes), each of the paper's size.
    pub(crate) fn block_kilobytes(&self) -> f64 {
        self.blocks * PAPER_BLOCK_BYTES / 1e3
    }
}

impl Run {
    /// Runs it.
    pub(crate) fn see(&self) -> Seen {
        let mut lan = self.lan();
        let client_closes = self.system == System::ClientCloses;
        let mut web = Web::new(Plan { client_closes, ..self.plan.clone() }, lan.now);
        let begin = lan.now;
        let mut seen = Seen::default();
        let warm = begin + self.warm_up;
        while lan.now < warm {
            self.turn(&mut lan, &mut web, warm);
            note_refusal(&mut seen, &mut lan, begin);
        }
        let before = web.done;
        lan.lookups().iter_mut().for_each(|lookup| lookup.blocks.work = Default::default());
        let (start, end) = (lan.now, lan.now + self.measured);
        let mut looks = 0.0;
        let mut next_look = start;
        while lan.now < end {
            self.turn(&mut lan, &mut web, end);
            note_refusal(&mut seen, &mut lan, begin);
            if lan.now >= next_look {
                looks += 1.0;
                next_look = next_look + self.measured / 100;
                let server = lan.server();
                let waiting = server.time_wait_len();
                seen.waiting += waiting as f64;
                seen.blocks += (waiting + server.connections() + server.half_open()) as f64;
            }
        }
        lan.assert_in_step();
        seen.blocks /= looks;
        seen.waiting /= looks;
        let seconds = lan.now.since(start).as_secs_f64();
        let Done { connections, bytes, failed, taken, lasted, longest } = web.done;
        let ended = (connections - before.connections) as f64;
        Seen {
            connections: ended / seconds,
            bits: (bytes - before.bytes) as f64 * 8.0 / seconds,
            left: lan.server().time_wait_len() as f64 / ended.max(1.0),
            rate_of_one: (taken - before.taken) as f64 / (lasted - before.lasted).max(1e-9),
            searched: lan.lookups().first().map_or(0.0, |lookup| lookup.blocks.work.each()),
            evicted: lan.server().counters().time_wait_evicted,
            failed,
            longest: longest.as_secs_f64(),
            ..seen
        }
    }

    /// Runs a turn; virtual time does not go beyond `end`.
    fn turn(&self, lan: &mut Lan, web: &mut Web, end: Instant) {
        lan.turn(web);
        if self.time != Time::True {
            lan.now = lan.now.min(end);
        }
    }

    fn lan(&self) -> Lan {
        let mut server = server_config();
        let mut clients: Vec<_> = (0..self.plan.hosts).map(client_config).collect();
        let state = match self.keeping {
            Keeping::List(_) => TimeWaitState::Full,
            Keeping::Records(_) => TimeWaitState::Compact,
        };
        self.system.apply(&mut server, &mut clients, state);
        for config in clients.iter_mut().chain([&mut server]) {
            config.tcp.time_wait.length = self.time_wait;
        }
        if let Keeping::Records(most) = self.keeping {
            server.limits.time_wait = most;
        }
        let mut lan = Lan::new(self.time, server, &[web::PORT], clients, &self.link);
        if let Keeping::List(most) = self.keeping {
            // Where packets take no time, a search takes none either.
            let blocks = Blocks::new(Search::Linear, most, self.plan.seed);
            lan.keep(blocks, &[web::PORT], self.time != Time::Made);
        }
        lan
    }
}

/// Mean and standard deviation over runs.
pub(crate) fn stat(seen: &[Seen], of: impl Fn(&Seen) -> f64) -> (f64, f64) {
    mean_and_deviation(&seen.iter().map(of).collect::<Vec<f64>>())
}

/// Both as the cell of a table.
pub(crate) fn cell((mean, deviation): (f64, f64), digits: usize) -> String {
    format!("{mean:.digits$} ± {deviation:.digits$}")
}

fn note_refusal(seen: &mut Seen, lan: &mut Lan, begin: Instant) {
    let now = lan.now;
    let refused = lan.lookups().iter().map(|lookup| lookup.refused).sum();
    if refused > 0 && seen.refused_at.is_none() {
        seen.refused_at = Some(now.since(begin).as_secs_f64());
    }
    seen.refused = refused;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty connections, one after the other, within TIME-WAIT.
    fn twenty(system: System, keeping: Keeping) -> Run {
        Run {
            system,
            keeping,
            time: Time::Made,
            time_wait: Duration::from_secs(60),
            link: LinkConfig { delay: Duration::from_millis(1), ..LinkConfig::default() },
            plan: Plan { files: vec![(500, 1)], count: 20, ..Plan::default() },
            warm_up: Duration::ZERO,
            measured: Duration::from_secs(20),
        }
    }

    #[test]
    fn the_pool_has_a_block_for_each_time_wait_or_a_syn_is_lost() {
        // The listener has one more.
        let enough = twenty(System::Unmodified, Keeping::List(21)).see();
        assert_eq!((enough.refused, enough.refused_at, enough.connections), (0, None, 1.0));
        let one_less = twenty(System::Unmodified, Keeping::List(20)).see();
        // The SYN is sent again after 1, 2, 4 and 8 seconds.
        assert_eq!((one_less.refused, one_less.connections), (5, 0.95));
        assert!(one_less.refused_at.is_some_and(|at| at < 1.0), "{one_less:?}");
    }

    #[test]
    fn where_clients_hold_time_wait_two_blocks_are_enough() {
        for system in [System::Swapped, System::Negotiated, System::ClientCloses] {
            let seen = twenty(system, Keeping::List(3)).see();
            assert_eq!((seen.refused, seen.waiting, seen.connections), (0, 0.0, 1.0), "{system:?}");
        }
    }

    #[test]
    fn a_persistent_connection_has_all_its_answers_in_bursts() {
        let run = twenty(System::Unmodified, Keeping::Records(100));
        let one = run.see();
        let plan = Plan { requests: 10, burst: 5, ..run.plan.clone() };
        let persistent = Run { plan, ..run }.see();
        assert_eq!((persistent.connections, persistent.failed), (1.0, 0));
        assert!((persistent.bits - 10.0 * one.bits).abs() < 1e-6, "{persistent:?}");
        // A round trip for each burst, and one to open: 6 ms against 4.
        let ratio = persistent.rate_of_one / one.rate_of_one;
        assert!((ratio - 10.0 * 4.0 / 6.0).abs() < 0.1, "{ratio}");
    }
}
