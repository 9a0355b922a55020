use super::*;
use crate::limits::eviction::tests::delivered;
use crate::testing::{Purse, clock};
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::sleep;

#[test]
fn a_connection_is_charged_while_in_and_a_waiting_one_yields() {
    let purse = Purse::default();
    let Purse { by_connections, room, .. } = purse.clone();
    let admissions =
        AdmissionControl::new(&ServerConfig::default(), Memory::new(purse), Clients::default());
    let now = Instant::now();
    let first = admissions.admit(ip("192.0.2.1"), now).unwrap();
    assert_eq!(by_connections.load(Ordering::Relaxed), RESTING_BYTES);
    drop(first);
    assert_eq!(by_connections.load(Ordering::Relaxed), 0);
    // With little room one connection goes, if one waits. With no room a new one comes in only
    // then.
    room.set(Some(ConnectionRoom::Little));
    assert!(admissions.admit(ip("192.0.2.1"), now).is_ok());
    room.set(Some(ConnectionRoom::None));
    assert_eq!(admissions.admit(ip("192.0.2.1"), now).err(), Some(Refusal::Memory));
    let phase = Phase::new(now);
    phase.set_awake(true);
    phase.on_request(now, true);
    let entry = admissions.enqueue((phase, delivered()), ip("192.0.2.1"), now);
    let now = now + Duration::from_secs(1);
    assert!(admissions.admit(ip("192.0.2.1"), now).is_ok());
    assert!(entry.is_wanted(&Context::from_waker(Waker::noop())));
    assert_eq!(admissions.admit(ip("192.0.2.1"), now).err(), Some(Refusal::Memory));
    assert_eq!(admissions.tally().refused_for_memory, 2);
}

#[test]
fn those_that_may_rest_do_so_before_anybody_goes() {
    let purse = Purse::default();
    purse.room.set(Some(ConnectionRoom::None));
    let admissions =
        AdmissionControl::new(&ServerConfig::default(), Memory::new(purse), Clients::default());
    let now = Instant::now();
    let phases = [(); 2].map(|()| Phase::new(now));
    let entries =
        phases.map(|phase| admissions.enqueue((phase, delivered()), ip("192.0.2.1"), now));
    entries.iter().for_each(|entry| entry.set_awake(true));
    let resting = admissions.enqueue((Phase::new(now), delivered()), ip("192.0.2.1"), now);
    let now = now + Duration::from_secs(1);
    // One connection frees too little by resting for a new connection; two free enough.
    assert!(admissions.admit(ip("192.0.2.1"), now).is_ok());
    assert_eq!((entries.each_ref().map(is_wanted), is_wanted(&resting)), ([true, true], false));
    entries.iter().for_each(|entry| entry.set_awake(false));
    assert_eq!(admissions.admit(ip("192.0.2.1"), now).err(), Some(Refusal::Memory));
}

#[test]
fn of_those_that_rest_as_many_go_as_give_enough() {
    let purse = Purse::default();
    purse.room.set(Some(ConnectionRoom::None));
    let admissions =
        AdmissionControl::new(&ServerConfig::default(), Memory::new(purse), Clients::default());
    let begin = Instant::now();
    let now = begin + Duration::from_secs(1);
    let enough = CONNECTION_BYTES.div_ceil(RESTING_BYTES);
    for (count, is_enough) in [(enough - 1, false), (enough, true), (enough + 5, true)] {
        let rest = |_| admissions.enqueue((Phase::new(begin), delivered()), ip("192.0.2.1"), begin);
        let entries: Vec<EvictionEntry> = (0..count).map(rest).collect();
        assert_eq!(admissions.admit(ip("192.0.2.1"), now).is_ok(), is_enough, "{count}");
        let wanted = entries.iter().filter(|entry| is_wanted(entry));
        assert_eq!(wanted.count(), count.min(enough));
    }
}

