//! Orphans in FIN-WAIT-2 that are nothing but a record: to the peer they are as they were.

use super::old::RESIDUE;
use super::peer::*;
use crate::config::Config;
use crate::error::ConnectError;
use crate::flow::Tuple;
use crate::tcp::connection::FinalState;
use crate::tcp::time_wait::ISN_STEP;
use crate::tcp::{Keepalive, SocketOptions, State};
use crate::time::Duration;
use crate::wire::tcp::Flags;
use std::vec::Vec;

/// After which an orphan is a record, and some more.
const QUIET: Duration = Duration::from_secs(3);

fn full() -> Config {
    super::pair::config("10.0.0.2")
}

/// A host whose user has left, and whose FIN is acknowledged; its peer's next number is 11, its
/// own 22.
fn orphan(config: Config) -> Peer {
    let syn = |say: Say| say.mss(1000).stamp(1000, 0).sack_permitted();
    let mut peer = Peer::established_with(config, syn);
    let id = peer.id();
    peer.say(stamped(Say::new(A, 1, 1).data(b"ten bytes!")));
    peer.read(100).unwrap();
    peer.write(20);
    let now = peer.now;
    peer.host.close(now, id);
    peer.hear();
    peer.say(stamped(Say::new(A, 11, 22)));
    assert_eq!(peer.hear(), []);
    fetch_events(&mut peer);
    assert_eq!(states(&peer), [State::Listen, State::FinWait2]);
    peer
}

/// Fetches what waits to be told.
fn fetch_events(peer: &mut Peer) {
    while peer.host.event().is_some() {}
}

pub(super) fn stamped(say: Say) -> Say {
    say.stamp(1001, 0)
}

pub(super) fn states(peer: &Peer) -> Vec<State> {
    peer.host.sockets().map(|it| it.state()).collect()
}

fn resting() -> Peer {
    resting_of(full())
}

/// An orphan that is nothing but a record.
pub(super) fn resting_of(config: Config) -> Peer {
    let mut peer = orphan(config);
    assert_eq!(peer.wait(QUIET), []);
    assert_eq!((peer.host.counters().rested, peer.host.slots.len()), (1, 0));
    let counts = (peer.host.connections(), peer.host.fin_wait_2_len(), peer.host.time_wait_len());
    assert_eq!(counts, (0, 1, 0));
    assert_eq!(states(&peer), [State::Listen, State::FinWait2]);
    peer
}

#[test]
fn what_comes_for_a_record_is_answered_as_if_it_were_whole() {
    let mut wakeful = full();
    wakeful.tcp.compact_after = Duration::ZERO;
    let says = [
        ("its FIN", stamped(Say::new(F | A, 11, 22))),
        ("its FIN without its timestamp", Say::new(F | A, 11, 22)),
        ("its FIN of an old timestamp", Say::new(F | A, 11, 22).stamp(999, 0)),
        ("text", stamped(Say::new(A, 11, 22).data(b"nobody hears"))),
        ("text and FIN", stamped(Say::new(F | A, 11, 22).data(b"nobody hears"))),
        ("text beyond", stamped(Say::new(A, 2011, 22).data(b"nobody hears"))),
        ("text again", stamped(Say::new(A, 1, 22).data(b"ten bytes!"))),
        ("FIN beyond", stamped(Say::new(F | A, 2011, 22))),
        ("an ACK", stamped(Say::new(A, 11, 22))),
        ("a keepalive probe", stamped(Say::new(A, 10, 22))),
        ("an ACK of what was never sent", stamped(Say::new(A, 11, 23))),
        ("RST", Say::new(R, 11, 0)),
        ("RST in the window", Say::new(R, 12, 0)),
        ("RST outside", Say::new(R, 10, 0)),
        ("SYN", Say::new(S, 500_000, 0).mss(1000)),
        ("SYN, ACK", Say::new(S | A, 11, 22)),
    ];
    for (what, say) in says {
        let told = |mut peer: Peer| {
            peer.say(say.clone());
            let mut heard = peer.hear();
            let kept = peer.host.connections() + peer.host.fin_wait_2_len();
            let after = (states(&peer), peer.host.time_wait_len(), kept);
            // And whatever is left of it then hears the FIN.
            peer.say(Say::new(F | A, 11, 22).stamp(2000, 0));
            heard.extend(peer.wait(Duration::from_secs(1)));
            (heard, after, states(&peer), peer.host.counters().segments_in)
        };
        let mut whole = orphan(wakeful.clone());
        whole.wait(QUIET);
        assert_eq!(told(resting()), told(whole), "{what}");
    }
}

