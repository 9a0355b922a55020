//! A connection that has ended and that the host has a record of: of either IP version, with
//! timestamps or without, as a few bytes or as the whole block.

use super::pair::config;
use super::peer::*;
use crate::config::{Config, TimeWaitState};
use crate::flow::{Seq, Tuple};
use crate::host::Host;
use crate::tcp::State;
use crate::tcp::connection::FinalState;
use crate::tcp::time_wait::{Distance, Holding, Record};
use crate::time::{Duration, Instant};
use crate::wire::fast::FastSegment;
use std::vec::Vec;

/// The last TSval of the peer.
pub(crate) const LAST_STAMP: u32 = 1002;

/// TIME-WAIT.
pub(crate) const TERM: Duration = Duration::from_secs(60);

/// How a SYN is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Without options.
    Bare,
    /// As Linux writes it.
    Fast,
}

pub(crate) const LAYOUTS: [Layout; 2] = [Layout::Bare, Layout::Fast];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Old {
    address: &'static str,
    pub(crate) state: TimeWaitState,
    /// The host uses timestamps.
    pub(crate) stamped: bool,
}

impl Old {
    pub(crate) fn all() -> Vec<Old> {
        let mut all = Vec::new();
        for address in HOSTS {
            for state in [TimeWaitState::Compact, TimeWaitState::Full] {
                all.extend([false, true].map(|stamped| Old { address, state, stamped }));
            }
        }
        all
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = config(self.address);
        config.tcp.time_wait.state = self.state;
        config.tcp.timestamps = self.stamped;
        config
    }

    /// `say` with a timestamp, if the connection used them.
    pub(crate) fn say(&self, say: Say) -> Say {
        if self.stamped { say.stamp(LAST_STAMP, 0) } else { say }
    }

    /// The peer's FIN, with which all ended.
    pub(crate) fn last_fin(&self) -> Say {
        self.say(Say::new(F | A, 1, 2))
    }

    /// The host in TIME-WAIT. The peer's next number is 2, and the host's as well.
    pub(crate) fn waiting(&self) -> Peer {
        self.waiting_of(self.config(), 0)
    }

    /// A peer whose connection waits behind so many other records of a few bytes.
    pub(crate) fn waiting_of(&self, config: Config, others: u32) -> Peer {
        let mut peer = Peer::established_with(config, |syn| self.say(syn));
        enter_others(&mut peer, others);
        self.close(&mut peer);
        assert!(left(&peer).is_some());
        peer
    }

    /// Closes the connection, the host first.
    pub(crate) fn close(&self, peer: &mut Peer) {
        let (id, now) = (peer.id(), peer.now);
        peer.host.close(now, id);
        assert_eq!(peer.hear_text(), ["F 1:1(0) ack 1"]);
        assert_eq!(peer.exchange(self.last_fin()), [". 2:2(0) ack 2"]);
    }

    /// A SYN of the peer: one that lets TIME-WAIT be cut short, or an old one.
    pub(crate) fn syn(&self, layout: Layout, fresh: bool) -> Say {
        let seq = if fresh { 2 } else { 0 };
        let stamp = if fresh { LAST_STAMP + 1 } else { LAST_STAMP - 1 };
        match layout {
            Layout::Bare => Say::new(S, seq, 0),
            // The timestamp alone decides where it counts.
            Layout::Fast if self.stamped => Say::new(S, 0, 0).fast(stamp),
            Layout::Fast => Say::new(S, seq, 0).fast(stamp),
        }
    }
}

/// What is left of a connection that nothing more is asked of.
pub(crate) const RESIDUE: FinalState = FinalState {
    snd_nxt: Seq(1),
    rcv_nxt: Seq(2),
    stamp: None,
    stamp_offset: None,
    window: 512,
    holding: Holding::Closer,
    ack_due: false,
};

/// A record of `tuple` enters, and no connection was before.
pub(crate) fn enter(host: &mut Host, now: Instant, tuple: &Tuple) {
    let hash = host.live.hasher.hash(tuple);
    host.closed.time_wait.enter(hash, tuple, &RESIDUE, Distance::Far, now);
}

/// So many do, of other peers.
pub(crate) fn enter_others(peer: &mut Peer, others: u32) {
    for number in 0..others {
        let client = ([10, 9, (number >> 15) as u8, 1].into(), (number & 0x7fff) as u16 + 1);
        let tuple = Tuple::new(([10, 0, 0, 2].into(), 80), client);
        enter(&mut peer.host, peer.now, &tuple);
    }
}

/// The tuple of the host's end and the peer's.
pub(crate) fn tuple(peer: &Peer) -> Tuple {
    let (local, remote) = peer.ends();
    Tuple::new((local.ip(), local.port()), (remote.ip(), remote.port()))
}

/// The record of the connection, its time over or not.
pub(crate) fn left(peer: &Peer) -> Option<Record> {
    let tuple = tuple(peer);
    peer.host.time_wait_record(peer.host.live.hasher.hash(&tuple), &tuple)
}

/// The ISN that RFC 6528's clock has for the connection now.
pub(crate) fn clock_isn(peer: &Peer) -> Seq {
    peer.host.choose_isn(peer.now, &tuple(peer)).isn
}

/// Says a SYN that must be of this layout.
pub(crate) fn say_syn(peer: &mut Peer, layout: Layout, syn: &Say) {
    let packet = peer.packet(syn.clone());
    let is_fast = layout == Layout::Fast && peer.ip.is_ipv4();
    assert_eq!(FastSegment::parse(&packet).is_some(), is_fast, "{layout:?}");
    peer.say(syn.clone());
}

/// The peer completes the handshake that `syn` began and `answer` answered; text passes.
pub(crate) fn complete(peer: &mut Peer, syn: &Say, answer: &Heard) {
    let with_stamp = |say: Say| match (syn.options.timestamps, answer.options.timestamps) {
        (Some(ours), Some(theirs)) => say.stamp(ours.value, theirs.value),
        _ => say,
    };
    peer.say(with_stamp(Say::new(A, syn.seq + 1, 1)));
    peer.accept();
    assert_eq!(peer.state(), State::Established);
    peer.say(with_stamp(Say::new(A, syn.seq + 1, 1).data(b"new")));
    assert_eq!(peer.read(99).unwrap(), b"new");
}

/// Those reopened, those refused, and those that another took the place of.
pub(crate) fn counted(peer: &Peer) -> (u64, u64, u64) {
    let counters = peer.host.counters();
    (counters.time_wait_reopened, counters.time_wait_refused, counters.time_wait_reused)
}
