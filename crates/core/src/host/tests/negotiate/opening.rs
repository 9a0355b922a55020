//! How an agreement comes about when the connection is opened.

use super::*;
use crate::config::Disagreement;
use crate::error::Error;
use crate::tcp::SocketOptions;

#[test]
fn each_wish_is_heard_and_the_other_is_refused_or_falls_back() {
    use Wish::{Client, Ourselves, Peer, Server};
    // Which end each wish means, at the client and at the server: true for the client.
    let ends = [(Client, true, true), (Server, false, false), (Ourselves, true, false)];
    let ends = ends.into_iter().chain([(Peer, false, true)]);
    for (asked, client_wishes, _) in ends.clone() {
        for (chosen, _, server_wishes) in ends.clone() {
            for disagreement in [Disagreement::Abort, Disagreement::FallBack] {
                let mut configs = wishing(asked, chosen);
                configs[0].tcp.time_wait.disagreement = disagreement;
                let mut pair = pair_of(configs);
                let (_, client, server) = open(&mut pair);
                let what = std::format!("{asked:?} {chosen:?} {disagreement:?}");
                if client_wishes != server_wishes && disagreement == Disagreement::Abort {
                    assert_eq!(server, None, "{what}");
                    assert_eq!(pair.client.take_error(client), Some(Error::ConnectionAborted));
                    assert_eq!(pair.client.counters().negotiation_refused, 1);
                    // One RST, and neither end keeps anything.
                    assert_eq!(pair.lines(0).iter().filter(|line| line.contains('R')).count(), 1);
                    assert_eq!(pair.server.half_open() + pair.server.connections(), 0);
                    continue;
                }
                let server = server.unwrap();
                // The server closes first; without an agreement it holds. Having named itself it
                // holds as well.
                close(&mut pair, client, server, Order::ServerFirst);
                let is_agreed = client_wishes == server_wishes;
                let expected = if is_agreed && client_wishes { (1, 0) } else { (0, 1) };
                assert_eq!(held(&pair), expected, "{what}");
                let counters = pair.client.counters();
                assert_eq!(counters.negotiation_fallen_back, u64::from(!is_agreed), "{what}");
            }
        }
    }
}

#[test]
fn a_server_may_take_only_those_who_agree() {
    let required = |client: Wish, strip_acks: bool| {
        let mut configs = wishing(client, Wish::Client);
        configs[1].tcp.time_wait.require = true;
        let mut pair = pair_of(configs);
        let mut of_client = 0;
        pair.mangle = Some(Box::new(move |from, bytes: &mut Vec<u8>| {
            of_client += u32::from(from == Side::Client);
            if strip_acks && from == Side::Client && of_client > 1 {
                strip(bytes);
            }
        }));
        let (_, client, server) = open(&mut pair);
        let refused = pair.server.counters().negotiation_refused;
        (server.is_some(), refused > 0, pair.client.take_error(client))
    };
    assert_eq!(required(Wish::Client, false), (true, false, None));
    assert_eq!(required(Wish::Off, false), (false, true, Some(Error::ConnectionRefused)));
    assert_eq!(required(Wish::Client, true), (false, true, Some(Error::ConnectionReset)));
}

#[test]
fn a_client_may_want_only_those_who_agree() {
    for (server, error) in [(Wish::Client, None), (Wish::Off, Some(Error::ConnectionAborted))] {
        let mut configs = wishing(Wish::Client, server);
        configs[0].tcp.time_wait.require = true;
        configs[0].tcp.time_wait.disagreement = Disagreement::FallBack;
        let mut pair = pair_of(configs);
        let (_, client, server) = open(&mut pair);
        assert_eq!((server.is_some(), pair.client.take_error(client)), (error.is_none(), error));
    }
}