/// Peers on these ports get an answer each, acknowledge its FIN, and never close. Returns the flags
/// of the answers.
fn never_closing(peer: &mut Peer, ports: core::ops::Range<u16>) -> Vec<Flags> {
    let serve = |port| {
        peer.port = port;
        peer.say(Say::new(S, 0, 0).mss(1000));
        peer.hear_one();
        peer.say(Say::new(A, 1, 1));
        peer.accept();
        peer.write(20);
        let (id, now) = (peer.id(), peer.now);
        peer.host.close(now, id);
        let answer = peer.hear_one();
        fetch_events(peer);
        peer.say(Say::new(A, 1, 22));
        assert_eq!(peer.hear(), [], "{port}");
        answer.flags
    };
    ports.map(serve).collect()
}

const LIMIT: usize = 10;

fn limited() -> Peer {
    let mut config = full();
    config.limits.orphans = LIMIT;
    Peer::listening(config)
}

#[test]
fn peers_that_never_close_take_no_answer_from_others() {
    let mut peer = limited();
    let answers = never_closing(&mut peer, 5000..5100);
    assert!(answers.iter().all(|flags| flags.contains(F)), "{answers:?}");
    let counters = peer.host.counters();
    let whole = LIMIT / 2 - 1;
    assert_eq!((counters.orphans_over_limit, counters.fin_wait_2_hurried), (0, 100 - whole as u64));
    assert_eq!((peer.host.connections(), peer.host.fin_wait_2_len()), (whole, 100 - whole));
    // Each is what it would have become, and its FIN leads to TIME-WAIT.
    peer.wait(QUIET);
    assert_eq!((peer.host.connections(), peer.host.fin_wait_2_len()), (0, 100));
    assert_eq!(peer.exchange(Say::new(F | A, 1, 22)), [". 22:22(0) ack 2"]);
    assert_eq!((peer.host.time_wait_len(), peer.host.fin_wait_2_len()), (1, 99));
    peer.wait(Duration::from_secs(60));
    assert_eq!(peer.host.counters().fin_wait_2_expired, 99);
}

/// The twin: below half the limit they stay whole for a while, since most peers close soon.
#[test]
fn below_half_the_limit_on_orphans_none_is_hurried() {
    let mut peer = limited();
    never_closing(&mut peer, 5000..5004);
    assert_eq!((peer.host.connections(), peer.host.fin_wait_2_len()), (LIMIT / 2 - 1, 0));
    never_closing(&mut peer, 5004..5005);
    assert_eq!(peer.host.counters().fin_wait_2_hurried, 1, "one more");
}

/// The other twin: an orphan whose FIN is not acknowledged cannot be a record.
#[test]
fn orphans_that_still_send_count_towards_the_limit() {
    let mut peer = limited();
    for port in 5000..5000 + LIMIT as u16 + 1 {
        peer.port = port;
        peer.say(Say::new(S, 0, 0).mss(1000));
        peer.hear_one();
        peer.say(Say::new(A, 1, 1));
        peer.accept();
        let (id, now) = (peer.id(), peer.now);
        peer.host.close(now, id);
        let mut heard: Vec<_> = peer.hear().iter().map(|heard| heard.flags).collect();
        heard.sort_unstable_by_key(|flags| flags.0);
        let is_over = port == 5000 + LIMIT as u16;
        let both = [F | A, R | A];
        assert_eq!(heard, both[..if is_over { 2 } else { 1 }], "{port}");
    }
    assert_eq!(peer.host.counters().orphans_over_limit, 1);
}