fn admissions() -> AdmissionControl {
    let limits = ServerConfig {
        max_connections: 4,
        max_client_connections: 2,
        max_responses: 2,
        ..ServerConfig::default()
    };
    AdmissionControl::new(&limits, Memory::boundless(), Clients::default())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn as_many_as_the_limit_come_in_and_one_more_when_one_has_left() {
    let admissions = admissions();
    let [a, b, c] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(ip);
    let mut inside: Vec<Admission> = [a, b, a, b]
        .into_iter()
        .map(|peer| admissions.admit(peer, Instant::now()).unwrap())
        .collect();
    assert_eq!(admissions.admit(c, Instant::now()).err(), Some(Refusal::Connections));
    inside.pop();
    assert_eq!(admissions.admit(a, Instant::now()).err(), Some(Refusal::Client));
    inside.push(admissions.admit(c, Instant::now()).unwrap());
    let refused =
        (admissions.tally().refused_connections, admissions.tally().refused_client_connections);
    assert_eq!(refused, (1, 1));
    inside.clear();
    assert!(admissions.inside.clients.is_empty(), "those who left leave nothing behind");
}

/// A connection that is in, and waits for a request.
fn wait_inside(
    admissions: &AdmissionControl,
    peer: &str,
    now: Instant,
) -> (Admission, EvictionEntry) {
    let admission = admissions.admit(ip(peer), now).unwrap();
    (admission, admissions.enqueue((Phase::new(now), delivered()), ip(peer), now))
}

fn is_wanted(entry: &EvictionEntry) -> bool {
    entry.is_wanted(&Context::from_waker(Waker::noop()))
}

#[test]
fn at_the_limit_the_one_that_waits_longest_gives_up_its_place() {
    let (admissions, begin) = (admissions(), Instant::now());
    let second = Duration::from_secs(1);
    let peers = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];
    let at = |number: u32| begin + second * number;
    let mut inside: Vec<_> =
        (0..).zip(peers).map(|(n, peer)| wait_inside(&admissions, peer, at(n))).collect();
    let now = at(3) + second / 4;
    let fifth = wait_inside(&admissions, "192.0.2.5", now);
    let wanted: Vec<bool> = inside.iter().map(|(_, entry)| is_wanted(entry)).collect();
    assert_eq!(wanted, [true, false, false, false]);
    // It is on its way out, and its place is given already.
    assert_eq!(admissions.inside.connections.get(), 5);
    inside.remove(0);
    assert_eq!(
        (admissions.inside.connections.get(), admissions.inside.waiting.leaving(None)),
        (4, 0)
    );
    // Those that are being answered keep theirs.
    inside.truncate(1);
    let busy = [(); 2].map(|()| {
        let (admission, _) = wait_inside(&admissions, "192.0.2.6", now);
        let phase = Phase::new(now);
        phase.on_request(now, false);
        (admission, admissions.enqueue((phase, delivered()), ip("192.0.2.6"), now))
    });
    let sixth = wait_inside(&admissions, "192.0.2.7", now);
    assert!(is_wanted(&inside[0].1) && !is_wanted(&sixth.1) && !is_wanted(&fifth.1));
    drop((inside, fifth, sixth));
    let phases = [(); 2].map(|()| Phase::new(now));
    let full = phases.each_ref().map(|phase| {
        phase.on_request(now, false);
        let admission = admissions.admit(ip("192.0.2.7"), now).unwrap();
        (admission, admissions.enqueue((phase.clone(), delivered()), ip("192.0.2.7"), now))
    });
    assert_eq!(admissions.admit(ip("192.0.2.8"), now).err(), Some(Refusal::Connections));
    // One that has its answer makes room at once.
    phases[1].on_response(now);
    assert!(admissions.admit(ip("192.0.2.8"), now).is_ok() && is_wanted(&full[1].1));
    drop((busy, full));
}

