//! TIME-WAIT, searched to the end within bounds: `cargo test --release -p lightwait-sim time_wait`
//! prints how many states there were.

use std::time::{Duration, Instant as Clock};

use lightwait_core::config::{TimeWaitState, Wish};
use lightwait_core::tcp::time_wait::negotiate::Code;
use lightwait_core::wire::tcp::Flags;
use lightwait_core::{Capabilities, Config, Medium};
use lightwait_sim::search::packet::Packet;
use lightwait_sim::search::{self, Bounds, Found, MSL, Order, Plan, Reopen};

const ORDERS: [Order; 3] = [Order::ServerFirst, Order::ClientFirst, Order::AtOnce];

/// What the network may do: lose and delay, or repeat.
const LATE: Bounds = Bounds { timers: 2, delays: 1, repeats: 0, strips: 0, reopens: None };
const TWICE: Bounds = Bounds { timers: 0, delays: 0, repeats: 1, strips: 0, reopens: None };

/// And to one connection and another behind it, between the same ends: so soon that its numbers
/// are those of the first one's text, which TIME-WAIT does not let begin, or later.
const SOON: Bounds = again(1, true);
const LATER: Bounds = again(10, true);
/// The same while any packet of the first one is under way.
const BEHIND_ANY: Bounds = again(10, false);

const fn again(millis: u64, with_text: bool) -> Bounds {
    let after = Duration::from_millis(millis);
    Bounds { reopens: Some(Reopen { after, with_text }), ..TWICE }
}

fn config(side: usize) -> Config {
    let address = ["10.0.0.1/24", "10.0.0.2/24"][side].parse().unwrap();
    let mut config = Config::new(Capabilities::plain(Medium::Ip, 1500), address, [7; 32]);
    config.secret[0] = side as u8;
    config.tcp.time_wait.length = MSL * 2;
    // So that only TIME-WAIT tells old segments from new ones.
    config.tcp.timestamps = false;
    // Small, since there are many of them.
    config.limits.syn_cache = 4;
    config.limits.pages = 64;
    config.tcp.ack.quick = 200;
    config
}

fn plan(order: Order, bounds: Bounds, change: impl Fn(&mut Config)) -> Plan {
    let configs = [0, 1].map(|side| {
        let mut config = config(side);
        change(&mut config);
        config
    });
    Plan { configs, order, bounds, only_text: false, mutant: None }
}

/// Searches to the end, and prints what that took.
fn search(name: &str, plan: &Plan) -> Found {
    let began = Clock::now();
    let found = search::run(plan);
    println!(
        "{name}, {:?}, {:?}: {} states, {} of a second connection, {} steps of the engine, {:.1} s",
        plan.order,
        plan.bounds,
        found.states,
        found.again,
        found.steps,
        began.elapsed().as_secs_f64()
    );
    found
}

fn assert_sound(name: &str, plan: &Plan) {
    let found = search(name, plan);
    if let Some(fault) = &found.fault {
        panic!("{name}, {:?}: {fault}", plan.order);
    }
    assert_eq!(found.again > 0, plan.bounds.reopens.is_some(), "{name}, {:?}", plan.order);
}

#[test]
fn time_wait_of_plain_tcp_keeps_every_rule() {
    for order in ORDERS {
        // A client that holds TIME-WAIT opens no second connection.
        let twice = if order == Order::ServerFirst { LATER } else { TWICE };
        for bounds in [LATE, twice] {
            assert_sound("plain", &plan(order, bounds, |_| {}));
        }
    }
}

#[test]
fn time_wait_that_is_swapped_keeps_every_rule() {
    for order in ORDERS {
        for bounds in [LATE, TWICE] {
            let swap = |config: &mut Config| config.tcp.time_wait.close_swap = true;
            assert_sound("swap", &plan(order, bounds, swap));
        }
    }
}

#[test]
fn time_wait_that_is_negotiated_keeps_every_rule() {
    let late = Bounds { timers: 1, strips: 1, ..LATE };
    for wish in [Wish::Client, Wish::Server] {
        for order in ORDERS {
            // With an answer there are so many orders that either is enough for a minute.
            let twice = Bounds { strips: u8::from(order != Order::ServerFirst), ..TWICE };
            for bounds in [late, twice] {
                let name = format!("negotiated, {wish:?}");
                assert_sound(&name, &plan(order, bounds, |c| c.tcp.time_wait.negotiate = wish));
            }
        }
    }
    // The server holds whoever closes first: the client opens another behind it.
    for order in [Order::ClientFirst, Order::AtOnce] {
        let server_holds = |config: &mut Config| config.tcp.time_wait.negotiate = Wish::Server;
        assert_sound("negotiated, Server", &plan(order, BEHIND_ANY, server_holds));
    }
}