#[test]
fn its_fin_leads_to_time_wait() {
    let mut peer = resting();
    assert_eq!(peer.exchange(stamped(Say::new(F | A, 11, 22))), [". 22:22(0) ack 12"]);
    assert_eq!(states(&peer), [State::Listen, State::TimeWait]);
    assert_eq!((peer.host.connections(), peer.host.counters().time_wait_entered), (0, 1));
    peer.wait(Duration::from_secs(61));
    assert_eq!(peer.host.counters().fin_wait_2_expired, 0, "its FIN came");
}

#[test]
fn it_is_given_up_as_if_it_were_whole_or_a_second_early() {
    let mut peer = resting();
    assert_eq!(peer.wait(Duration::from_secs(59) - QUIET), []);
    peer.wait(Duration::from_secs(1));
    assert_eq!((states(&peer), peer.host.deadline()), (std::vec![State::Listen], None));
    let counters = peer.host.counters();
    assert_eq!((counters.fin_wait_2_expired, counters.time_wait_expired), (1, 0));
    let mut peer = orphan(full());
    peer.wait(Duration::from_millis(58_900));
    assert_eq!(states(&peer), [State::Listen, State::FinWait2]);
}

#[test]
fn a_woken_orphan_is_a_record_again_and_keeps_its_deadline() {
    let mut peer = resting();
    for times in 1..12 {
        peer.say(stamped(Say::new(A, 10, 22)));
        assert_eq!((peer.host.slots.len(), peer.host.fin_wait_2_len()), (1, 0));
        assert_eq!(states(&peer), [State::Listen, State::FinWait2], "it is listed once");
        assert_eq!(peer.hear().len(), 1);
        assert_eq!((peer.host.slots.len(), peer.host.fin_wait_2_len()), (0, 1), "{times}");
        peer.wait(Duration::from_secs(5));
    }
    peer.wait(Duration::from_secs(2));
    assert_eq!(states(&peer), [State::Listen], "no peer keeps it for ever");
    assert_eq!((peer.host.slots.len(), peer.host.deadline()), (0, None));
}

#[test]
fn its_tuple_is_taken() {
    let mut peer = resting();
    let (now, tuple) =
        (peer.now, peer.host.closed.fin_wait_2.records().iter().next().unwrap().tuple);
    assert_eq!(
        peer.host.connect(now, tuple.local(), tuple.remote()).unwrap_err(),
        ConnectError::AddressInUse
    );
}

/// Orphans reset, records evicted, and segments for records not heard.
fn over_limits(peer: &Peer) -> (u64, u64, u64) {
    let counters = peer.host.counters();
    (counters.orphans_over_limit, counters.fin_wait_2_evicted, counters.fin_wait_2_unheard)
}

/// Another connection, by port 4001, whose user leaves it.
fn leave_another(peer: &mut Peer) {
    peer.port = 4001;
    peer.isn += ISN_STEP;
    peer.say(Say::new(S, 0, 0).mss(1000));
    peer.hear_one();
    peer.say(Say::new(A, 1, 1));
    peer.accept();
    let (id, now) = (peer.id(), peer.now);
    peer.host.close(now, id);
}

