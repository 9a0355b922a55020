//! TIME-WAIT, searched to the end within bounds: `cargo test --release -p lightwait-sim time_wait`
//! prints how many states there were.

use std::time::{Duration, Instant as Clock};

use lightwait_core::config::{TimeWaitState, Wish};
use lightwait_core::tcp::time_wait::negotiate::Code;
use lightwait_core::wire::tcp::Flags;
use lightwait_core::{Capabilities, Config, Medium};
use lightwait_sim::search::packet::Packet;
use lightwait_sim::search::{self, Bounds, Found, MSL, Order, Plan, Reopen, Rule, View};

const ORDERS: [Order; 4] =
    [Order::ServerFirst, Order::ClientFirst, Order::AtOnce, Order::Unanswered];

/// What the network may do: lose what is under way, but for one packet, or repeat one.
const LOST: Bounds = Bounds { timers: 2, delays: 0, repeats: 0, strips: 0, reopens: None };
const LOST_ONCE: Bounds = Bounds { timers: 1, ..LOST };
/// No more than that.
const REORDERED: Bounds = Bounds { timers: 0, ..LOST };
const LATE: Bounds = Bounds { timers: 1, delays: 1, ..LOST };
const STRIPPED: Bounds = Bounds { timers: 1, strips: 1, ..LOST };
const TWICE: Bounds = Bounds { timers: 0, repeats: 1, ..LOST };

/// And to one connection and another behind it, between the same ends: so soon that its numbers
/// are those of the first one's text, which TIME-WAIT does not let begin, or later.
const SOON: Bounds = again(1, true);
const LATER: Bounds = again(10, true);
/// The old packet is late, and its copy was sent at a time-out.
const LATE_AND_LATER: Bounds = Bounds { reopens: LATER.reopens, ..LATE };
/// The next connection begins while any packet of the first one is under way.
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
    Plan { configs, order, bounds, only: None, mutant: None }
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

/// No rule is broken, and the second connection begins if there is to be one.
fn assert_sound(name: &str, plan: &Plan) {
    let reopens = plan.bounds.reopens.is_some();
    assert_eq!(assert_faultless(name, plan) > 0, reopens, "{name}, {:?}", plan.order);
}

/// No rule is broken, and TIME-WAIT does not let the second connection begin.
fn assert_refused(name: &str, plan: &Plan) {
    assert_eq!(assert_faultless(name, plan), 0, "{name}, {:?}", plan.order);
}

/// States in which the second connection has been established.
fn assert_faultless(name: &str, plan: &Plan) -> usize {
    let found = search(name, plan);
    if let Some(fault) = &found.fault {
        panic!("{name}, {:?}: {fault}", plan.order);
    }
    found.again
}

/// What is searched of each mechanism. That one packet is late makes too many states where there is
/// an answer.
fn each() -> impl Iterator<Item = (Order, Bounds)> {
    let all = ORDERS.into_iter().flat_map(|order| [(order, LOST), (order, TWICE)]);
    all.chain([(Order::Unanswered, LATE)])
}

#[test]
#[cfg_attr(debug_assertions, ignore = "millions of states: with --release")]
fn time_wait_of_plain_tcp_keeps_every_rule() {
    for (order, bounds) in each() {
        assert_sound("plain", &plan(order, bounds, |_| {}));
    }
}

#[test]
fn time_wait_of_plain_tcp_keeps_connections_apart() {
    // Where the server holds, the client opens another behind it.
    assert_sound("plain", &plan(Order::ServerFirst, LATER, |_| {}));
    assert_refused("plain", &plan(Order::ServerFirst, SOON, |_| {}));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "millions of states: with --release")]
fn time_wait_that_is_swapped_keeps_every_rule() {
    for (order, bounds) in each() {
        let swap = |config: &mut Config| config.tcp.time_wait.close_swap = true;
        assert_sound("swap", &plan(order, bounds, swap));
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "millions of states: with --release")]
fn time_wait_that_is_negotiated_keeps_every_rule() {
    for wish in [Wish::Client, Wish::Server] {
        let stripped = Bounds { strips: 1, ..REORDERED };
        let all = ORDERS
            .into_iter()
            .flat_map(|order| [LOST_ONCE, stripped, TWICE].map(move |bounds| (order, bounds)));
        for (order, bounds) in all.chain([STRIPPED, LATE].map(|it| (Order::Unanswered, it))) {
            let name = format!("negotiated, {wish:?}");
            assert_sound(&name, &plan(order, bounds, |c| c.tcp.time_wait.negotiate = wish));
        }
    }
}

