//! Two hosts agree on which end holds TIME-WAIT, or fail to, whatever happens on the way (Faber,
//! Touch & Yue 1999 §3).

mod opening;
mod scripted;

use super::pair::{CLIENT, Pair, SERVER, Side, config};
use crate::config::{Config, TimeWaitState, Wish};
use crate::event::{ConnectionId, ListenerId};
use crate::tcp::State;
use crate::tcp::time_wait::negotiate::Holder;
use crate::time::Duration;
use crate::wire::tcp::{Flags, Segment};
use std::boxed::Box;
use std::vec::Vec;

const SOON: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    ClientFirst,
    ServerFirst,
    AtOnce,
    /// The server sends its FIN, and the client goes on for a while.
    HalfClosed,
}

const ORDERS: [Order; 4] =
    [Order::ClientFirst, Order::ServerFirst, Order::AtOnce, Order::HalfClosed];

/// Hosts of these wishes.
fn wishing(client: Wish, server: Wish) -> [Config; 2] {
    [(CLIENT, client), (SERVER, server)].map(|(address, wish)| {
        let mut config = config(address);
        config.tcp.time_wait.negotiate = wish;
        config
    })
}

fn pair_of([client, server]: [Config; 2]) -> Pair {
    Pair::with(client, server)
}

/// Records at the client and at the server.
fn held(pair: &Pair) -> (usize, usize) {
    (pair.client.time_wait_len(), pair.server.time_wait_len())
}

/// Closes at both ends, in this order.
fn close(pair: &mut Pair, client: ConnectionId, server: ConnectionId, order: Order) {
    let now = pair.now;
    match order {
        Order::ClientFirst => {
            pair.close(Side::Client, client, SOON);
            pair.close(Side::Server, server, SOON);
        }
        Order::ServerFirst => {
            pair.close(Side::Server, server, SOON);
            pair.close(Side::Client, client, SOON);
        }
        Order::AtOnce => {
            pair.client.close(now, client);
            pair.close(Side::Server, server, SOON);
        }
        Order::HalfClosed => {
            pair.server.shutdown_write(now, server).unwrap();
            pair.run_for(SOON);
            let now = pair.now;
            pair.client.write(now, client, b"still here").unwrap();
            pair.run_for(SECOND);
            pair.close(Side::Client, client, SOON);
            let now = pair.now;
            let mut read = [0; 99];
            assert_eq!(pair.server.read(now, server, &mut read), Ok(10));
            pair.close(Side::Server, server, SOON);
        }
    }
    pair.run_for(SECOND * 3);
}

/// A connection, or none, if that is not to be.
fn open(pair: &mut Pair) -> (ListenerId, ConnectionId, Option<ConnectionId>) {
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    let any = "0.0.0.0:0".parse().unwrap();
    let remote = std::format!("{SERVER}:80").parse().unwrap();
    let client = pair.client.connect(pair.now, any, remote).unwrap();
    pair.run_for(SECOND * 10);
    let server = pair.server.accept(pair.now, listener).ok();
    pair.run_for(SOON);
    (listener, client, server)
}

/// The experimental options in the packets that this side has sent so far.
fn named(pair: &Pair, side: Side) -> usize {
    let names = |bytes: &[u8]| {
        let packet = crate::wire::ip::Packet::parse(bytes).unwrap();
        !Segment::parse(packet.payload).unwrap().options.experimental.is_empty()
    };
    pair.log.iter().filter(|(_, from, bytes)| *from == side && names(bytes)).count()
}

/// Overwrites the option in a packet with filler.
fn strip(bytes: &mut [u8]) {
    let at = bytes.windows(4).position(|window| window == [253, 8, 0x54, 0x57]);
    if let Some(at) = at {
        bytes[at..at + 8].fill(1);
    }
}