#[test]
fn who_speaks_to_records_does_no_harm_to_those_who_close() {
    let mut config = full();
    config.limits.orphans = 1;
    let mut peer = orphan(config);
    peer.wait(QUIET);
    let (port, isn, host_isn) = (peer.port, peer.isn, peer.host_isn);
    // A blind segment wakes it, for this turn; another's close is none the less a close.
    peer.say(Say::new(A, 900_000_000, 1));
    assert_eq!((peer.host.slots.len(), peer.host.fin_wait_2_len()), (1, 0));
    peer.hear();
    assert_eq!((peer.host.slots.len(), peer.host.fin_wait_2_len()), (0, 1));
    leave_another(&mut peer);
    assert_eq!(peer.hear_text(), ["F 1:1(0) ack 1"]);
    peer.say(Say::new(A, 1, 2));
    assert_eq!(over_limits(&peer), (0, 0, 0));
    fetch_events(&mut peer);
    peer.wait(QUIET);
    assert_eq!((peer.host.slots.len(), peer.host.fin_wait_2_len()), (0, 2));
    let other = (peer.port, peer.isn, peer.host_isn);
    let first = (port, isn, host_isn);
    // No more are awake in a turn than may be; a peer that is not heard comes again.
    peer.say(Say::new(A, 900_000_000, 1));
    (peer.port, peer.isn, peer.host_isn) = first;
    peer.say(stamped(Say::new(F | A, 11, 22)));
    peer.hear();
    assert_eq!((peer.host.fin_wait_2_len(), over_limits(&peer)), (2, (0, 0, 1)));
    // And a peer that speaks to the one all the time does not keep the other from being heard.
    for _ in 0..40 {
        (peer.port, peer.isn, peer.host_isn) = other;
        peer.say(Say::new(A, 900_000_000, 1));
        peer.wait(Duration::from_millis(20));
    }
    (peer.port, peer.isn, peer.host_isn) = first;
    assert_eq!(peer.exchange(stamped(Say::new(F | A, 11, 22))), [". 22:22(0) ack 12"]);
    assert_eq!((peer.host.fin_wait_2_len(), peer.host.time_wait_len()), (1, 1));
}

/// What each kind of segment leaves of a record that it wakes, at the turn's end.
#[test]
fn an_orphan_that_was_woken_is_a_record_at_the_end_of_the_turn() {
    let says = [
        stamped(Say::new(A, 11, 22)),
        stamped(Say::new(A, 10, 22)),
        stamped(Say::new(A, 1, 22).data(b"ten bytes!")),
        stamped(Say::new(A, 11, 23)),
        Say::new(A, 11, 22),
        Say::new(R, 12, 0),
        Say::new(S, 500_000, 0).mss(1000),
        Say::new(S | A, 11, 22),
    ];
    for say in says {
        let mut peer = resting();
        peer.say(say.clone());
        peer.hear();
        let counts = (peer.host.slots.len(), peer.host.fin_wait_2_len());
        assert_eq!((counts, peer.host.closed.fin_wait_2.awake()), ((0, 1), 0), "{say:?}");
    }
    // What is out of order is more than a record holds.
    let mut peer = resting();
    peer.exchange(stamped(Say::new(F | A, 2011, 22)));
    assert_eq!((peer.host.slots.len(), peer.host.closed.fin_wait_2.awake()), (1, 1));
    peer.wait(Duration::from_secs(60));
    assert_eq!((peer.host.slots.len(), peer.host.closed.fin_wait_2.awake()), (0, 0));
}

#[test]
fn nobody_is_woken_when_there_are_as_many_connections_as_may_be() {
    let mut config = full();
    config.limits.connections = 1;
    let mut peer = orphan(config);
    peer.wait(QUIET);
    let (port, isn, host_isn) = (peer.port, peer.isn, peer.host_isn);
    leave_another(&mut peer);
    peer.hear();
    (peer.port, peer.isn, peer.host_isn) = (port, isn, host_isn);
    assert!(peer.exchange(stamped(Say::new(F | A, 11, 22))).is_empty());
    assert_eq!((peer.host.connections(), peer.host.fin_wait_2_len()), (1, 1));
    assert_eq!(over_limits(&peer), (0, 0, 1));
}