#[test]
fn a_client_at_its_limit_makes_room_among_its_own() {
    let (admissions, begin) = (admissions(), Instant::now());
    let other = wait_inside(&admissions, "192.0.2.1", begin);
    let own = [(); 2].map(|()| wait_inside(&admissions, "192.0.2.2", begin));
    let now = begin + Duration::from_secs(1);
    let third = wait_inside(&admissions, "192.0.2.2", now);
    assert_eq!((is_wanted(&own[0].1), is_wanted(&own[1].1)), (true, false));
    assert!(!is_wanted(&other.1) && !is_wanted(&third.1), "another client's stays");
    // Its request comes before it can go: then it stays, and another goes for the next.
    own[0].1.set_awake(true);
    assert!(is_wanted(&own[0].1), "only rest would not do");
    let _fourth = wait_inside(&admissions, "192.0.2.2", now);
    assert!(is_wanted(&own[1].1));
    assert_eq!(admissions.inside.waiting.leaving(Some(ip("192.0.2.2"))), 2);
    drop(own);
    assert_eq!(admissions.inside.waiting.leaving(Some(ip("192.0.2.2"))), 0);
    assert_eq!(admissions.tally().refused_client_connections, 0);
}

#[test]
fn a_client_is_an_ipv4_address_or_a_64_bit_network_not_loopback() {
    let admissions = admissions();
    let inside = ["2001:db8::1", "2001:db8::ffff:2"]
        .map(|peer| admissions.admit(ip(peer), Instant::now()).unwrap());
    assert_eq!(admissions.admit(ip("2001:db8::3"), Instant::now()).err(), Some(Refusal::Client));
    assert!(admissions.admit(ip("2001:db8:0:1::3"), Instant::now()).is_ok());
    drop(inside);
    let mapped = ["::ffff:192.0.2.1", "192.0.2.1"]
        .map(|peer| admissions.admit(ip(peer), Instant::now()).unwrap());
    assert_eq!(admissions.admit(ip("192.0.2.1"), Instant::now()).err(), Some(Refusal::Client));
    drop(mapped);
    let local = ["127.0.0.1", "127.0.0.1", "::1", "127.0.0.1"]
        .map(|p| admissions.admit(ip(p), Instant::now()));
    assert!(local.iter().all(Result::is_ok));
}

#[test]
fn new_limits_hold_for_those_who_come_later() {
    let (admissions, now) = (admissions(), Instant::now());
    let inside: Vec<Admission> =
        (0..4).map(|n| admissions.admit([192, 0, 2, n].into(), now).unwrap()).collect();
    let limits = ServerConfig { max_connections: 2, max_responses: 0, ..ServerConfig::default() };
    admissions.set_limits(&limits, now);
    assert_eq!(admissions.connections(), (4, 2), "those that are being answered stay");
    assert_eq!(admissions.admit(ip("192.0.2.9"), now).err(), Some(Refusal::Connections));
    assert!(admissions.begin_response().is_none());
    drop(inside);
    assert!(admissions.admit(ip("192.0.2.9"), now).is_ok());
    admissions.set_limits(&ServerConfig { max_client_connections: 0, ..limits }, now);
    assert_eq!(admissions.admit(ip("192.0.2.9"), now).err(), Some(Refusal::Client));
}

#[test]
fn under_a_lower_limit_those_that_wait_close() {
    let limits = ServerConfig { max_connections: 200, ..ServerConfig::default() };
    let admissions = AdmissionControl::new(&limits, Memory::boundless(), Clients::default());
    let begin = Instant::now();
    let waiting: Vec<_> = (0..200).map(|_| wait_inside(&admissions, "192.0.2.1", begin)).collect();
    let now = begin + Duration::from_secs(1);
    admissions.set_limits(&ServerConfig { max_connections: 20, ..limits }, now);
    assert_eq!(waiting.iter().filter(|(_, entry)| is_wanted(entry)).count(), 180);
}

#[test]
fn as_many_responses_as_the_limit_are_in_flight() {
    let admissions = admissions();
    let first = admissions.begin_response();
    let _second = admissions.begin_response().unwrap();
    assert!(admissions.begin_response().is_none());
    drop(first);
    assert!(admissions.begin_response().is_some());
    assert_eq!(admissions.tally().refused_responses, 1);
}

#[test]
fn the_limit_of_a_client_holds_for_all_shards_together() {
    let limits = ServerConfig { max_client_connections: 3, ..ServerConfig::default() };
    let clients = Clients::default();
    let both =
        [(); 2].map(|()| AdmissionControl::new(&limits, Memory::boundless(), clients.clone()));
    let (peer, now) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
    let mut inside: Vec<Admission> =
        [0, 1, 0].map(|shard| both[shard].admit(peer, now).unwrap()).into();
    for admissions in &both {
        assert_eq!(admissions.admit(peer, now).err(), Some(Refusal::Client));
    }
    assert!(both[1].admit([192, 0, 2, 2].into(), now).is_ok(), "another client");
    inside.pop();
    inside.push(both[1].admit(peer, now).unwrap());
    inside.clear();
    assert!(clients.is_empty());
}

