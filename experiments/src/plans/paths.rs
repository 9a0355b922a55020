//! A server and its clients, each at the end of a path of its own, in virtual time. One host is all
//! clients: each has an address of its own there, and a lane of the cable.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lightwait_core::address::Cidr;
use lightwait_core::config::{Limits, TcpConfig};
use lightwait_core::time::Duration;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use lightwait_netem::{LinkConfig, Loss, QueueLimit, Rate};
use lightwait_sim::{Cable, Side, World};

use crate::plan::Failure;

/// What Ethernet, IP and TCP add to a segment's text, in bytes.
const HEADERS: u64 = 54;
const MTU: u16 = 1500;
/// What may wait before a path: as much as a round trip carries, and so many packets at least.
const QUEUE_PACKETS_MIN: usize = 5;
/// How likely a packet is lost that follows a lost one.
const AFTER_LOSS: f64 = 0.25;
const PORT: u16 = 80;

/// A way to a client, the same in both directions; it loses towards the client alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) rate_bits: u64,
    /// Of a round trip, without what the packets themselves take.
    pub(super) round_trip: Duration,
    /// How likely a packet is lost that follows one which came through.
    pub(super) loss: f64,
}

/// Clients at A, the server at B, with TCP and limits of each as given, and segments of so much
/// text.
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

/// The first lane is a perfect one, for what is not of a client.
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

/// Where the server listens.
pub(super) fn server() -> SocketAddr {
    SocketAddr::new(host(Side::B), PORT)
}

/// The address of the client at the end of that way.
pub(super) fn client(number: usize) -> IpAddr {
    Ipv4Addr::new(10, 10, (number >> 8) as u8, number as u8).into()
}

fn number_of(client: [u8; 4]) -> usize {
    usize::from(client[2]) << 8 | usize::from(client[3])
}

/// The lane of a client's packets, by either address of the IPv4 header.
fn lane_of(frame: &[u8]) -> usize {
    let is_ipv4 = frame.get(12..14) == Some(&[8, 0]);
    let addresses = frame.get(26..34).filter(|_| is_ipv4).map(|bytes| bytes.as_chunks::<4>().0);
    let clients = addresses.into_iter().flatten().filter(|address| address[..2] == [10, 10]);
    clients.map(|address| number_of(*address) + 1).next().unwrap_or(0)
}