#[test]
fn time_wait_that_is_skipped_lets_old_text_into_a_new_connection() {
    let skip = |config: &mut Config| config.tcp.time_wait.state = TimeWaitState::Skip;
    let mut plan = plan(Order::ClientFirst, SOON, skip);
    plan.only_text = true;
    let fault = search("skip", &plan).fault.expect("Faber, Touch & Yue 1999, Figure 1");
    println!("{fault}");
    assert!(fault.starts_with("text of an old connection is accepted by a new one"), "{fault}");
}

#[test]
fn time_wait_left_without_proof_is_found_by_the_search() {
    let strips = Bounds { timers: 1, strips: 1, ..LATE };
    for (wish, order, mutant) in [
        (Wish::Client, Order::ServerFirst, believes_any_ack as search::Mutant),
        (Wish::Server, Order::ClientFirst, believes_any_syn_ack as search::Mutant),
    ] {
        let mut plan = plan(order, strips, |config| config.tcp.time_wait.negotiate = wish);
        plan.mutant = Some(mutant);
        let fault = search("without proof", &plan).fault.expect("nobody holds");
        println!("{fault}");
        assert!(fault.contains("nobody holds") || fault.contains("agreed on"), "{fault}");
    }
}

#[test]
fn time_wait_swapped_too_early_is_found_by_the_search() {
    let mut plan = plan(Order::ServerFirst, LATE, |config| config.tcp.time_wait.close_swap = true);
    plan.mutant = Some(swaps_with_its_fin);
    let fault = search("swap too early", &plan).fault.expect("nobody holds");
    println!("{fault}");
    assert!(fault.contains("nobody holds"), "{fault}");
}

#[test]
fn time_wait_that_is_over_too_early_is_found_by_the_search() {
    let plan = plan(Order::ServerFirst, LATE, |config| config.tcp.time_wait.length = MSL);
    let fault = search("too short", &plan).fault.expect("nobody holds for 2*MSL");
    println!("{fault}");
    assert!(fault.contains("nobody holds"), "{fault}");
}

#[test]
fn time_wait_behind_which_an_end_is_told_of_a_reset_is_found_by_the_search() {
    let mut plan = plan(Order::ServerFirst, LATE, |_| {});
    plan.mutant = Some(resets_behind_its_fin);
    let fault = search("reset", &plan).fault.expect("an error");
    println!("{fault}");
    assert!(fault.contains("told of an error"), "{fault}");
}

const CODE: Code = Code { kind: 253, exid: 0x5457 };

/// To a server each segment of the client's names the client: as if it needed no proof.
fn believes_any_ack(side: usize, packet: Packet) -> Vec<Packet> {
    let is_syn = packet.flags().contains(Flags::SYN);
    if side == 1 || is_syn || packet.flags().contains(Flags::RST) {
        return vec![packet];
    }
    let client = packet.ends().0;
    vec![packet.with_option(CODE.option(client))]
}

/// To a client each SYN, ACK names the server: as if it needed no proof.
fn believes_any_syn_ack(side: usize, packet: Packet) -> Vec<Packet> {
    if side == 0 || !packet.flags().contains(Flags::SYN) {
        return vec![packet];
    }
    let server = packet.ends().0;
    vec![packet.with_option(CODE.option(server))]
}

/// A client that does not wait for the ACK of its FIN.
fn swaps_with_its_fin(side: usize, packet: Packet) -> Vec<Packet> {
    if side == 0 { with_a_reset(packet) } else { vec![packet] }
}

/// A server that does not keep its connection behind its FIN.
fn resets_behind_its_fin(side: usize, packet: Packet) -> Vec<Packet> {
    if side == 1 { with_a_reset(packet) } else { vec![packet] }
}

/// A FIN, and an RST behind it.
fn with_a_reset(packet: Packet) -> Vec<Packet> {
    if !packet.flags().contains(Flags::FIN) {
        return vec![packet];
    }
    let reset = packet.reset_behind();
    vec![packet, reset]
}
