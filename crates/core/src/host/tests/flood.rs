//! A flood of SYNs from addresses that do not answer keeps the SYN cache full. Clients are served
//! all the same: new ones by cookies, and those that meet their own TIME-WAIT by a place in the
//! cache, which they have proven to be theirs.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::pair::{CLIENT, Pair, SERVER, Side, config, correct_checksum};
use crate::config::Config;
use crate::config::Wish;
use crate::event::ListenerId;
use crate::flow::Seq;
use crate::frame::RxFrame;
use crate::time::Duration;
use crate::wire::ip;
use crate::wire::options::Options;
use crate::wire::tcp::{Flags, Header, PROTOCOL};

/// Entries of the SYN cache.
const CACHE: usize = 64;

/// SYNs a second: enough to keep it full, though unproven entries of a full cache live for 3 s.
const FLOOD: u32 = 100;

/// Seconds of the flood.
const SECONDS: u32 = 60;

/// Connections that are opened each second, from as many ports.
const CLIENTS: u16 = 4;

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Each connection has a port of its own.
    Fresh,
    /// The ports are those of the second before: the server has their TIME-WAIT.
    Returning,
    /// So, without timestamps.
    Unstamped,
    /// So, and the ends have agreed who holds TIME-WAIT.
    Negotiated,
    /// As returning ones, over IPv6.
    OverIpv6,
}

impl Kind {
    /// The client's address and the server's.
    fn addresses(self) -> [&'static str; 2] {
        if self == Kind::OverIpv6 { ["fd00::1", "fd00::2"] } else { [CLIENT, SERVER] }
    }

    /// The address of one of the flood's hosts, which do not answer.
    fn silent(self, number: u8) -> IpAddr {
        match self {
            Kind::OverIpv6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, number.into()).into(),
            _ => Ipv4Addr::new(10, 0, 0, number).into(),
        }
    }
}

fn packet(source: IpAddr, server: IpAddr, port: u16) -> Vec<u8> {
    let header = Header {
        source_port: port,
        destination_port: 80,
        seq: Seq(u32::from(port) << 8),
        ack: Seq(0),
        flags: Flags::SYN,
        window: 1000,
        urgent: 0,
        options: Options { mss: Some(1460), ..Options::NONE },
    };
    let mut bytes = Vec::new();
    let packet = ip::Header::new(source, server, PROTOCOL, header.header_len()).unwrap();
    packet.emit(&mut bytes);
    header.emit(&mut bytes);
    correct_checksum(&mut bytes);
    bytes
}

/// `count` SYNs reach the server, from addresses of its link and ports that have no end.
fn flood(pair: &mut Pair, kind: Kind, sent: &mut u32, count: u32) {
    let server = kind.addresses()[1].parse().unwrap();
    for _ in 0..count {
        let source = kind.silent(100 + (*sent % 100) as u8);
        let bytes = packet(source, server, 1024 + (*sent / 100 % 60_000) as u16);
        pair.server.on_frame(pair.now, RxFrame::plain(&bytes));
        *sent += 1;
    }
}

/// Opens a connection from `port`, and closes it, the server first. True if it was served.
fn is_served(pair: &mut Pair, kind: Kind, listener: ListenerId, port: u16) -> bool {
    let [local, remote] = kind.addresses().map(|address| address.parse::<IpAddr>().unwrap());
    let [local, remote] = [SocketAddr::new(local, port), SocketAddr::new(remote, 80)];
    let Ok(client) = pair.client.connect(pair.now, local, remote) else { return false };
    pair.run_for(Duration::from_millis(20));
    let Ok(server) = pair.server.accept(pair.now, listener) else {
        pair.client.abort(pair.now, client);
        return false;
    };
    pair.close(Side::Server, server, Duration::from_millis(15));
    pair.close(Side::Client, client, Duration::from_millis(15));
    true
}

fn configs(kind: Kind) -> [Config; 2] {
    kind.addresses().map(|address| {
        let mut config = config(address);
        config.limits.syn_cache = CACHE;
        config.tcp.timestamps = kind != Kind::Unstamped;
        if kind == Kind::Negotiated {
            config.tcp.time_wait.negotiate = Wish::Server;
        }
        config
    })
}

/// How many of so many clients of that kind are served during the flood.
fn served(kind: Kind) -> (u32, u32) {
    let [client, server] = configs(kind);
    let mut pair = Pair::with(client, server);
    let listener = pair.server.listen("[::]:80".parse().unwrap(), 64).unwrap();
    let (mut sent, mut count, mut answered, mut fresh) = (0, 0, 0, 10_000);
    for port in 0..CLIENTS {
        assert!(is_served(&mut pair, kind, listener, 5000 + port), "without a flood");
    }
    for second in 0..SECONDS {
        for number in 0..CLIENTS {
            flood(&mut pair, kind, &mut sent, FLOOD / u32::from(CLIENTS));
            fresh += 1;
            let port = if kind == Kind::Fresh { fresh } else { 5000 + number };
            let is_served = is_served(&mut pair, kind, listener, port);
            if second >= 2 {
                let half_open = pair.server.half_open();
                assert!((CACHE - 2..=CACHE).contains(&half_open), "{kind:?}: {half_open}");
                count += 1;
                answered += u32::from(is_served);
            }
            pair.log.clear();
            pair.run_for(Duration::from_millis(200));
        }
    }
    (answered, count)
}

#[test]
fn a_flood_that_keeps_the_cache_full_keeps_no_client_out() {
    use Kind::{Fresh, Negotiated, OverIpv6, Returning, Unstamped};
    for kind in [Fresh, Returning, Unstamped, Negotiated, OverIpv6] {
        let (answered, count) = served(kind);
        assert!(answered * 100 >= count * 99, "{kind:?}: {answered} of {count}");
    }
}

/// Clients that TIME-WAIT lets through may be twice as many as the cache has places, and not one
/// more.
#[test]
fn proven_clients_take_twice_the_places_and_no_more() {
    let [client, mut server] = configs(Kind::Returning);
    server.limits.syn_cache = 2;
    let mut pair = Pair::with(client, server);
    let listener = pair.server.listen("0.0.0.0:80".parse().unwrap(), 64).unwrap();
    for port in 5000..5005 {
        assert!(is_served(&mut pair, Kind::Returning, listener, port));
    }
    // No handshake comes to its end from here on.
    pair.filter = Some(alloc::boxed::Box::new(|side, _| side == Side::Client));
    pair.run_for(Duration::from_millis(10));
    for (port, refused) in [(5000, 0), (5001, 0), (5002, 0), (5003, 0), (5004, 1)] {
        assert!(!is_served(&mut pair, Kind::Returning, listener, port));
        assert_eq!(pair.server.counters().time_wait_refused, refused, "{port}");
    }
    assert_eq!((pair.server.half_open(), pair.server.counters().syn_cache_displaced), (4, 0));
}