/// Two servers that share clients, and give places up for each other.
fn neighbours(max_client_connections: usize) -> (Clients, [AdmissionControl; 2], LocalSet) {
    let limits = ServerConfig { max_client_connections, ..ServerConfig::default() };
    let (clients, tasks) = (Clients::default(), LocalSet::new());
    let both =
        [(); 2].map(|()| AdmissionControl::new(&limits, Memory::boundless(), clients.clone()));
    for admissions in both.clone() {
        tasks.spawn_local(async move { admissions.give_places(clock().timer).await });
    }
    (clients, both, tasks)
}

async fn enters(admissions: &AdmissionControl, peer: &str) -> Result<Admission, Refusal> {
    match admissions.enter(ip(peer), CONNECTION_BYTES, &clock().timer) {
        Entry::Inside(admission) => Ok(admission),
        Entry::Asks(place) => place.await,
        Entry::Refused(refusal) => Err(refusal),
    }
}

/// A connection that waits until its place is wanted.
async fn leave_when_wanted((admission, entry): (Admission, EvictionEntry)) {
    poll_fn(|cx| if entry.is_wanted(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    drop(admission);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_waits_makes_room_on_another_shard() {
    let (clients, [here, there], tasks) = neighbours(3);
    let begin = tokio::time::Instant::now();
    tasks
        .run_until(async {
            yield_now().await;
            for waiting in [(); 3].map(|()| wait_inside(&there, "192.0.2.1", clock().timer.now())) {
                spawn_local(leave_when_wanted(waiting));
            }
            sleep(Duration::from_millis(500)).await;
            let one = enters(&here, "192.0.2.1").await.unwrap();
            let two = enters(&here, "192.0.2.1").await.unwrap();
            assert_eq!(clients.held(ip("192.0.2.1")), 3, "one closed for each");
            // Its own that waits does as well, and needs nobody.
            let three = enters(&there, "192.0.2.1").await.unwrap();
            // All three are being answered: it is refused at once, and not after the patience.
            let refused = enters(&here, "192.0.2.1").await;
            assert_eq!(refused.err(), Some(Refusal::Client));
            assert!(begin.elapsed() < ASKING_PATIENCE);
            let tallies =
                [&here, &there].map(|admissions| admissions.tally().refused_client_connections);
            assert_eq!((tallies, here.inside.asking.get()), ([1, 0], 0));
            drop([one, two, three]);
        })
        .await;
    assert!(clients.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_place_waits_a_second_and_few_do() {
    let (_clients, [here, there], tasks) = neighbours(1);
    tasks
        .run_until(async {
            yield_now().await;
            // It gives its place up, and does not go.
            let _stuck = wait_inside(&there, "192.0.2.1", clock().timer.now());
            sleep(Duration::from_millis(500)).await;
            let begin = tokio::time::Instant::now();
            let ask = || here.enter(ip("192.0.2.1"), CONNECTION_BYTES, &clock().timer);
            let asked: Vec<Entry> = (0..ASKING_MAX).map(|_| ask()).collect();
            assert!(asked.iter().all(|entry| matches!(entry, Entry::Asks(_))));
            assert!(matches!(ask(), Entry::Refused(Refusal::Client)), "no more wait");
            let Some(Entry::Asks(first)) = asked.into_iter().next() else { panic!("it asks") };
            assert_eq!(first.await.err(), Some(Refusal::Client));
            let waited = begin.elapsed();
            assert!((ASKING_PATIENCE..ASKING_PATIENCE * 2).contains(&waited), "{waited:?}");
            // The place is promised: nobody else has it there.
            let taken = there.enter(ip("192.0.2.1"), CONNECTION_BYTES, &clock().timer);
            assert!(!matches!(taken, Entry::Inside(_)), "{taken:?}");
        })
        .await;
}
