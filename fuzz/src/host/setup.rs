//! The configurations of the two hosts: media, features and limits, as the input says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lightwait_core::Config;
use lightwait_core::address::Cidr;
use lightwait_core::config::{Algorithm, Disagreement, Limits, LossDetection, PageSize, Wish};
use lightwait_core::frame::{Capabilities, Medium};
use lightwait_core::time::Duration;

use crate::source::Source;

/// The hardware address of an end.
pub(super) fn mac(side: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, side as u8 + 1]
}

/// IPv4 addresses with a meaning in this world; the first two are the ends' own.
pub(super) const IPV4: [Ipv4Addr; 8] = [
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(10, 0, 0, 2),
    Ipv4Addr::new(10, 0, 0, 77),
    Ipv4Addr::new(10, 1, 0, 5),
    Ipv4Addr::new(192, 0, 2, 9),
    Ipv4Addr::new(10, 0, 0, 255),
    Ipv4Addr::new(224, 0, 0, 1),
    Ipv4Addr::UNSPECIFIED,
];

/// IPv6 addresses with a meaning in this world; the first two are the ends' own.
pub(super) const IPV6: [Ipv6Addr; 8] = [
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9),
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::UNSPECIFIED,
];

/// One of those addresses.
pub(super) fn address(source: &mut Source<'_>) -> IpAddr {
    let n = source.u8();
    let index = usize::from(n >> 1) % 8;
    if n & 1 == 0 { IPV4[index].into() } else { IPV6[index].into() }
}

/// Ports that sockets may use.
pub(super) const PORTS: [u16; 4] = [80, 81, 4000, 0];

/// The congestion control of an end, by two bits of the world's byte.
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Cubic, Algorithm::Bbr, Algorithm::Reno, Algorithm::Dctcp];

/// The configurations of the two ends, which share the cable's medium and MTU. Also returns whether
/// frames may be forged and damaged.
///
/// ```text
///   world's byte:  7 honest | 6 count, 5–4 algorithm of end 1 | 3 count, 2–1 of end 0 | 0 Ethernet
/// ```
pub(super) fn configs(source: &mut Source<'_>) -> ([Config; 2], bool) {
    let world = source.u8();
    let medium = if world & 1 == 1 { Medium::Ethernet } else { Medium::Ip };
    let mtu = source.pick(&[1500, 1280, 9000, 576]);
    let configs = [0, 1].map(|side| {
        let mut config = config(side, medium, mtu, source);
        let bits = world >> (1 + 3 * side);
        config.tcp.congestion.algorithm = ALGORITHMS[usize::from(bits & 3)];
        if bits & 4 != 0 {
            config.tcp.congestion.detection = LossDetection::Count;
        }
        config
    });
    (configs, world & 0x80 == 0)
}

fn config(side: usize, medium: Medium, mtu: u16, source: &mut Source<'_>) -> Config {
    let (features, sizes) = (source.u8(), source.u8());
    let has = |bit: u8| features >> bit & 1 == 1;
    let mut device = Capabilities::plain(medium, mtu);
    device.checksum = has(0);
    device.segmentation = if has(0) && has(1) { 65_535 } else { 0 };
    device.datagrams = device.segmentation;
    let mut config = Config::new(device, cidr(IPV4[side].into(), 24), [side as u8 + 1; 32]);
    config.hardware = mac(side);
    if mtu >= 1280 {
        config.addresses.push(cidr(IPV6[side].into(), 64));
        config.addresses.push(cidr(IPV6[side + 2].into(), 64));
    }
    if side == 0 {
        config.ranges.push(cidr(IPV4[3].into(), 24));
        config.gateways = vec![IPV4[2].into()];
    } else {
        config.gateways = vec![IPV4[0].into(), IPV6[0].into()];
        config.ephemeral_ports = (2000, 2003);
    }
    config.autoconfigure = has(6);
    let tcp = &mut config.tcp;
    tcp.timestamps = !has(2);
    tcp.sack = !has(3);
    tcp.window_scaling = !has(4);
    tcp.nagle = !has(5);
    tcp.ack.quick = sizes & 1;
    tcp.buffers.receive = [65_536, 4096, 1000, 200_000][usize::from(sizes >> 1) % 4];
    tcp.buffers.receive_max = [1 << 20, 8192, 1000, 4 << 20][usize::from(sizes >> 3) % 4];
    tcp.buffers.send = [65_536, 5000, 1][usize::from(sizes >> 5) % 3];
    if sizes & 0x80 != 0 {
        tcp.time_wait.length = Duration::from_secs(1);
    }
    if has(7) {
        config.limits = tight();
        config.tcp.time_wait.close_swap = !has(3);
        config.tcp.time_wait.negotiate = [Wish::Client, Wish::Server][usize::from(has(2))];
        config.tcp.time_wait.disagreement = Disagreement::FallBack;
    }
    config
}

/// Limits so tight that a short input reaches each of them.
fn tight() -> Limits {
    Limits {
        connections: 5,
        syn_cache: 2,
        held_syns: 2,
        time_wait: 2,
        orphans: 2,
        pages: 12,
        receive_window_bytes: 24_000,
        frames_per_turn: 2,
        replies_per_second: 5,
        challenge_acks_per_second: 2,
        neighbours: 2,
        neighbour_queue: 3,
        reassemblies: 2,
        path_mtus: 2,
        unheard_peers: 1,
        page: PageSize::Auto,
        udp_sockets: 2,
        udp_flows: 1,
    }
}

fn cidr(address: IpAddr, prefix_len: u8) -> Cidr {
    Cidr::new(address, prefix_len).expect("the prefixes above are possible")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_corpus_has_each_congestion_control_at_either_end() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/host");
        let inputs = fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()));
        let inputs: Vec<Vec<u8>> = inputs.map(Result::unwrap).collect();
        for side in [0, 1] {
            for algorithm in ALGORITHMS {
                for detection in [LossDetection::Rack, LossDetection::Count] {
                    let has = |input: &Vec<u8>| {
                        let congestion = &configs(&mut Source::new(input)).0[side].tcp.congestion;
                        (congestion.algorithm, congestion.detection) == (algorithm, detection)
                    };
                    assert!(inputs.iter().any(has), "end {side}: {algorithm:?}, {detection:?}");
                }
            }
        }
    }

    #[test]
    fn the_byte_of_the_world_chooses_for_each_end() {
        let chosen = |world: u8| {
            configs(&mut Source::new(&[world]))
                .0
                .map(|config| (config.tcp.congestion.algorithm, config.tcp.congestion.detection))
        };
        let usual = (Algorithm::Cubic, LossDetection::Rack);
        assert_eq!(chosen(0b1000_0001), [usual; 2]);
        assert_eq!(chosen(0b0000_0010), [(Algorithm::Bbr, LossDetection::Rack), usual]);
        assert_eq!(chosen(0b0111_0000), [usual, (Algorithm::Dctcp, LossDetection::Count)]);
    }
}