#[test]
fn with_cookies_either_end_may_be_named() {
    for (wish, holders, after) in [
        (Wish::Client, (Holder::Ourselves, Holder::Peer), (1, 0)),
        (Wish::Server, (Holder::Peer, Holder::Ourselves), (0, 1)),
    ] {
        for (stamped, require) in [(true, false), (false, false), (true, true), (false, true)] {
            let mut configs = wishing(wish, wish);
            configs[1].limits.syn_cache = 0;
            configs[1].tcp.timestamps = stamped;
            configs.iter_mut().for_each(|config| config.tcp.time_wait.require = require);
            let mut pair = pair_of(configs);
            let (_, client, server) = pair.connected();
            assert_eq!(pair.server.counters().cookies_accepted, 1);
            let of = |host: &crate::Host, id| host.info(id).unwrap().holder;
            assert_eq!((of(&pair.client, client), of(&pair.server, server)), holders);
            close(&mut pair, client, server, Order::ClientFirst);
            assert_eq!(held(&pair), after, "{wish:?}");
        }
    }
    // The third segment is lost, and the request behind it brings both cookie and proof.
    let mut configs = wishing(Wish::Client, Wish::Client);
    configs[1].limits.syn_cache = 0;
    let mut pair = pair_of(configs);
    let mut of_client = 0;
    pair.filter = Some(Box::new(move |from, _| {
        of_client += u32::from(from == Side::Client);
        !(from == Side::Client && of_client == 2)
    }));
    let (listener, client, none) = open(&mut pair);
    assert_eq!(none, None);
    pair.client.write(pair.now, client, b"request").unwrap();
    pair.run_for(SECOND);
    let server = pair.server.accept(pair.now, listener).unwrap();
    assert_eq!(pair.server.info(server).unwrap().holder, Holder::Peer);
}

/// The server has named itself, and the client may rely on that, whatever comes back.
#[test]
fn a_server_named_by_its_cookie_holds_whatever_it_hears() {
    let mut configs = wishing(Wish::Server, Wish::Server);
    configs[1].limits.syn_cache = 0;
    let mut pair = pair_of(configs);
    let mut of_client = 0;
    pair.mangle = Some(Box::new(move |from, bytes| {
        of_client += u32::from(from == Side::Client);
        if from == Side::Client && of_client > 1 {
            strip(bytes);
        }
    }));
    let (_, client, server) = pair.connected();
    let of = |host: &crate::Host, id| host.info(id).unwrap().holder;
    assert_eq!(of(&pair.client, client), Holder::Peer);
    assert_eq!(of(&pair.server, server), Holder::Ourselves);
    close(&mut pair, client, server, Order::ClientFirst);
    assert_eq!(held(&pair), (0, 1));
}

/// Drops SYNs that carry the option.
fn black_hole(_: Side, s: &Segment<'_>) -> bool {
    !s.flags.contains(Flags::SYN) || s.options.experimental.is_empty()
}

#[test]
fn a_path_that_drops_options_is_met_without_and_remembered() {
    let mut configs = wishing(Wish::Client, Wish::Client);
    configs[0].tcp.time_wait.ask_again = SECOND * 600;
    let mut pair = pair_of(configs);
    pair.filter = Some(Box::new(black_hole));
    let (listener, _, server) = open(&mut pair);
    assert!(server.is_some(), "the third SYN does not ask");
    assert_eq!(named(&pair, Side::Client), 2);
    assert_eq!(pair.client.counters().negotiation_unheard, 1);
    // The next is not asked, and opens at once.
    let from = pair.log.len();
    pair.connect(listener);
    assert_eq!(pair.client.counters().negotiation_not_asked, 1);
    assert!(pair.lines(from).iter().filter(|line| line.contains("Client S")).count() == 1);
    // The network is mended, and after its time the peer is asked again.
    pair.filter = None;
    pair.run_for(SECOND * 600);
    let (client, _) = pair.connect(listener);
    assert_eq!(pair.client.info(client).unwrap().holder, Holder::Ourselves);
}

