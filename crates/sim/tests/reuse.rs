//! Clients with few ports: each connection begins where the one before has left a record. Records
//! end early, in any order, while stray segments of the old connection are still on their way.

use std::ops::Range;
use std::time::Duration;

use lightwait_core::Instant;
use lightwait_core::config::{TcpConfig, TimeWaitState};
use lightwait_core::rng::Rng;
use lightwait_netem::{LinkConfig, Loss};
use lightwait_sim::scenario::{Conversation, Ending, Scenario, Summary};
use lightwait_sim::{Crew, swarm};

const SEEDS: Range<u64> = if cfg!(debug_assertions) { 0..4 } else { 0..100 };
const TIME_WAIT: Duration = Duration::from_secs(20);
const FIRST_PORT: u16 = 5000;

/// A bad link, on which segments of later connections overtake earlier ones.
fn link(rng: &mut Rng) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(20),
        loss: Loss::Uniform(0.08),
        reorder: 0.25,
        reorder_delay: Duration::from_millis(100 + u64::from(rng.below(601))),
        duplicate: 0.05,
        seed: rng.next_u64(),
        ..LinkConfig::default()
    }
}

/// A world in which A has that many `ports`. It begins one of the conversations every `pace`;
/// `ending` gives the ending of each by its number.
fn world(
    seed: u64,
    ports: u16,
    (count, pace): (u32, Duration),
    ending: impl Fn(&mut Rng, u32) -> Ending,
) -> Scenario {
    let mut rng = Rng::from_seed(seed);
    let rng = &mut rng;
    let tcp = TcpConfig::default().with(|tcp| tcp.time_wait.length = TIME_WAIT);
    let conversation = |rng: &mut Rng, number: u32| Conversation {
        start: pace * number,
        up_bytes: rng.below(5_000).into(),
        down_bytes: rng.below(20_000).into(),
        write_bytes: 4096,
        read_bytes: 4096,
        pause: None,
        ending: ending(rng, number),
    };
    Scenario {
        crews: [Crew::ONE; 2],
        pages: [None; 2],
        seed,
        begin: Instant::from_nanos(rng.next_u64() >> 12),
        ipv6: seed % 2 == 1,
        mtu: 1500,
        client_ports: (FIRST_PORT, FIRST_PORT + ports - 1),
        links: [link(rng), link(rng)],
        tcp: [tcp.clone(), tcp],
        conversations: (0..count).map(|number| conversation(rng, number)).collect(),
        exchanges: Vec::new(),
        narrows: [None; 2],
    }
}

/// Runs the world of every seed, and has `check` judge its results.
fn run_all(
    world: impl Fn(u64) -> Scenario + Sync,
    check: impl Fn(&Scenario, &Summary) -> Result<(), String> + Sync,
) {
    let failures = swarm::run(SEEDS, |seed| {
        let scenario = world(seed);
        let summary = scenario.run(false)?;
        check(&scenario, &summary)
    });
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Every connection delivers its own bytes and no other's, and the next one begins long before the
/// end of TIME-WAIT.
fn few_ports_serve_many(stamps: [bool; 2]) {
    const PORTS: u16 = 5;
    const COUNT: u32 = 250;
    const PACE: Duration = Duration::from_millis(600);
    let stamped = stamps == [true; 2];
    // Without timestamps a client that closes first has to wait.
    let every = if stamped { 3 } else { 25 };
    let ending = |_: &mut Rng, number: u32| match number % every {
        0 => Ending::ClientFirst,
        1 => Ending::EachShutsDown,
        _ => Ending::ServerFirst,
    };
    let world = |seed| {
        let mut scenario = world(seed, PORTS, (COUNT, PACE), ending);
        for (tcp, timestamps) in scenario.tcp.iter_mut().zip(stamps) {
            tcp.timestamps = timestamps;
        }
        scenario
    };
    let least = if stamped { [COUNT / 4, COUNT / 4] } else { [0, COUNT / 2] };
    let longest = TIME_WAIT * (COUNT / u32::from(PORTS)) / 2;
    run_all(world, |scenario, &Summary { conversed, reuses, .. }| {
        let took = conversed.since(scenario.begin);
        let is_enough = reuses.into_iter().zip(least).all(|(reuses, least)| reuses >= least.into());
        if is_enough && took <= longest { Ok(()) } else { Err(format!("{took:?}, {reuses:?}")) }
    });
}

#[test]
fn few_ports_serve_many_connections_with_timestamps() {
    few_ports_serve_many([true, true]);
}

#[test]
fn few_ports_serve_many_connections_of_an_unstamped_client() {
    few_ports_serve_many([false, true]);
}

#[test]
fn few_ports_serve_many_connections_of_an_unstamped_server() {
    few_ports_serve_many([true, false]);
}

#[test]
fn few_ports_serve_many_connections_without_timestamps() {
    few_ports_serve_many([false, false]);
}

/// The server's orphans rest in FIN-WAIT-2; their peers close in random order, some of them too
/// late.
#[test]
fn orphans_go_in_whatever_order_their_peers_leave() {
    const PORTS: u16 = 60;
    const COUNT: u32 = 150;
    const PACE: Duration = Duration::from_secs(1);
    let late =
        |rng: &mut Rng, _| Ending::ClientLate(Duration::from_millis(rng.below(90_000).into()));
    let world = |seed| {
        let mut scenario = world(seed, PORTS, (COUNT, PACE), late);
        if seed % 4 < 2 {
            // Then only the orphans are records.
            scenario.tcp[1].time_wait.state = TimeWaitState::Full;
        }
        scenario
    };
    run_all(world, |_, &Summary { rests, given_up, time_waits: [_, closed], .. }| {
        let least = u64::from(COUNT / 5);
        if rests < u64::from(COUNT / 2) || given_up < least || closed < least {
            return Err(format!("{rests} rest, {given_up} given up, {closed} closed"));
        }
        Ok(())
    });
}
