//! Flows: sockets that datagrams make which no other socket hears.

use super::*;
use crate::host::tests::link;

/// The client's gateway is a host that takes all addresses and makes flows.
fn behind_a_gateway(change: impl FnOnce(&mut Config)) -> Cable {
    let mut client = link::host(&["10.0.0.1/24", "fd00::1/64"], 1);
    client.gateways = ["10.0.0.2", "fd00::2"].map(|text| text.parse().unwrap()).into();
    let mut server = link::host(&["10.0.0.2/24", "fd00::2/64"], 2);
    server.destinations = ["0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap()).into();
    change(&mut server);
    let mut cable = Cable::new(Vec::from([client, server]));
    let options = cable.hosts[1].default_udp_options();
    cable.hosts[1].udp_listen_any(options).unwrap();
    assert_eq!(cable.hosts[1].udp_listen_any(options), Err(Error::AddressInUse));
    cable
}

#[test]
fn a_datagram_that_nobody_hears_makes_a_socket_between_its_ends() {
    for (from, to) in [("0.0.0.0:0", "8.8.8.8:53"), ("[::]:0", "[2001:db8::1]:443")] {
        let mut cable = behind_a_gateway(|_| {});
        let client = bind(&mut cable, 0, from);
        send(&mut cable, 0, client, to, b"one").unwrap();
        send(&mut cable, 0, client, to, b"two").unwrap();
        cable.settle();
        let flow = cable.hosts[1].udp_accept().unwrap();
        assert_eq!((cable.hosts[1].udp_accept(), cable.hosts[1].udp_flows()), (None, 1));
        assert_eq!(cable.hosts[1].udp_local_address(flow), Ok(at(to)));
        let peer = cable.hosts[1].udp_peer_address(flow).unwrap();
        assert_eq!(peer.port(), cable.hosts[0].udp_local_address(client).unwrap().port());
        for expected in [b"one", b"two"] {
            let (bytes, received) = receive(&mut cable, 1, flow).unwrap();
            assert_eq!((&bytes[..], received.from), (&expected[..], peer));
        }
        let now = cable.now;
        cable.hosts[1].udp_send(now, flow, &Transmit::default(), b"answer").unwrap();
        cable.settle();
        let (bytes, received) = receive(&mut cable, 0, client).unwrap();
        assert_eq!((&bytes[..], received.from), (&b"answer"[..], at(to)));
        // Closed, the next datagram makes another.
        cable.hosts[1].udp_close(flow);
        assert_eq!(cable.hosts[1].udp_flows(), 0);
        send(&mut cable, 0, client, to, b"three").unwrap();
        cable.settle();
        let next = cable.hosts[1].udp_accept().unwrap();
        assert!(next != flow);
        assert_eq!(receive(&mut cable, 1, next).unwrap().0, b"three");
    }
}

#[test]
fn a_bound_socket_hears_first_and_a_flow_takes_no_port() {
    let mut cable = behind_a_gateway(|_| {});
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    send(&mut cable, 0, client, "10.0.0.2:53", b"flow").unwrap();
    cable.settle();
    let server = bind(&mut cable, 1, "0.0.0.0:53");
    let other = bind(&mut cable, 0, "0.0.0.0:0");
    send(&mut cable, 0, other, "10.0.0.2:53", b"bound").unwrap();
    send(&mut cable, 0, client, "10.0.0.2:53", b"flow").unwrap();
    cable.settle();
    assert_eq!(receive(&mut cable, 1, server).unwrap().0, b"bound");
    assert_eq!(cable.hosts[1].udp_flows(), 1);
    let flow = cable.hosts[1].udp_accept().unwrap();
    assert_eq!(receive(&mut cable, 1, flow).unwrap().0, b"flow");
    assert_eq!(receive(&mut cable, 1, flow).unwrap().0, b"flow");
    cable.hosts[1].udp_close(flow);
    send(&mut cable, 0, client, "10.0.0.2:53", b"bound").unwrap();
    cable.settle();
    assert_eq!(receive(&mut cable, 1, server).unwrap().0, b"bound");
}

#[test]
fn there_are_no_more_flows_than_may_be() {
    for (flows, sockets) in [(3, 100), (100, 3)] {
        let mut cable = behind_a_gateway(|config| {
            config.limits.udp_flows = flows;
            config.limits.udp_sockets = sockets;
        });
        let client = bind(&mut cable, 0, "0.0.0.0:0");
        for port in 1..=3 {
            send(&mut cable, 0, client, &std::format!("8.8.8.8:{port}"), b"x").unwrap();
        }
        cable.settle();
        assert_eq!(cable.hosts[1].counters().udp_flows_over_limit, 0, "three may be");
        send(&mut cable, 0, client, "8.8.8.8:4", b"x").unwrap();
        cable.settle();
        let counters = cable.hosts[1].counters();
        assert_eq!((counters.udp_flows, counters.udp_flows_over_limit), (3, 1));
        assert_eq!(counters.ports_unreachable, 0, "the port is not unreachable");
        let first = cable.hosts[1].udp_accept().unwrap();
        cable.hosts[1].udp_close(first);
        send(&mut cable, 0, client, "8.8.8.8:4", b"x").unwrap();
        cable.settle();
        assert_eq!(cable.hosts[1].counters().udp_flows, 4, "one has gone");
    }
}

#[test]
fn a_flow_that_is_refused_leaves_its_port_unreachable() {
    for to in ["8.8.8.8:53", "[2001:db8::1]:443"] {
        let mut cable = behind_a_gateway(|_| {});
        let client = bind(&mut cable, 0, if to.contains('[') { "[::]:0" } else { "0.0.0.0:0" });
        let now = cable.now;
        cable.hosts[0].udp_connect(now, client, Some(at(to))).unwrap();
        send(&mut cable, 0, client, to, b"x").unwrap();
        cable.settle();
        let flow = cable.hosts[1].udp_accept().unwrap();
        assert_eq!(cable.hosts[0].udp_take_error(client), None);
        cable.hosts[1].udp_refuse(now, flow);
        cable.settle();
        assert_eq!(cable.hosts[0].udp_take_error(client), Some(Error::ConnectionRefused));
        assert_eq!(cable.hosts[1].udp_flows(), 0);
        cable.hosts[1].udp_refuse(now, flow);
        cable.settle();
        assert_eq!(cable.hosts[1].counters().ports_unreachable, 1, "once");
    }
}

#[test]
fn groups_and_broadcasts_make_no_flow() {
    let mut cable = behind_a_gateway(|_| {});
    let client = bind(&mut cable, 0, "0.0.0.0:0");
    change(&mut cable.hosts[0], client, |options| options.broadcast = true);
    for to in ["224.0.0.1:7", "10.0.0.255:7", "255.255.255.255:7"] {
        send(&mut cable, 0, client, to, b"x").unwrap();
    }
    cable.settle();
    assert_eq!(cable.hosts[1].udp_flows(), 0);
    send(&mut cable, 0, client, "8.8.8.8:7", b"x").unwrap();
    cable.settle();
    assert_eq!(cable.hosts[1].udp_flows(), 1);
    cable.hosts[1].udp_unlisten_any();
    assert_eq!((cable.hosts[1].udp_flows(), cable.hosts[1].udp_accept()), (0, None));
    send(&mut cable, 0, client, "8.8.8.8:7", b"x").unwrap();
    cable.settle();
    assert_eq!(cable.hosts[1].counters().ports_unreachable, 1);
}