#[test]
fn the_agreed_end_holds_in_either_order_of_closing() {
    for state in [TimeWaitState::Compact, TimeWaitState::Full] {
        for (wish, expected) in [(Wish::Client, (1, 0)), (Wish::Server, (0, 1))] {
            for order in ORDERS {
                let mut configs = wishing(wish, wish);
                configs.iter_mut().for_each(|config| config.tcp.time_wait.state = state);
                let mut pair = pair_of(configs);
                let (_, client, server) = pair.connected();
                pair.transfer((Side::Client, client), (Side::Server, server), 3000);
                pair.transfer((Side::Server, server), (Side::Client, client), 3000);
                close(&mut pair, client, server, order);
                // Text came behind the server's FIN: it keeps one as well.
                let kept = usize::from(order == Order::HalfClosed && wish == Wish::Client);
                let all = (expected.0, expected.1 + kept);
                assert_eq!(held(&pair), all, "{state:?} {wish:?} {order:?}");
                let by = |host: &crate::Host| {
                    (host.counters().time_wait_agreed, host.counters().time_wait_by_peer)
                };
                let entered = pair.client.counters().time_wait_entered;
                assert_eq!(by(&pair.client).0 as usize, expected.0);
                assert_eq!(
                    (by(&pair.server).0 as usize, entered as usize),
                    (expected.1, expected.0)
                );
                assert_eq!(pair.client.counters().negotiation_agreed, 1);
                assert_eq!(pair.server.counters().negotiation_agreed, 1);
                assert_eq!(pair.client.counters().resets_to_strangers, 0, "nothing more is sent");
                assert_eq!(pair.client.connections() + pair.server.connections(), 0);
                pair.run_for(SECOND * 61);
                assert_eq!(held(&pair), (0, 0));
            }
        }
    }
}

#[test]
fn it_costs_no_segment_and_ends_once_the_peer_has_heard() {
    let segments = |wish| {
        let mut pair = pair_of(wishing(wish, wish));
        let (_, client, server) = pair.connected();
        for _ in 0..3 {
            pair.transfer((Side::Client, client), (Side::Server, server), 100);
            pair.transfer((Side::Server, server), (Side::Client, client), 100);
        }
        let named = (named(&pair, Side::Client), named(&pair, Side::Server));
        close(&mut pair, client, server, Order::ServerFirst);
        (pair.log.len(), named)
    };
    let (without, unnamed) = segments(Wish::Off);
    let (with, named) = segments(Wish::Client);
    assert_eq!(unnamed, (0, 0), "off by default: nothing is asked");
    // SYN, ACK and the request before an answer came; of the server the SYN, ACK.
    assert_eq!((with, named), (without, (3, 1)));
}

#[test]
fn where_one_end_does_not_negotiate_all_is_as_ever() {
    for (client, server) in [(Wish::Client, Wish::Off), (Wish::Off, Wish::Client)] {
        for (order, expected) in [(Order::ClientFirst, (1, 0)), (Order::ServerFirst, (0, 1))] {
            let mut pair = pair_of(wishing(client, server));
            let (_, a, b) = pair.connected();
            close(&mut pair, a, b, order);
            assert_eq!(held(&pair), expected);
            assert_eq!(named(&pair, Side::Server), 0);
            let fallen = pair.client.counters().negotiation_fallen_back;
            assert_eq!(fallen, u64::from(client != Wish::Off));
        }
    }
}

/// What a middlebox does to the option in the SYN, the SYN, ACK, the third segment, and in those of
/// the client behind it.
fn with_middlebox(mask: u32) -> impl FnMut(Side, &mut Vec<u8>) {
    let mut of_client = 0;
    move |from, bytes| {
        let kind = match from {
            Side::Server => 1,
            Side::Client => {
                of_client += 1;
                [0, 2, 3][(of_client - 1_usize).min(2)]
            }
        };
        if mask >> kind & 1 == 1 {
            strip(bytes);
        }
    }
}