#[test]
fn its_fin_is_taken_even_if_its_window_is_not_known_any_more() {
    let mut peer = orphan(full());
    let (ours, theirs) = ("10.0.0.9".parse().unwrap(), "10.0.0.1".parse().unwrap());
    // As many others as windows can be told apart.
    for other in 1..=4096 {
        let tuple = Tuple::new((ours, 80), (theirs, other));
        let final_state = FinalState { window: other, ..RESIDUE };
        let (hash, now) = (peer.host.live.hasher.hash(&tuple), peer.now);
        peer.host.closed.fin_wait_2.keep(hash, &tuple, &final_state, false, now);
    }
    peer.wait(QUIET);
    assert_eq!(peer.host.slots.len(), 0);
    assert_eq!(peer.exchange(stamped(Say::new(F | A, 11, 22))), [". 22:22(0) ack 12"]);
}

#[test]
fn when_there_are_too_many_the_oldest_goes() {
    let mut config = full();
    config.limits.time_wait = 1;
    let mut peer = orphan(config);
    peer.wait(QUIET);
    leave_another(&mut peer);
    peer.hear();
    peer.say(Say::new(A, 1, 2));
    fetch_events(&mut peer);
    assert_eq!(over_limits(&peer), (0, 0, 0));
    peer.wait(QUIET);
    assert_eq!((peer.host.counters().rested, peer.host.fin_wait_2_len()), (2, 1));
    let remotes: Vec<_> = peer.host.sockets().filter_map(|it| it.remote()).collect();
    assert_eq!(remotes, ["10.0.0.1:4001".parse().unwrap()]);
    assert_eq!(over_limits(&peer), (0, 1, 0));
}

#[test]
fn where_no_records_may_be_kept_orphans_stay_whole() {
    let mut config = full();
    config.limits.time_wait = 0;
    let mut peer = orphan(config);
    assert_eq!(peer.wait(QUIET), []);
    assert_eq!((peer.host.counters().rested, over_limits(&peer)), (0, (0, 0, 0)));
    assert_eq!(states(&peer), [State::Listen, State::FinWait2]);
}

#[test]
fn one_that_asks_something_of_its_headers_stays_whole() {
    let whole = |change: fn(&mut SocketOptions)| orphan_of(change).host.counters().rested == 0;
    assert!(whole(|options| options.traffic_class = 0x28));
    assert!(whole(|options| options.path_mtu_discovery = false));
    assert!(!whole(|options| options.nodelay = true));
}

/// An orphan with these options, for a while.
fn orphan_of(change: fn(&mut SocketOptions)) -> Peer {
    let mut peer = Peer::established(full());
    let (id, now) = (peer.id(), peer.now);
    let mut options = peer.host.options(id).unwrap();
    change(&mut options);
    peer.host.set_options(now, id, options).unwrap();
    peer.host.close(now, id);
    peer.hear();
    peer.say(Say::new(A, 1, 2));
    fetch_events(&mut peer);
    assert_eq!(peer.wait(QUIET), []);
    peer
}

#[test]
fn an_orphan_with_keepalive_is_a_record_and_probes_nothing() {
    fn kept_alive(options: &mut SocketOptions, idle_ms: u64) {
        let idle = Duration::from_millis(idle_ms);
        options.keepalive = Some(Keepalive { idle, interval: idle, probes: 2 });
    }
    // Rarely, and more often than it takes to rest.
    let changes: [fn(&mut SocketOptions); 2] =
        [|options| kept_alive(options, 7_200_000), |options| kept_alive(options, 100)];
    for change in changes {
        let mut peer = orphan_of(change);
        assert_eq!((peer.host.counters().rested, peer.host.fin_wait_2_len()), (1, 1));
        assert_eq!(peer.wait(Duration::from_secs(50)), []);
        assert_eq!(states(&peer), [State::Listen, State::FinWait2]);
        peer.wait(Duration::from_secs(10));
        assert_eq!(states(&peer), [State::Listen]);
    }
}

#[test]
fn an_orphan_due_before_a_record_would_be_stays_whole() {
    let mut peer = orphan_of(|options| options.fin_wait_2_timeout = Duration::from_secs(10));
    assert_eq!(peer.host.counters().rested, 0);
    peer.wait(Duration::from_secs(8));
    assert_eq!(states(&peer), [State::Listen]);
}
