//! A server and its clients, each at the end of a path of its own, in virtual time. One host plays
//! all clients: each has an address there, and a lane of the cable.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lightwait_core::address::Cidr;
use lightwait_core::config::{Limits, TcpConfig};
use lightwait_core::time::Duration;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use lightwait_netem::{LinkConfig, Loss, QueueLimit, Rate};
use lightwait_sim::{Cable, Side, World};

use crate::plan::Failure;

/// Bytes that Ethernet, IP and TCP add to a segment's data.
const HEADERS: u64 = 54;
const MTU: u16 = 1500;
/// The least capacity of a path's queue, which otherwise holds a round trip's data.
const QUEUE_PACKETS_MIN: usize = 5;
/// The probability that a packet is lost after a lost one.
const AFTER_LOSS: f64 = 0.25;
const PORT: u16 = 80;

/// A path to a client, the same in both directions; it loses packets only towards the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) rate_bits: u64,
    /// The round trip, without the packets' own time.
    pub(super) round_trip: Duration,
    /// The probability that a packet is lost after one that got through.
    pub(super) loss: f64,
}

/// Clients at A and the server at B, with the given TCP and limits, and segments of `segment` bytes
/// of data.
pub(super) fn world(
    ways: &[Way],
    segment: u64,
    hosts: [(TcpConfig, Limits); 2],
    seed: u64,
) -> Result<World, Failure> {
    let cable = Cable::with_lanes(lanes(ways, segment, seed), MTU, lane_of);
    let mut configs = [Side::A, Side::B].map(|side| {
        let address = Cidr::new(host(side), 16).expect("16 bits fit an IPv4 address");
        let capabilities = Capabilities::plain(Medium::Ethernet, MTU);
        let mut config = Config::new(capabilities, address, [side.index() as u8; 32]);
        config.hardware = [2, 0, 0, 0, 0, side.index() as u8 + 1];
        config
    });
    for (config, host) in configs.iter_mut().zip(hosts) {
        (config.tcp, config.limits) = host;
    }
    configs[0].ranges.push(Cidr::new(client(0), 16).expect("16 bits fit an IPv4 address"));
    configs[1].gateways.push(host(Side::A));
    Ok(World::new(Instant::from_millis(1_000), cable, configs)?)
}

/// The first lane is perfect, for frames of no client.
fn lanes(ways: &[Way], segment: u64, seed: u64) -> Vec<[LinkConfig; 2]> {
    let lane = |(number, way): (usize, &Way)| {
        let carried_bits = way.rate_bits as f64 * way.round_trip.as_secs_f64();
        let carried = (carried_bits / 8.0 / (segment + HEADERS) as f64) as usize;
        let link = |loss, seed| LinkConfig {
            rate: Rate::BitsPerSecond(way.rate_bits),
            delay: way.round_trip / 2,
            queue: QueueLimit::Packets(carried.max(QUEUE_PACKETS_MIN)),
            loss,
            seed,
            ..LinkConfig::default()
        };
        let seed = (seed << 20) + number as u64 * 2;
        let bursty = Loss::Bursty { first: way.loss, after_loss: AFTER_LOSS };
        let loss = if way.loss > 0.0 { bursty } else { Loss::None };
        // From clients to the server, and back.
        [link(Loss::None, seed), link(loss, seed + 1)]
    };
    let perfect = [LinkConfig::default(), LinkConfig::default()];
    std::iter::once(perfect).chain(ways.iter().enumerate().map(lane)).collect()
}

fn host(side: Side) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, side.index() as u8 + 1).into()
}

/// The address and port of the server.
pub(super) fn server() -> SocketAddr {
    SocketAddr::new(host(Side::B), PORT)
}

/// The address of the client at the end of that path.
pub(super) fn client(number: usize) -> IpAddr {
    Ipv4Addr::new(10, 10, (number >> 8) as u8, number as u8).into()
}

fn number_of(client: [u8; 4]) -> usize {
    usize::from(client[2]) << 8 | usize::from(client[3])
}

/// The lane of a client's packets, from either address of the IPv4 header.
fn lane_of(frame: &[u8]) -> usize {
    let is_ipv4 = frame.get(12..14) == Some(&[8, 0]);
    let addresses = frame.get(26..34).filter(|_| is_ipv4).map(|bytes| bytes.as_chunks::<4>().0);
    let clients = addresses.into_iter().flatten().filter(|address| address[..2] == [10, 10]);
    clients.map(|address| number_of(*address) + 1).next().unwrap_or(0)
}