#[test]
fn a_middlebox_that_strips_options_leaves_no_time_wait_unheld() {
    for wish in [Wish::Client, Wish::Server] {
        for mask in 0..16 {
            for order in ORDERS {
                let mut pair = pair_of(wishing(wish, wish));
                pair.mangle = Some(Box::new(with_middlebox(mask)));
                let (_, client, server) = pair.connected();
                pair.transfer((Side::Client, client), (Side::Server, server), 100);
                pair.transfer((Side::Server, server), (Side::Client, client), 100);
                let of = |host: &crate::Host, id| host.info(id).unwrap().holder;
                let holders = (of(&pair.client, client), of(&pair.server, server));
                close(&mut pair, client, server, order);
                let (a, b) = held(&pair);
                assert!(a + b >= 1, "{wish:?} {mask:04b} {order:?} {holders:?}");
                // An end that holds, though it closed second, is one that has named itself.
                if holders == (Holder::Closer, Holder::Closer) && order != Order::AtOnce {
                    assert_eq!(a, usize::from(order == Order::ClientFirst));
                }
                if mask & 0b011 != 0 {
                    assert_ne!(holders.0, Holder::Peer, "{mask:04b}: no proof came");
                }
            }
        }
    }
}

#[test]
fn an_address_of_neither_end_is_as_if_there_were_none() {
    // A translator: the client's address within is another than the one without.
    let mut pair = pair_of(wishing(Wish::Client, Wish::Client));
    pair.mangle = Some(Box::new(|_, bytes: &mut Vec<u8>| {
        let at = bytes.windows(4).position(|window| window == [253, 8, 0x54, 0x57]);
        if let Some(at) = at {
            bytes[at + 4..at + 8].copy_from_slice(&[192, 0, 2, 1]);
        }
    }));
    let (_, client, server) = pair.connected();
    assert_eq!(named(&pair, Side::Server), 0);
    assert_eq!(pair.client.info(client).unwrap().holder, Holder::Closer);
    close(&mut pair, client, server, Order::ServerFirst);
    assert_eq!(held(&pair), (0, 1));
}

#[test]
fn a_lost_last_ack_draws_a_reset_which_the_holder_takes_for_it() {
    for order in [Order::ServerFirst, Order::AtOnce] {
        let mut pair = pair_of(wishing(Wish::Client, Wish::Client));
        let (_, client, server) = pair.connected();
        pair.transfer((Side::Server, server), (Side::Client, client), 3000);
        let mut fins = 0;
        // Every ACK alone of the server's, once the client's FIN is out.
        pair.filter = Some(Box::new(move |from, s: &Segment<'_>| {
            fins += u32::from(from == Side::Client && s.flags.contains(Flags::FIN));
            !(from == Side::Server && fins > 0 && s.flags == Flags::ACK)
        }));
        let (id, now) = (client, pair.now);
        match order {
            Order::AtOnce => {
                pair.client.shutdown_write(now, id).unwrap();
                pair.close(Side::Server, server, SOON);
            }
            _ => {
                pair.close(Side::Server, server, SOON);
                let now = pair.now;
                pair.client.shutdown_write(now, id).unwrap();
                pair.run_for(SOON);
            }
        }
        assert_eq!(held(&pair), (0, 0), "{order:?}");
        pair.run_for(SECOND * 3);
        assert_eq!((pair.client.state(id), held(&pair)), (State::TimeWait, (1, 0)), "{order:?}");
        assert_eq!(pair.server.counters().resets_to_strangers, 1);
        assert_eq!(pair.client.take_error(id), None, "no user hears of a reset");
        assert_eq!(pair.client.read(pair.now, id, &mut [0; 9]), Ok(0));
    }
}

#[test]
fn text_that_came_with_the_fin_is_never_told_to_be_lost() {
    let mut pair = pair_of(wishing(Wish::Client, Wish::Client));
    let (_, client, server) = pair.connected();
    let now = pair.now;
    pair.server.shutdown_write(now, server).unwrap();
    pair.run_for(SOON);
    let now = pair.now;
    pair.client.write(now, client, b"the last words").unwrap();
    pair.client.shutdown_write(now, client).unwrap();
    let mut lost = 0;
    pair.filter = Some(Box::new(move |from, _| {
        lost += u32::from(from == Side::Server);
        from == Side::Client || lost > 1
    }));
    pair.run_for(SECOND * 3);
    let mut read = [0; 99];
    assert_eq!(pair.server.read(pair.now, server, &mut read), Ok(14));
    // The server, which had not acknowledged the text before, answers from a record of its own.
    assert_eq!((held(&pair), pair.server.counters().time_wait_restarted), ((1, 1), 1));
    assert_eq!(pair.client.take_error(client), None);
}