#[test]
fn time_wait_that_the_server_holds_keeps_connections_apart() {
    let server_holds = |config: &mut Config| config.tcp.time_wait.negotiate = Wish::Server;
    // Elsewhere the answer comes behind the client's FIN, and so the client holds as well.
    for (order, later) in [(Order::ServerFirst, LATER), (Order::Unanswered, BEHIND_ANY)] {
        assert_sound("negotiated, Server", &plan(order, later, server_holds));
        assert_refused("negotiated, Server", &plan(order, SOON, server_holds));
    }
    assert_sound("negotiated, Server", &plan(Order::Unanswered, LATE_AND_LATER, server_holds));
}

/// What the search must find: the fault, in which `what` is said.
fn assert_found(name: &str, plan: &Plan, what: &str) {
    let fault = search(name, plan).fault.expect(what);
    println!("{fault}");
    assert!(fault.contains(what), "{name}: {fault}");
}

#[test]
fn time_wait_that_is_skipped_lets_old_text_in() {
    let skip = |config: &mut Config| config.tcp.time_wait.state = TimeWaitState::Skip;
    // Faber, Touch & Yue 1999, Figure 1.
    let soon = Plan { only: Some(Rule::NoOldText), ..plan(Order::ClientFirst, SOON, skip) };
    assert_found("skip", &soon, "text of an old connection is accepted by a new one");
    // The clock of the ISN alone keeps them apart.
    let later = Plan { only: Some(Rule::NoOldText), ..plan(Order::ClientFirst, LATER, skip) };
    assert_sound("skip", &later);
}

#[test]
fn time_wait_left_without_proof_is_found_by_the_search() {
    for (wish, order, mutant) in [
        (Wish::Client, Order::ServerFirst, believes_any_ack as search::Mutant),
        (Wish::Server, Order::Unanswered, believes_any_syn_ack as search::Mutant),
    ] {
        let mut plan = plan(order, STRIPPED, |config| config.tcp.time_wait.negotiate = wish);
        plan.mutant = Some(mutant);
        assert_found("without proof", &plan, "nobody holds");
    }
}

#[test]
fn time_wait_by_a_proof_not_repeated_is_found() {
    let client = |config: &mut Config| config.tcp.time_wait.negotiate = Wish::Client;
    let mut plan = plan(Order::ClientFirst, LOST, client);
    plan.mutant = Some(names_only_with_its_text);
    assert_found("a proof but once", &plan, "one end alone knows of the agreement");
}

#[test]
fn time_wait_of_a_holder_is_deaf_to_an_exact_reset() {
    let client = |config: &mut Config| config.tcp.time_wait.negotiate = Wish::Client;
    let mut agreed = plan(Order::ClientFirst, REORDERED, client);
    agreed.mutant = Some(resets_behind_its_fin);
    assert_sound("agreed, a peer that resets", &agreed);
    let swap = |config: &mut Config| config.tcp.time_wait.close_swap = true;
    let mut swapped = plan(Order::ServerFirst, REORDERED, swap);
    swapped.mutant = Some(resets_from_time_wait);
    assert_sound("swapped, a peer that resets", &swapped);
}

#[test]
fn time_wait_of_a_holder_that_hears_resets_is_found() {
    // The server has the proof, and the client's record does not know.
    let mut agreed = plan(Order::ClientFirst, LOST, |_| {});
    agreed.configs[1].tcp.time_wait.negotiate = Wish::Client;
    agreed.only = Some(Rule::Held);
    agreed.mutant = Some(names_the_client_and_resets);
    assert_found("agreed, not deaf", &agreed, "nobody holds");
    // Each takes over from the other.
    let mut swapped = plan(Order::AtOnce, LOST, |_| {});
    swapped.mutant = Some(both_reset_from_time_wait);
    assert_found("taken over, not deaf", &swapped, "nobody holds");
}

#[test]
fn time_wait_swapped_too_early_is_found_by_the_search() {
    let mut plan = plan(Order::ServerFirst, LOST, |config| config.tcp.time_wait.close_swap = true);
    plan.mutant = Some(swaps_with_its_fin);
    assert_found("swap too early", &plan, "nobody holds");
}

#[test]
fn time_wait_that_is_over_too_early_is_found_by_the_search() {
    let plan = plan(Order::ServerFirst, LOST, |config| config.tcp.time_wait.length = MSL);
    assert_found("too short", &plan, "nobody holds");
}