#[test]
fn who_requires_an_agreement_goes_on_asking() {
    let mut configs = wishing(Wish::Client, Wish::Client);
    configs[0].tcp.time_wait.require = true;
    let mut pair = pair_of(configs);
    pair.filter = Some(Box::new(black_hole));
    let (_, client, server) = open(&mut pair);
    assert_eq!((server, pair.client.state(client)), (None, State::SynSent));
    assert_eq!(named(&pair, Side::Client), 4, "at 0, 1, 3 and 7 s");
}

#[test]
fn one_lost_syn_does_not_cost_the_agreement() {
    let mut pair = pair_of(wishing(Wish::Client, Wish::Client));
    let mut sent = 0;
    pair.filter = Some(Box::new(move |_, _| {
        sent += 1;
        sent > 1
    }));
    let (_, client, _) = open(&mut pair);
    assert_eq!(pair.client.info(client).unwrap().holder, Holder::Ourselves);
    assert_eq!(pair.client.counters().negotiation_unheard, 0);
}

#[test]
fn a_handshake_with_losses_or_strips_never_leaves_it_unheld() {
    for wish in [Wish::Client, Wish::Server] {
        for case in 0..1024_u32 {
            let (lost, stripped) = (case & 31, case >> 5);
            let mut pair = pair_of(wishing(wish, wish));
            let (mut seen, mut count) = (0, 0);
            pair.filter = Some(Box::new(move |_, _| {
                seen += 1;
                seen > 5 || lost >> (seen - 1) & 1 == 0
            }));
            pair.mangle = Some(Box::new(move |_, bytes: &mut Vec<u8>| {
                count += 1;
                if count <= 5 && stripped >> (count - 1) & 1 == 1 {
                    strip(bytes);
                }
            }));
            let (listener, client, server) = open(&mut pair);
            // Where its ACK was lost, the server is established by the request.
            pair.run_for(SECOND * 30);
            pair.client.write(pair.now, client, b"request").unwrap();
            pair.run_for(SECOND * 30);
            let late = || pair.server.accept(pair.now, listener).unwrap();
            let server = server.unwrap_or_else(late);
            pair.server.read(pair.now, server, &mut [0; 99]).unwrap();
            pair.close(Side::Server, server, SECOND);
            pair.close(Side::Client, client, SECOND);
            let (a, b) = held(&pair);
            assert!(a + b >= 1, "{wish:?}: lost {lost:05b}, stripped {stripped:05b}");
            // The third SYN does not ask, and comes where both before it were lost.
            if stripped == 0 && lost & 0b11 != 0b11 {
                let expected = if wish == Wish::Client { (1, 0) } else { (0, 1) };
                assert_eq!((a, b), expected, "{wish:?}: lost {lost:05b}");
            }
        }
    }
}

#[test]
fn a_socket_chooses_for_itself() {
    let mut pair = pair_of(wishing(Wish::Off, Wish::Off));
    let listening = SocketOptions { negotiate: Wish::Client, ..pair.server.default_options() };
    let local = "0.0.0.0:80".parse().unwrap();
    let listener = pair.server.listen_with(local, 16, listening).unwrap();
    let remote = std::format!("{SERVER}:80").parse().unwrap();
    let options = SocketOptions { negotiate: Wish::Client, ..pair.client.default_options() };
    let any = "0.0.0.0:0".parse().unwrap();
    let client = pair.client.connect_with(pair.now, any, remote, options).unwrap();
    pair.run_for(SOON);
    let server = pair.server.accept(pair.now, listener).unwrap();
    assert_eq!(pair.client.info(client).unwrap().holder, Holder::Ourselves);
    assert_eq!(pair.server.info(server).unwrap().holder, Holder::Peer);
    // A SYN by a socket that does not ask.
    let (other, _) = pair.connect(listener);
    assert_eq!(pair.client.info(other).unwrap().holder, Holder::Closer);
}