#[test]
fn text_behind_a_half_close_is_never_told_to_be_lost() {
    let mut pair = pair_of(wishing(Wish::Client, Wish::Client));
    let (_, client, server) = pair.connected();
    let now = pair.now;
    pair.server.shutdown_write(now, server).unwrap();
    pair.run_for(SOON);
    // The server acknowledges the text, and then the FIN, which comes apart from it: both ACKs are
    // lost.
    pair.filter = Some(Box::new(|from, _| from == Side::Client));
    let now = pair.now;
    pair.client.write(now, client, b"the last words").unwrap();
    pair.run_for(SOON);
    let now = pair.now;
    pair.client.shutdown_write(now, client).unwrap();
    pair.run_for(SOON);
    assert_eq!(pair.server.read(pair.now, server, &mut [0; 99]), Ok(14));
    pair.filter = None;
    pair.run_for(SECOND * 3);
    assert_eq!((held(&pair), pair.client.take_error(client)), ((1, 1), None));
    // Without text behind its FIN the server leaves it to the client, however much came before.
    let mut pair = pair_of(wishing(Wish::Client, Wish::Client));
    let (_, client, server) = pair.connected();
    pair.transfer((Side::Client, client), (Side::Server, server), 3000);
    close(&mut pair, client, server, Order::ServerFirst);
    assert_eq!(held(&pair), (1, 0));
}

#[test]
fn compact_connections_and_orphan_records_keep_the_agreement() {
    let mut pair = pair_of(wishing(Wish::Client, Wish::Client));
    let (_, client, server) = pair.connected();
    pair.transfer((Side::Client, client), (Side::Server, server), 100);
    pair.transfer((Side::Server, server), (Side::Client, client), 100);
    pair.run_for(SECOND * 10);
    assert_eq!(pair.client.counters().rested + pair.server.counters().rested, 2);
    assert_eq!(pair.client.info(client).unwrap().holder, Holder::Ourselves);
    assert_eq!(pair.server.info(server).unwrap().holder, Holder::Peer);
    pair.close(Side::Server, server, SECOND * 10);
    assert_eq!((pair.server.fin_wait_2_len(), pair.server.connections()), (1, 0));
    pair.close(Side::Client, client, SOON);
    assert_eq!((held(&pair), pair.server.fin_wait_2_len()), ((1, 0), 0));
    // An end that does not rely on the peer, and holds, stays whole.
    let mut pair = pair_of(wishing(Wish::Server, Wish::Server));
    let (_, client, server) = pair.connected();
    pair.close(Side::Server, server, SECOND * 10);
    assert_eq!((pair.server.fin_wait_2_len(), pair.server.connections()), (0, 1));
    pair.close(Side::Client, client, SOON);
    assert_eq!(held(&pair), (0, 1));
}

#[test]
fn agreement_outranks_a_swap_and_needs_a_host_with_records() {
    let mut configs = wishing(Wish::Server, Wish::Server);
    configs[0].tcp.time_wait.close_swap = true;
    let mut pair = pair_of(configs);
    let (_, client, server) = pair.connected();
    close(&mut pair, client, server, Order::ServerFirst);
    assert_eq!((held(&pair), pair.client.counters().time_wait_swapped), ((0, 1), 0));
    for skip in [true, false] {
        let mut configs = wishing(Wish::Client, Wish::Client);
        match skip {
            true => configs[0].tcp.time_wait.state = TimeWaitState::Skip,
            false => configs[0].limits.time_wait = 0,
        }
        let mut pair = pair_of(configs);
        let (_, client, server) = pair.connected();
        assert_eq!(named(&pair, Side::Client), 0);
        close(&mut pair, client, server, Order::ServerFirst);
        assert_eq!(held(&pair), (0, 1));
    }
}