#[test]
fn time_wait_behind_a_reported_reset_is_found() {
    let mut plan = plan(Order::ServerFirst, LOST, |_| {});
    plan.mutant = Some(resets_behind_its_fin);
    assert_found("reset", &plan, "an end was told of an error");
}

#[test]
fn time_wait_of_a_client_that_does_not_read_on_is_found() {
    let held = Plan { only: Some(Rule::Held), ..plan(Order::ClientLeaves, LOST, |_| {}) };
    assert_found("CLIENT_CLOSE with both halves", &held, "nobody holds");
}

#[test]
fn time_wait_behind_a_reset_taken_for_the_ack_is_found() {
    let mut plan = plan(Order::ClientLeaves, LOST_ONCE, |_| {});
    plan.only = Some(Rule::NoLoss);
    assert_sound("the answer draws a reset", &plan);
    plan.mutant = Some(takes_any_reset_for_the_ack);
    assert_found("a reset for the ACK", &plan, "what was acknowledged is lost");
}

const CODE: Code = Code { kind: 253, exid: 0x5457 };

/// To a server each segment of the client's names the client: as if it needed no proof.
fn believes_any_ack(side: usize, _: [&View; 2], packet: Packet) -> Vec<Packet> {
    let is_syn = packet.flags().contains(Flags::SYN);
    vec![if side == 1 || is_syn { packet } else { naming(packet, 0) }]
}

/// To a client each SYN, ACK names the server: as if it needed no proof.
fn believes_any_syn_ack(side: usize, _: [&View; 2], packet: Packet) -> Vec<Packet> {
    let is_syn_ack = side == 1 && packet.flags().contains(Flags::SYN);
    vec![if is_syn_ack { naming(packet, 1) } else { packet }]
}

/// A client that proves what it has heard in the segment with its text alone.
fn names_only_with_its_text(side: usize, _: [&View; 2], packet: Packet) -> Vec<Packet> {
    let is_proof = packet.has_text() || packet.flags().contains(Flags::SYN);
    vec![if side == 1 || is_proof { packet } else { packet.stripped() }]
}

/// A server that relies on a client which knows of no agreement, and resets behind its FIN.
fn names_the_client_and_resets(side: usize, views: [&View; 2], packet: Packet) -> Vec<Packet> {
    if side == 0 { vec![naming(packet, 0)] } else { resets_behind_its_fin(side, views, packet) }
}

/// The packet, unless it is an RST, with an option that names `side`.
fn naming(packet: Packet, side: usize) -> Packet {
    if packet.flags().contains(Flags::RST) {
        return packet;
    }
    let address = [[10, 0, 0, 1], [10, 0, 0, 2]][side];
    packet.with_option(CODE.option(address.into()))
}

/// A client that does not wait for the ACK of its FIN.
fn swaps_with_its_fin(side: usize, _: [&View; 2], packet: Packet) -> Vec<Packet> {
    if side == 0 { with_a_reset(packet, Flags::FIN) } else { vec![packet] }
}

/// A server that does not keep its connection behind its FIN.
fn resets_behind_its_fin(side: usize, _: [&View; 2], packet: Packet) -> Vec<Packet> {
    if side == 1 { with_a_reset(packet, Flags::FIN) } else { vec![packet] }
}

/// A server that sends from TIME-WAIT what takes TIME-WAIT over.
fn resets_from_time_wait(side: usize, views: [&View; 2], packet: Packet) -> Vec<Packet> {
    if side == 1 { both_reset_from_time_wait(side, views, packet) } else { vec![packet] }
}

fn both_reset_from_time_wait(side: usize, views: [&View; 2], packet: Packet) -> Vec<Packet> {
    if views[side].records > 0 { with_a_reset(packet, Flags::ACK) } else { vec![packet] }
}

/// A packet with that bit, and an RST behind it.
fn with_a_reset(packet: Packet, bit: Flags) -> Vec<Packet> {
    if !packet.flags().contains(bit) || packet.flags().contains(Flags::RST) {
        return vec![packet];
    }
    let reset = packet.reset_behind();
    vec![packet, reset]
}

/// A server that has closed, and takes any RST for the ACK of all that it has sent.
fn takes_any_reset_for_the_ack(side: usize, views: [&View; 2], packet: Packet) -> Vec<Packet> {
    let is_taken = side == 0 && packet.flags().contains(Flags::RST) && !views[1].relies_on_us;
    vec![match views[1].sent_to.filter(|_| is_taken) {
        Some(end) => packet.acknowledging(end),
        None => packet,
    }]
}
